/* XADD, XREAD, XREVRANGE, and reads that wait. */
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

#define BAD_ID "ERR Invalid stream ID specified as stream command argument"

static void put_entry(struct mr_buf *out, const struct mr_entry *e)
{
    char id[MR_NUMBER_MAX];

    mr_id_write(e->id, id);
    mr_out_array(out, 2);
    mr_out_text(out, id);
    mr_out_array(out, e->words.n);
    for (size_t i = 0; i < e->words.n; i++)
        mr_out_bulk(out, e->words.at[i]);
}

/* The entries behind `id`, at most `count` of them; 0 = all. */
static void put_behind(struct mr_buf *out, const struct mr_stream *s,
                       struct mr_id id, long long count)
{
    size_t from = mr_stream_behind(s, id);
    size_t n = s->n - from;

    if (count > 0 && n > (size_t)count)
        n = (size_t)count;
    mr_out_array(out, n);
    for (size_t i = from; i < from + n; i++)
        put_entry(out, &s->at[i]);
}

/* --- XADD ----------------------------------------------------------------- */

struct adding {
    bool trims;
    long long max;
    bool given; /* a place; otherwise Redis makes one */
    struct mr_id id;
    size_t words; /* index of the first field */
};

/* Reads "MAXLEN ~ N". Returns false if that was answered. */
static bool read_maxlen(struct mr_call *call, size_t *i, struct adding *a)
{
    size_t at = *i + 1;

    a->trims = true;
    if (at + 1 >= call->argc || !mr_is(call->argv[at], "~")) {
        mr_out_lacks(call->out, "XADD with MAXLEN and no ~");
        return false;
    }
    if (!mr_read_int(call->argv[at + 1], &a->max)) {
        mr_out_not_int(call->out);
        return false;
    }
    if (a->max < 0) {
        mr_out_error(call->out, "ERR The MAXLEN argument must be >= 0.");
        return false;
    }
    *i = at + 1;
    return true;
}

static bool read_place(struct mr_call *call, struct mr_bytes word,
                       struct adding *a)
{
    a->given = true;
    if (word.n >= 2 && strcmp(word.data + word.n - 2, "-*") == 0) {
        mr_out_lacks(call->out, "XADD with a place that ends with *");
        return false;
    }
    if (mr_id_read(word, &a->id, 0, true))
        return true;
    mr_out_error(call->out, BAD_ID);
    return false;
}

/* Reads what stands in front of the fields. Returns false if that was
 * answered. */
static bool read_adding(struct mr_call *call, struct adding *a)
{
    static const char *const others[] = {"nomkstream", "minid", "limit"};
    size_t i = 2;

    for (; i < call->argc; i++) {
        if (mr_is(call->argv[i], "*"))
            break;
        for (size_t k = 0; k < sizeof(others) / sizeof(*others); k++) {
            if (mr_is(call->argv[i], others[k])) {
                mr_out_lacks(call->out, "XADD with %s", others[k]);
                return false;
            }
        }
        if (!mr_is(call->argv[i], "maxlen") || i + 1 == call->argc) {
            if (!read_place(call, call->argv[i], a))
                return false;
            break;
        }
        if (!read_maxlen(call, &i, a))
            return false;
    }
    a->words = i + 1;
    if (call->argc < a->words + 2 || (call->argc - a->words) % 2 != 0) {
        mr_out_error(call->out,
                     "ERR wrong number of arguments for 'xadd' command");
        return false;
    }
    if (a->given && a->id.ms == 0 && a->id.seq == 0) {
        mr_out_error(call->out,
                     "ERR The ID specified in XADD must be greater than 0-0");
        return false;
    }
    return true;
}

/* Makes a place, or checks the given one. Returns false if that was
 * answered. */
static bool find_place(struct mr_call *call, const struct mr_stream *s,
                       struct adding *a)
{
    if (s->last.ms == UINT64_MAX && s->last.seq == UINT64_MAX) {
        mr_out_error(call->out, "ERR The stream has exhausted the last possible"
                                " ID, unable to add more items");
        return false;
    }
    if (!a->given) {
        a->id = (struct mr_id){(uint64_t)mr_call_ms(call), 0};
        if (a->id.ms <= s->last.ms) {
            a->id = s->last;
            mr_id_next(&a->id);
        }
    }
    if (mr_id_order(a->id, s->last) > 0)
        return true;
    mr_out_error(call->out, "ERR The ID specified in XADD is equal or smaller "
                            "than the target stream top item");
    return false;
}

static void note_added(struct mr_call *call, struct mr_bytes key)
{
    call->added = mr_grow(call->added, &call->added_room, call->n_added + 1,
                          sizeof(*call->added));
    call->added[call->n_added++] = mr_bytes_copy(key);
}

static void xadd(struct mr_call *call)
{
    struct adding a = {0};
    struct mr_key *k;
    char id[MR_NUMBER_MAX];

    if (!read_adding(call, &a) ||
        !mr_look_for(call, call->argv[1], MR_STREAM, &k))
        return;
    if (!k)
        k = mr_data_make(call->data, call->database, call->argv[1], MR_STREAM);
    if (!find_place(call, &k->stream, &a))
        return;
    mr_stream_add(&k->stream, a.id, call->argv + a.words, call->argc - a.words);
    if (a.trims) {
        size_t gone = mr_stream_trim(&k->stream, a.max);

        call->m->counts.trimmed += call->replay ? 0 : gone;
    }
    mr_changed(call, k);
    note_added(call, call->argv[1]);
    mr_id_write(a.id, id);
    mr_out_text(call->out, id);
}

/* --- XREVRANGE ------------------------------------------------------------ */

static void xrevrange(struct mr_call *call)
{
    struct mr_id first, last;
    long long count = -1;
    struct mr_key *k;

    if (call->argv[2].data[0] == '(' || call->argv[3].data[0] == '(') {
        mr_out_lacks(call->out, "XREVRANGE with an open end");
        return;
    }
    if (!mr_id_read(call->argv[3], &first, 0, false) ||
        !mr_id_read(call->argv[2], &last, UINT64_MAX, false)) {
        mr_out_error(call->out, BAD_ID);
        return;
    }
    for (size_t i = 4; i < call->argc; i += 2) {
        if (!mr_is(call->argv[i], "count") || i + 1 == call->argc) {
            mr_out_syntax(call->out);
            return;
        }
        if (!mr_read_int(call->argv[i + 1], &count)) {
            mr_out_not_int(call->out);
            return;
        }
        count = count < 0 ? 0 : count;
    }
    k = mr_look(call, call->argv[1]);
    if (!k) {
        mr_out_array(call->out, 0);
        return;
    }
    if (k->kind != MR_STREAM) {
        mr_out_wrong_type(call->out);
        return;
    }
    if (count == 0) {
        mr_out_nil_array(call->out);
        return;
    }
    const struct mr_stream *s = &k->stream;
    size_t end = mr_stream_behind(s, last), from = end;

    while (from > 0 && (count < 0 || end - from < (size_t)count) &&
           mr_id_order(s->at[from - 1].id, first) >= 0)
        from--;
    mr_out_array(call->out, end - from);
    while (end > from)
        put_entry(call->out, &s->at[--end]);
}

/* --- XREAD ---------------------------------------------------------------- */

struct reading {
    bool blocks;
    int64_t until_ms; /* 0 = for ever */
    long long count;  /* 0 = all */
    size_t keys, n;   /* index of the first key, and their number */
    struct mr_id *ids;
};

static bool read_patience(struct mr_call *call, struct mr_bytes word,
                          struct reading *r)
{
    long long ms;

    if (!mr_read_int(word, &ms)) {
        mr_out_error(call->out, "ERR timeout is not an integer or out of "
                                "range");
        return false;
    }
    if (ms < 0) {
        mr_out_error(call->out, "ERR timeout is negative");
        return false;
    }
    if (ms > INT64_MAX - mr_call_ms(call)) { /* 7.0 overflows */
        mr_out_lacks(call->out, "a time in which that ends");
        return false;
    }
    r->blocks = true;
    r->until_ms = ms ? mr_call_ms(call) + ms : 0;
    return true;
}

/* Reads what stands in front of the keys. Returns false if that was
 * answered. */
static bool read_reading(struct mr_call *call, struct reading *r)
{
    for (size_t i = 1; i < call->argc; i++) {
        bool more = i + 1 < call->argc;

        if (mr_is(call->argv[i], "block") && more) {
            if (!read_patience(call, call->argv[++i], r))
                return false;
        } else if (mr_is(call->argv[i], "count") && more) {
            if (!mr_read_int(call->argv[++i], &r->count)) {
                mr_out_not_int(call->out);
                return false;
            }
            r->count = r->count < 0 ? 0 : r->count;
        } else if (mr_is(call->argv[i], "streams") && more) {
            r->keys = i + 1;
            r->n = (call->argc - r->keys) / 2;
            if ((call->argc - r->keys) % 2 == 0)
                return true;
            mr_out_error(call->out,
                         "ERR Unbalanced XREAD list of streams: for each stream"
                         " key an ID or '$' must be specified.");
            return false;
        } else {
            break;
        }
    }
    mr_out_syntax(call->out);
    return false;
}

static bool read_places(struct mr_call *call, struct reading *r)
{
    for (size_t i = 0; i < r->n; i++) {
        struct mr_bytes word = call->argv[r->keys + r->n + i];
        struct mr_key *k;

        if (!mr_look_for(call, call->argv[r->keys + i], MR_STREAM, &k))
            return false;
        if (mr_is(word, "$")) {
            r->ids[i] = k ? k->stream.last : (struct mr_id){0};
        } else if (mr_is(word, ">")) {
            mr_out_error(call->out, "ERR The > ID can be specified only when "
                                    "calling XREADGROUP using the GROUP <group>"
                                    " <consumer> option.");
            return false;
        } else if (!mr_id_read(word, &r->ids[i], 0, true)) {
            mr_out_error(call->out, BAD_ID);
            return false;
        }
    }
    return true;
}

/* Answers with what is there. Returns false if nothing is. */
static bool read_now(struct mr_call *call, const struct reading *r)
{
    struct mr_buf found = {0};
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++) {
        struct mr_key *k = mr_look(call, call->argv[r->keys + i]);

        if (!k || k->stream.n == 0 ||
            mr_id_order(k->stream.last, r->ids[i]) <= 0)
            continue;
        mr_out_array(&found, 2);
        mr_out_bulk(&found, call->argv[r->keys + i]);
        put_behind(&found, &k->stream, r->ids[i], r->count);
        n++;
    }
    if (n > 0) {
        mr_out_array(call->out, n);
        mr_put(call->out, found.data, found.n);
    }
    free(found.data);
    return n > 0;
}

/* A key that is named twice counts with its first place. */
static void block(struct mr_call *call, const struct reading *r)
{
    struct mr_conn *c = call->c;

    c->waits = mr_alloc(r->n * sizeof(*c->waits));
    for (size_t i = 0; i < r->n; i++) {
        struct mr_bytes key = call->argv[r->keys + i];
        bool known = false;

        for (size_t k = 0; k < c->n_waits; k++)
            known = known || mr_bytes_equal(c->waits[k].key, key);
        if (!known)
            c->waits[c->n_waits++] =
                (struct mr_wait){mr_bytes_copy(key), r->ids[i]};
    }
    c->until_ms = r->until_ms;
    c->count = r->count;
    TAILQ_INSERT_TAIL(&call->m->blocked, c, blocked);
}

static void xread(struct mr_call *call)
{
    struct reading r = {0};

    if (!read_reading(call, &r))
        return;
    r.ids = mr_alloc(r.n * sizeof(*r.ids));
    if (read_places(call, &r) && !read_now(call, &r)) {
        if (r.blocks && call->c && !call->in_script)
            block(call, &r);
        else
            mr_out_nil_array(call->out);
    }
    free(r.ids);
}

const struct mr_command mr_stream_commands[] = {
    {"xadd", -5, MR_WRITES | MR_GROWS, xadd},
    {"xread", -4, 0, xread},
    {"xrevrange", -4, 0, xrevrange},
    {0},
};

/* --- reads that wait ------------------------------------------------------ */

static void end_wait(struct mr_conn *c)
{
    for (size_t i = 0; i < c->n_waits; i++)
        mr_bytes_free(c->waits[i].key);
    free(c->waits);
    c->waits = NULL;
    c->n_waits = 0;
    TAILQ_REMOVE(&c->m->blocked, c, blocked);
}

void mr_unblock(struct mr_conn *c, bool answer)
{
    if (c->n_waits == 0)
        return;
    end_wait(c);
    if (answer)
        mr_out_nil_array(&c->out);
}

/* Answers a read that waits for this stream. */
static void serve(struct mr_conn *c, const struct mr_wait *w,
                  const struct mr_stream *s)
{
    mr_out_array(&c->out, 1);
    mr_out_array(&c->out, 2);
    mr_out_bulk(&c->out, w->key);
    put_behind(&c->out, s, w->id, c->count);
    end_wait(c);
    c->ready(c->arg);
}

static const struct mr_wait *wait_of(const struct mr_conn *c,
                                     struct mr_bytes key)
{
    for (size_t i = 0; i < c->n_waits; i++)
        if (mr_bytes_equal(c->waits[i].key, key))
            return &c->waits[i];
    return NULL;
}

void mr_serve_waits(struct mr *m, struct mr_call *call)
{
    for (size_t i = 0; i < call->n_added; i++) {
        struct mr_key *k = mr_look(call, call->added[i]);
        struct mr_conn *c, *next;

        for (c = TAILQ_FIRST(&m->blocked); k && c; c = next) {
            const struct mr_wait *w = wait_of(c, k->name);

            next = TAILQ_NEXT(c, blocked);
            if (w && c->database == call->database && k->kind == MR_STREAM &&
                mr_id_order(k->stream.last, w->id) > 0)
                serve(c, w, &k->stream);
        }
    }
}
