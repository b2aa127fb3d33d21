/* The server: connections and time, faults, and the replica that lags. */
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

#define BYTES_MAX (64u << 20)

/* --- writes that the replica lacks ---------------------------------------- */

static void replay(struct mr *m, struct mr_data *data,
                   const struct mr_written *w)
{
    struct mr_buf out = {0};
    struct mr_call call = {.m = m,
                           .data = data,
                           .database = w->database,
                           .clock_us = w->clock_us,
                           .argv = w->words.at,
                           .argc = w->words.n,
                           .out = &out,
                           .replay = true};

    mr_execute(&call);
    mr_call_end(&call);
    free(out.data);
}

static struct mr_written *written_at(const struct mr *m, unsigned i)
{
    return &m->written[(m->first_written + i) % m->options.lag];
}

static void forget_oldest(struct mr *m)
{
    mr_words_free(&written_at(m, 0)->words);
    m->first_written = (m->first_written + 1) % m->options.lag;
    m->n_written--;
}

void mr_write(struct mr *m, unsigned database, const struct mr_bytes *argv,
              size_t argc, int64_t clock_us)
{
    struct mr_written *w;

    if (m->options.lag == 0)
        return;
    if (m->n_written == m->options.lag) {
        replay(m, &m->replica, written_at(m, 0));
        forget_oldest(m);
    }
    w = written_at(m, m->n_written++);
    *w = (struct mr_written){.database = database, .clock_us = clock_us};
    w->words.at = mr_alloc(argc * sizeof(*w->words.at));
    w->words.n = argc;
    for (size_t i = 0; i < argc; i++)
        w->words.at[i] = mr_bytes_copy(argv[i]);
}

void mr_write_del(struct mr *m, unsigned database, const struct mr_key *k,
                  int64_t clock_us)
{
    mr_write(m, database, (const struct mr_bytes[]){MR_LIT("DEL"), k->name}, 2,
             clock_us);
}

static void forget_written(struct mr *m)
{
    while (m->n_written > 0)
        forget_oldest(m);
}

/* --- commands ------------------------------------------------------------- */

static bool is_stranger(const struct mr_conn *c)
{
    return !c->known;
}

static void end(struct mr_conn *c)
{
    c->over = true;
    mr_unblock(c, false);
    c->in.n = 0;
    c->ready(c->arg);
}

static void end_silently(struct mr_conn *c)
{
    if (c->over)
        return;
    c->out.n = 0;
    end(c);
}

/* A script is written by its text: the replica has other scripts. */
static void write_call(const struct mr_call *call)
{
    struct mr_bytes *argv = mr_alloc(call->argc * sizeof(*argv));

    memcpy(argv, call->argv, call->argc * sizeof(*argv));
    if (mr_is(argv[0], "evalsha")) {
        argv[0] = MR_LIT("EVAL");
        argv[1] = mr_script_find(call->m, call->argv[1])->text;
    }
    mr_write(call->m, call->database, argv, call->argc, call->clock_us);
    free(argv);
}

static void run_command(struct mr_conn *c)
{
    struct mr *m = c->m;
    struct mr_words words = c->request.words;
    struct mr_call call = {.m = m,
                           .c = c,
                           .data = &m->data,
                           .database = c->database,
                           .clock_us = m->now_us + m->clock_us,
                           .argv = words.at,
                           .argc = words.n,
                           .out = &c->out};

    c->request.words = (struct mr_words){0};
    mr_execute(&call);
    if (call.changed)
        write_call(&call);
    mr_serve_waits(m, &call);
    mr_call_end(&call);
    mr_words_free(&words);
    if (m->slow_us > 0)
        m->free_us = m->now_us + m->slow_us;
}

static size_t max_of(size_t option)
{
    return option ? option : BYTES_MAX;
}

/* Executes one command that is complete. Returns false if there is none, or not
 * yet. */
static bool run_one(struct mr_conn *c)
{
    size_t used = 0;
    enum mr_next next;

    if (c->over || c->n_waits > 0 || c->m->now_us < c->m->free_us ||
        c->in.n == 0)
        return false;
    next = mr_request_next(&c->request, &c->in, &used, is_stranger(c), &c->out);
    mr_drop(&c->in, used);
    if (next == MR_COMMAND)
        run_command(c);
    if (next == MR_BAD)
        end(c);
    else if (c->out.n > max_of(c->m->options.max_output))
        end_silently(c);
    return next == MR_COMMAND || next == MR_NOTHING;
}

/* Executes what can be executed, in the order of connections. */
static void run_all(struct mr *m)
{
    bool goes_on = true;
    struct mr_conn *c;

    while (goes_on) {
        goes_on = false;
        TAILQ_FOREACH(c, &m->conns, entry)
        {
            bool ran = false;

            while (run_one(c))
                ran = true;
            if (ran && c->out.n > 0)
                c->ready(c->arg);
            goes_on = goes_on || ran;
        }
    }
}

/* --- connections ---------------------------------------------------------- */

struct mr_conn *mr_open(struct mr *m, void (*ready)(void *arg), void *arg)
{
    struct mr_conn *c = mr_alloc(sizeof(*c));

    c->m = m;
    c->ready = ready;
    c->arg = arg;
    c->known = !m->password;
    c->request.bulk = -1;
    TAILQ_INSERT_TAIL(&m->conns, c, entry);
    return c;
}

void mr_close(struct mr_conn *c)
{
    if (!c)
        return;
    mr_unblock(c, false);
    TAILQ_REMOVE(&c->m->conns, c, entry);
    mr_words_free(&c->request.words);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

void mr_feed(struct mr_conn *c, const char *bytes, size_t n)
{
    if (c->over)
        return;
    mr_put(&c->in, bytes, n);
    run_all(c->m);
    if (c->in.n > max_of(c->m->options.max_input))
        end_silently(c);
}

const char *mr_output(const struct mr_conn *c, size_t *n)
{
    *n = c->out.n;
    return c->out.data;
}

void mr_sent(struct mr_conn *c, size_t n)
{
    mr_drop(&c->out, n);
}

bool mr_is_over(const struct mr_conn *c)
{
    return c->over;
}

bool mr_is_blocked(const struct mr_conn *c)
{
    return c->n_waits > 0;
}

/* --- life and time -------------------------------------------------------- */

struct mr *mr_new(const struct mr_options *options, int64_t now_us)
{
    struct mr *m = mr_alloc(sizeof(*m));

    m->options = *options;
    m->password = options->password ? strdup(options->password) : NULL;
    m->options.password = NULL;
    m->now_us = now_us;
    m->clock_us = options->clock_us;
    m->policy = mr_policy_find("noeviction");
    random_init(&m->random, options->seed);
    m->written = mr_alloc(options->lag * sizeof(*m->written));
    SLIST_INIT(&m->scripts);
    TAILQ_INIT(&m->conns);
    TAILQ_INIT(&m->blocked);
    if (options->password && !m->password)
        abort();
    return m;
}

void mr_free(struct mr *m)
{
    if (!m)
        return;
    forget_written(m);
    free(m->written);
    mr_data_clear(&m->data);
    mr_data_clear(&m->replica);
    mr_scripts_forget(m);
    free(m->password);
    free(m);
}

static int64_t clock_ms(const struct mr *m)
{
    return (m->now_us + m->clock_us) / 1000;
}

/* Redis ends a read when its time has passed, not when it has come. */
static void end_waits(struct mr *m)
{
    struct mr_conn *c, *next;

    for (c = TAILQ_FIRST(&m->blocked); c; c = next) {
        next = TAILQ_NEXT(c, blocked);
        if (c->until_ms > 0 && c->until_ms < clock_ms(m)) {
            mr_unblock(c, true);
            c->ready(c->arg);
        }
    }
}

void mr_tick(struct mr *m, int64_t now_us)
{
    if (now_us > m->now_us)
        m->now_us = now_us;
    if (m->now_us < m->free_us)
        return;
    end_waits(m);
    run_all(m);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t mr_due_us(const struct mr *m)
{
    int64_t due_us = MR_NEVER;
    const struct mr_conn *c;

    TAILQ_FOREACH(c, &m->blocked, blocked)
    {
        if (c->until_ms > 0)
            due_us = earlier(due_us, (c->until_ms + 1) * 1000 - m->clock_us);
    }
    TAILQ_FOREACH(c, &m->conns, entry)
    {
        if (c->in.n > 0 && c->n_waits == 0 && m->free_us > m->now_us)
            due_us = earlier(due_us, m->free_us);
    }
    return due_us == MR_NEVER || due_us > m->free_us ? due_us : m->free_us;
}

/* --- faults --------------------------------------------------------------- */

void mr_jump(struct mr *m, int64_t by_us)
{
    m->clock_us += by_us;
    mr_tick(m, m->now_us);
}

void mr_flush(struct mr *m)
{
    mr_data_clear(&m->data);
    mr_write(m, 0, &MR_LIT("FLUSHALL"), 1, m->now_us + m->clock_us);
}

static void end_all(struct mr *m)
{
    struct mr_conn *c;

    TAILQ_FOREACH(c, &m->conns, entry)
    {
        end_silently(c);
    }
    mr_scripts_forget(m);
}

void mr_restart(struct mr *m)
{
    forget_written(m);
    mr_data_clear(&m->data);
    mr_data_clear(&m->replica);
    end_all(m);
}

unsigned mr_fail_over(struct mr *m, unsigned lost)
{
    lost = lost < m->n_written ? lost : m->n_written;
    if (m->options.lag > 0) {
        while (m->n_written > lost) {
            replay(m, &m->replica, written_at(m, 0));
            forget_oldest(m);
        }
        forget_written(m);
        mr_data_copy(&m->data, &m->replica);
    }
    end_all(m);
    return lost;
}

void mr_set_slow(struct mr *m, int64_t us)
{
    m->slow_us = us;
}

void mr_stall(struct mr *m, int64_t until_us)
{
    m->free_us = until_us;
}

void mr_set_role(struct mr *m, enum mr_role role)
{
    m->role = role;
}

/* --- views ---------------------------------------------------------------- */

struct mr_counts mr_counts(const struct mr *m)
{
    return m->counts;
}

static void check_data(const struct mr_data *d)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < MR_DATABASES; i++) {
        for (size_t k = 0; k < d->databases[i].n; k++) {
            const struct mr_key *key = d->databases[i].at[k];

            if (k > 0 &&
                mr_bytes_order(d->databases[i].at[k - 1]->name, key->name) >= 0)
                abort();
            if (key->kind == MR_STREAM)
                mr_stream_check(&key->stream);
            if (((key->kind == MR_HASH || key->kind == MR_SET) &&
                 key->hash.n == 0) ||
                (key->kind == MR_ZSET && key->zset.n == 0))
                abort();
            bytes += key->bytes;
        }
    }
    if (bytes != d->bytes)
        abort();
}

void mr_check(struct mr *m)
{
    struct mr_data later = {0};

    check_data(&m->data);
    check_data(&m->replica);
    if (m->options.lag == 0)
        return;
    mr_data_copy(&later, &m->replica);
    for (unsigned i = 0; i < m->n_written; i++)
        replay(m, &later, written_at(m, i));
    if (!mr_data_equal(&later, &m->data))
        abort();
    mr_data_clear(&later);
}
