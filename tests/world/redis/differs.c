/* See differs.h. */
#include "tests/world/redis/differs.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/world/redis/commands.h"
#include "tests/world/redis/internal.h"
#include "tests/world/redis/real.h"

#define CONNECTIONS 4
#define CLOCK_US INT64_C(1700000000000000)
#define PATIENCE_MS 120000 /* for an answer that must come */
#define CHECK_EVERY 64
#define RAW_PERCENT 2
#define PHASE 500 /* commands; in each fourth phase streams become long */

/* A connection to both. */
struct both {
    struct mr_conn *model;
    int real;
    struct mr_buf in; /* what came from the real one */
    enum shape shape; /* of the read that waits */
};

struct test {
    struct differs *d;
    struct random_state random;
    struct mr *model;
    struct real *server;
    int64_t clock_us;
    struct both at[CONNECTIONS];
    struct both control;    /* only to the real one */
    struct command command; /* the last one, for messages */
    bool failed;
};

/* --- messages ------------------------------------------------------------- */

static void show(struct mr_buf *out, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && i < 600; i++) {
        char text[8];
        unsigned char b = (unsigned char)bytes[i];

        mr_put(out, text,
               (size_t)snprintf(text, sizeof(text),
                                b >= 32 && b < 127 ? "%c" : "\\x%02x", b));
    }
}

/* Notes the first difference. */
static void fail(struct test *t, const char *what, struct mr_bytes model,
                 struct mr_bytes real)
{
    struct mr_buf text = {0}, sent = {0};

    if (t->failed)
        return;
    t->failed = true;
    command_put(&t->command, &sent);
    mr_put(&text, what, strlen(what));
    mr_put(&text, "\n  last command: ", 17);
    show(&text, sent.data, sent.n);
    mr_put(&text, "\n  model: ", 10);
    show(&text, model.data, model.n);
    mr_put(&text, "\n  real:  ", 10);
    show(&text, real.data, real.n);
    snprintf(t->d->why, sizeof(t->d->why), "seed %llu, command %llu: %s",
             (unsigned long long)t->d->seed, (unsigned long long)t->d->sent,
             text.data);
    free(text.data);
    free(sent.data);
}

static void fail_plainly(struct test *t, const char *what)
{
    fail(t, what, (struct mr_bytes){0}, (struct mr_bytes){0});
}

/* --- the real server ------------------------------------------------------ */

static void send_real(struct test *t, int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t took = send(fd, bytes, n, MSG_NOSIGNAL);

        if (took <= 0) {
            fail_plainly(t, "the real server takes no bytes");
            return;
        }
        bytes += took;
        n -= (size_t)took;
    }
}

/* Reads more. Returns false if it closed the connection, or nothing came. */
static bool read_more(struct test *t, struct both *b)
{
    char bytes[65536];
    struct pollfd ready = {.fd = b->real, .events = POLLIN};
    ssize_t n;

    if (poll(&ready, 1, PATIENCE_MS) != 1) {
        fail_plainly(t, "the real server does not answer");
        return false;
    }
    n = read(b->real, bytes, sizeof(bytes));
    if (n > 0)
        mr_put(&b->in, bytes, (size_t)n);
    return n > 0;
}

/* Reads one answer of the real server. Returns its bytes; 0 = none came. */
static size_t read_real(struct test *t, struct both *b, struct mr_reply *r)
{
    long took = 0;

    *r = (struct mr_reply){0};
    while (!t->failed && (b->in.n == 0 ||
                          (took = mr_reply_read(b->in.data, b->in.n, r)) == 0))
        if (!read_more(t, b)) {
            fail_plainly(t, "the real server closed a connection");
            return 0;
        }
    if (!t->failed && took < 0)
        fail_plainly(t, "the real server's answer is no RESP");
    return took > 0 && !t->failed ? (size_t)took : 0;
}

static struct mr_reply ask_real(struct test *t, const char *line)
{
    struct mr_reply r;
    size_t n;

    send_real(t, t->control.real, line, strlen(line));
    n = read_real(t, &t->control, &r);
    mr_drop(&t->control.in, n);
    return r;
}

static unsigned blocked_at_real(struct test *t)
{
    struct mr_reply r = ask_real(t, "INFO clients\r\n");
    const char *found =
        r.text.data ? strstr(r.text.data, "blocked_clients:") : NULL;
    unsigned n = found ? (unsigned)strtoul(found + 16, NULL, 10) : 0;

    if (!found)
        fail_plainly(t, "the real server does not tell who waits");
    mr_reply_free(&r);
    return n;
}

static unsigned blocked_at_model(const struct test *t)
{
    unsigned n = 0;

    for (size_t i = 0; i < CONNECTIONS; i++)
        n += mr_is_blocked(t->at[i].model);
    return n;
}

/* --- comparing ------------------------------------------------------------ */

static int by_text(const void *a, const void *b)
{
    const struct mr_reply *x = a, *y = b;

    return mr_bytes_order(x->text, y->text);
}

/* Sorts groups of `size` elements from `from` on by the first of each, which
 * are different. */
static void sort_groups(struct mr_reply *r, size_t from, size_t size)
{
    if (r->n <= from)
        return;
    size_t n = (r->n - from) / size;

    if (size == 1) {
        qsort(r->at + from, n, sizeof(*r->at), by_text);
        return;
    }
    /* qsort() moves a group as a whole: its first element is compared. */
    qsort(r->at + from, n, size * sizeof(*r->at), by_text);
}

static bool equal(const struct mr_reply *a, const struct mr_reply *b)
{
    bool same = a->kind == b->kind && a->array == b->array && a->n == b->n &&
                (a->kind != MR_R_INT || a->value == b->value) &&
                mr_bytes_equal(a->text, b->text);

    for (size_t i = 0; same && i < a->n; i++)
        same = equal(&a->at[i], &b->at[i]);
    return same;
}

/* Whether the hash that the last command named keeps its order. */
static bool is_packed(const struct test *t, unsigned database)
{
    size_t word = t->command.shape == SHAPE_RENEWAL ? 4 : 1;
    struct mr_key *k =
        word < t->command.words.n
            ? mr_data_find(&t->model->data, database, t->command.words.at[word])
            : NULL;

    return !k || k->kind != MR_HASH || k->hash.packed;
}

static void sort_reply(struct test *t, unsigned database, enum shape shape,
                       struct mr_reply *r)
{
    if (shape == SHAPE_KEYS)
        sort_groups(r, 0, 1);
    if (shape == SHAPE_EXACT || shape == SHAPE_KEYS || is_packed(t, database))
        return;
    if (shape == SHAPE_FIELDS)
        sort_groups(r, 0, 1);
    if (shape == SHAPE_PAIRS)
        sort_groups(r, 0, 2);
    if (shape == SHAPE_RENEWAL)
        sort_groups(r, 4, 3);
}

/* Compares one answer of both, and removes it. */
static void compare(struct test *t, struct both *b, enum shape shape)
{
    struct mr_reply model = {0}, real = {0};
    size_t n, m = read_real(t, b, &real);
    const char *bytes = mr_output(b->model, &n);
    long took = n ? mr_reply_read(bytes, n, &model) : 0;

    if (!t->failed && took <= 0)
        fail(t, "the model does not answer", (struct mr_bytes){bytes, n},
             (struct mr_bytes){b->in.data, m});
    sort_reply(t, b->model->database, shape, &model);
    sort_reply(t, b->model->database, shape, &real);
    if (!t->failed && !equal(&model, &real))
        fail(t, "another answer", (struct mr_bytes){bytes, (size_t)took},
             (struct mr_bytes){b->in.data, m});
    t->d->errors += !t->failed && model.kind == MR_R_ERROR;
    if (!t->failed) {
        mr_sent(b->model, (size_t)took);
        mr_drop(&b->in, m);
    }
    mr_reply_free(&model);
    mr_reply_free(&real);
}

/* Compares the answers of reads that waited and do no more, and checks that as
 * many others wait. */
static void compare_waits(struct test *t, unsigned waited)
{
    if (waited == 0 && blocked_at_model(t) == 0)
        return;
    for (size_t i = 0; i < CONNECTIONS && !t->failed; i++) {
        size_t n;

        mr_output(t->at[i].model, &n);
        if (n == 0)
            continue;
        t->d->woken += n > 5;
        compare(t, &t->at[i], SHAPE_EXACT);
    }
    for (unsigned tries = 0; !t->failed; tries++) {
        unsigned real = blocked_at_real(t);

        if (real == blocked_at_model(t))
            return;
        if (tries == PATIENCE_MS)
            fail_plainly(t, "other reads wait");
        usleep(1000);
    }
}

/* --- what is done --------------------------------------------------------- */

static void ignore(void *)
{
}

/* Returns how far it is to about the time at which some key expires, if that is
 * soon; 0 = no key was found. */
static int64_t to_expiry_us(struct test *t)
{
    const struct mr_database *d = &t->model->data.databases[0];
    const struct mr_key *k =
        d->n ? d->at[random_below(&t->random, (uint32_t)d->n)] : NULL;
    int64_t to_us;

    if (!k || k->expires_ms == MR_MS_NONE)
        return 0;
    to_us = (k->expires_ms + random_below(&t->random, 3) - 1) * 1000 +
            random_below(&t->random, 2) * 999 - t->clock_us;
    return to_us > 0 && to_us < 20000000 ? to_us : 0;
}

static void move_clock(struct test *t)
{
    static const unsigned most_us[] = {1000,    20000,    400000,
                                       5000000, 90000000, 4000000000};
    unsigned size = random_below(&t->random, 10000);
    size_t which = size < 6000   ? 0
                   : size < 8500 ? 1
                   : size < 9850 ? 2
                   : size < 9990 ? 3
                   : size < 9999 ? 4
                                 : 5;
    int64_t by_us = random_below(&t->random, most_us[which]);
    unsigned waited = blocked_at_model(t);

    if (random_below(&t->random, 20) == 0)
        by_us = to_expiry_us(t);
    else if (random_below(&t->random, 40) == 0)
        by_us = -by_us;
    t->clock_us += by_us;
    t->d->moves++;
    real_set_clock(t->server, t->clock_us);
    mr_jump(t->model, by_us);
    if (waited > 0) {
        struct mr_reply pong = ask_real(t, "PING\r\n");

        mr_reply_free(&pong);
        compare_waits(t, waited);
    }
}

static void put_words(struct mr_buf *out, const char *const *words, size_t n)
{
    mr_out_array(out, n);
    for (size_t i = 0; i < n; i++)
        mr_out_text(out, words[i]);
}

static void open_both(struct test *t, struct both *b, bool known)
{
    struct mr_buf out = {0};

    *b = (struct both){.model = mr_open(t->model, ignore, NULL),
                       .real = real_connect(t->server)};
    if (b->real < 0)
        fail_plainly(t, "the real server takes no connection");
    put_words(&out, (const char *const[]){"AUTH", "secret"}, 2);
    if (known && !t->failed) {
        send_real(t, b->real, out.data, out.n);
        mr_feed(b->model, out.data, out.n);
        compare(t, b, SHAPE_EXACT);
    }
    free(out.data);
}

static void close_both(struct both *b)
{
    mr_close(b->model);
    if (b->real >= 0)
        close(b->real);
    free(b->in.data);
    *b = (struct both){.real = -1};
}

/* Reads a sorted set in parts from both, and compares the members. */
static void put_members(struct mr_reply *all, struct mr_reply *part,
                        size_t *room)
{
    struct mr_reply *list = &part->at[1];

    for (size_t i = 0; i < list->n; i++) {
        all->at = mr_grow(all->at, room, all->n + 1, sizeof(*all->at));
        all->at[all->n++] = list->at[i];
        list->at[i] = (struct mr_reply){0};
    }
}

/* Goes on until the cursor is 0. Returns all pairs, in order, each once. */
static struct mr_reply scan(struct test *t, struct both *b, bool real)
{
    struct mr_reply all = {.kind = MR_R_ARRAY, .array = true}, part;
    char cursor[MR_NUMBER_MAX] = "0";
    size_t room = 0;

    do {
        struct mr_buf out = {0};
        size_t n;

        mr_bytes_free(t->command.words.at[2]);
        t->command.words.at[2] = mr_bytes_copy(mr_bytes_of(cursor));
        command_put(&t->command, &out);
        if (real) {
            send_real(t, b->real, out.data, out.n);
            mr_drop(&b->in, read_real(t, b, &part));
        } else {
            mr_feed(b->model, out.data, out.n);
            const char *bytes = mr_output(b->model, &n);

            mr_sent(b->model, (size_t)mr_reply_read(bytes, n, &part));
        }
        free(out.data);
        if (t->failed || part.kind != MR_R_ARRAY || part.n != 2 ||
            part.at[0].text.n >= sizeof(cursor)) {
            mr_reply_free(&all);
            return part;
        }
        memcpy(cursor, part.at[0].text.data, part.at[0].text.n + 1);
        put_members(&all, &part, &room);
        mr_reply_free(&part);
    } while (strcmp(cursor, "0") != 0);
    sort_groups(&all, 0, 2);
    return all;
}

/* Removes pairs that came twice, as a real scan may give them. */
static void drop_twice(struct mr_reply *r)
{
    size_t kept = 0;

    for (size_t i = 0; r->kind == MR_R_ARRAY && i + 1 < r->n; i += 2) {
        if (kept > 0 && mr_bytes_equal(r->at[kept - 2].text, r->at[i].text)) {
            mr_reply_free(&r->at[i]);
            mr_reply_free(&r->at[i + 1]);
            continue;
        }
        r->at[kept] = r->at[i];
        r->at[kept + 1] = r->at[i + 1];
        kept += 2;
    }
    r->n = r->kind == MR_R_ARRAY ? kept : r->n;
}

static void compare_scans(struct test *t, struct both *b)
{
    struct mr_reply model = scan(t, b, false), real = scan(t, b, true);

    drop_twice(&real);
    if (!t->failed && !equal(&model, &real))
        fail_plainly(t, "a scan has other members");
    mr_reply_free(&model);
    mr_reply_free(&real);
}

static bool is_scan_of_parts(const struct test *t, const struct both *b)
{
    struct mr_key *k;

    if (t->command.shape != SHAPE_SCAN || t->command.words.n != 5)
        return false;
    k = mr_data_find(&t->model->data, b->model->database,
                     t->command.words.at[1]);
    return k && k->kind == MR_ZSET && !k->zset.packed;
}

/* The model answers first: what it lacks is not sent. */
static void send_one(struct test *t, struct both *b)
{
    struct mr_buf out = {0};
    uint64_t unknown = mr_counts(t->model).unknown;
    unsigned waited = blocked_at_model(t);
    size_t n;

    command_put(&t->command, &out);
    mr_feed(b->model, out.data, out.n);
    const char *answer = mr_output(b->model, &n);

    if (mr_counts(t->model).unknown > unknown &&
        strncmp(answer, mr_lacks(), strlen(mr_lacks())) == 0) {
        t->d->lacking++;
        mr_sent(b->model, n);
    } else {
        send_real(t, b->real, out.data, out.n);
        t->d->sent++;
        t->d->blocked += mr_is_blocked(b->model);
        if (!mr_is_blocked(b->model))
            compare(t, b, t->command.shape);
        compare_waits(t, waited);
    }
    free(out.data);
}

static void send_command(struct test *t)
{
    struct both *b = &t->at[random_below(&t->random, CONNECTIONS)];

    if (mr_is_blocked(b->model)) {
        if (random_below(&t->random, 30) == 0) { /* its client leaves */
            unsigned waited = blocked_at_model(t);

            close_both(b);
            open_both(t, b, true);
            compare_waits(t, waited);
        }
        return;
    }
    mr_words_free(&t->command.words);
    command_draw(&t->random, t->clock_us / 1000, t->d->sent / PHASE % 4 == 3,
                 &t->command);
    if (is_scan_of_parts(t, b)) {
        compare_scans(t, b);
        t->d->sent++;
        t->d->scans++;
    } else {
        send_one(t, b);
    }
}

/* Sends damaged bytes on a connection of their own. */
static void send_raw(struct test *t)
{
    struct both b;
    struct mr_buf out = {0};
    size_t n;

    open_both(t, &b, random_below(&t->random, 2));
    bytes_draw(&t->random, t->clock_us / 1000, &out);
    for (size_t at = 0; at < out.n;) { /* in pieces */
        size_t piece = 1 + random_below(&t->random, (uint32_t)(out.n - at));

        mr_feed(b.model, out.data + at, piece);
        at += piece;
    }
    send_real(t, b.real, out.data, out.n);
    const char *answer = mr_output(b.model, &n);

    while (!t->failed && (b.in.n < n || mr_is_over(b.model)))
        if (!read_more(t, &b))
            break;
    if (!t->failed && !mr_bytes_equal((struct mr_bytes){answer, n},
                                      (struct mr_bytes){b.in.data, b.in.n}))
        fail(t, "another answer to damaged bytes", (struct mr_bytes){answer, n},
             (struct mr_bytes){b.in.data, b.in.n});
    if (t->failed && strlen(t->d->why) + 30 < sizeof(t->d->why)) {
        struct mr_buf text = {0};

        show(&text, out.data, out.n);
        strncat(t->d->why, "\n  bytes: ", 12);
        strncat(t->d->why, text.data ? text.data : "",
                sizeof(t->d->why) - strlen(t->d->why) - 1);
        free(text.data);
    }
    t->d->raw++;
    free(out.data);
    close_both(&b);
}

static void look_at_streams(struct test *t)
{
    const struct mr_database *d = &t->model->data.databases[0];

    for (size_t i = 0; i < d->n; i++)
        if (d->at[i]->kind == MR_STREAM && d->at[i]->stream.n > t->d->longest)
            t->d->longest = d->at[i]->stream.n;
}

static void step(struct test *t)
{
    if (random_below(&t->random, 100) < RAW_PERCENT)
        send_raw(t);
    else if (random_below(&t->random, 4) == 0)
        move_clock(t);
    else
        send_command(t);
}

static void begin(struct test *t)
{
    static const char entry[] = "AUTH secret\r\n";
    struct mr_reply r;

    t->control.real = real_connect(t->server);
    r = ask_real(t, entry);
    mr_reply_free(&r);
    r = ask_real(t, "DEBUG SET-ACTIVE-EXPIRE 0\r\n");
    if (r.kind != MR_R_STATUS)
        fail_plainly(t, "the real server has no DEBUG");
    mr_reply_free(&r);
    for (size_t i = 0; i < CONNECTIONS; i++)
        open_both(t, &t->at[i], true);
}

int differs_run(struct differs *d)
{
    const struct mr_options options = {
        .seed = d->seed, .clock_us = CLOCK_US, .password = "secret", .lag = 20};
    struct test t = {.d = d, .clock_us = CLOCK_US};

    random_init(&t.random, d->seed);
    t.server = real_start("secret", CLOCK_US, d->why, sizeof(d->why));
    if (!t.server)
        return -1;
    t.model = mr_new(&options, 0);
    begin(&t);
    while (!t.failed && d->sent < d->commands) {
        step(&t);
        if (d->sent % CHECK_EVERY == 0) {
            mr_check(t.model);
            look_at_streams(&t);
        }
    }
    d->expired = mr_counts(t.model).expired;
    d->trimmed = mr_counts(t.model).trimmed;
    for (size_t i = 0; i < CONNECTIONS; i++)
        close_both(&t.at[i]);
    close_both(&t.control);
    mr_words_free(&t.command.words);
    mr_free(t.model);
    real_stop(t.server);
    return t.failed;
}
