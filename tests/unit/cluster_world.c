/* See cluster_world.h. */
#include "tests/unit/cluster_world.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "base/loop/virtual.h"
#include "base/redis/redis.h"
#include "traces/random.h"

#define CONNECTIONS_MAX (2 * WORLD_CONDUCTORS)
#define FLIGHT_MAX 512
#define WORDS_MAX 16
#define ENTRIES_MAX 30 /* of the stream: a reader that lags misses some */
#define MEMBERS_MAX 64
#define BLOCK_US 500000 /* that a read waits */
#define EPOCH_MS INT64_C(1700000000000)

struct command {
    struct redis_done done;
    int n;
    char *words[WORDS_MAX];
    size_t lens[WORDS_MAX];
    redisReply *reply;
    bool executed;
    int64_t sent_us, block_until_us;
};

struct redis {
    bool used, reader, up;
    unsigned who;
    struct redis_options options;
    struct redis_watch watch;
    struct command *flight[FLIGHT_MAX];
    unsigned n;
    int64_t again_us; /* when it tries to connect */
};

struct entry {
    uint64_t ms, seq;
    char *data;
    size_t n;
};

struct member {
    char id[24], text[128]; /* id "": free */
    uint64_t token;
    int64_t until_ms;
};

struct registry {
    struct member members[MEMBERS_MAX];
    uint64_t token;
    char leader[24];
    uint64_t lead_token;
    int64_t lead_until_ms;
};

struct server {
    struct entry entries[ENTRIES_MAX + 1];
    unsigned n;
    uint64_t last_ms, last_seq;
    struct registry registry, older; /* what a replica may have */
    int64_t clock_us;                /* its clock is so far ahead */
    int64_t back_us;                 /* away until then */
    int64_t refuses_until_us;
};

static struct {
    struct random_state random;
    struct virtual_time *time;
    struct loop *loops[WORLD_CONDUCTORS];
    unsigned who;
    int64_t paused_until_us[WORLD_CONDUCTORS];
    struct redis connections[CONNECTIONS_MAX];
    struct server server;
    uint64_t digest; /* of the commands so far */
} world;

unsigned world_pick(unsigned n)
{
    return random_below(&world.random, n);
}

uint64_t world_digest(void)
{
    return world.digest;
}

int64_t world_now_us(void)
{
    return virtual_time_us(world.time);
}

struct loop *world_loop(unsigned who)
{
    return world.loops[who];
}

void world_as(unsigned who)
{
    world.who = who;
}

void world_pause(unsigned who, int64_t until_us)
{
    world.paused_until_us[who] = until_us;
    virtual_loop_pause(world.loops[who], until_us);
}

bool world_is_paused(unsigned who)
{
    return world.paused_until_us[who] > world_now_us();
}

/* --- in place of base/redis ----------------------------------------------- */

struct redis *redis_new(struct loop *, struct dns *, const struct redis_url *,
                        const struct redis_options *options,
                        struct redis_watch watch)
{
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        struct redis *r = &world.connections[i];

        if (r->used)
            continue;
        *r = (struct redis){.used = true,
                            .reader = strstr(options->what, "reading"),
                            .who = world.who,
                            .options = *options,
                            .watch = watch,
                            .again_us = world_now_us() + 1 + world_pick(50000)};
        return r;
    }
    abort();
}

bool redis_is_up(const struct redis *r)
{
    return r->up;
}

const char *redis_why(const struct redis *r)
{
    return r->up ? "" : "away";
}

struct redis_counts redis_counts(const struct redis *)
{
    return (struct redis_counts){0};
}

int redis_local_host(const struct redis *r, char *host, size_t bytes)
{
    snprintf(host, bytes, "10.0.0.%u", r->who + 1);
    return 0;
}

int redis_command(struct redis *r, struct redis_done done, int argc,
                  const char *const argv[], const size_t lens[])
{
    struct command *c;

    if (!r->up || r->n == FLIGHT_MAX || argc > WORDS_MAX)
        return r->up ? -ENOBUFS : -ENOTCONN;
    c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    c->done = done;
    c->n = argc;
    c->sent_us = world_now_us();
    for (int i = 0; i < argc; i++) {
        c->lens[i] = lens ? lens[i] : strlen(argv[i]);
        c->words[i] = calloc(1, c->lens[i] + 1);
        if (!c->words[i])
            abort();
        memcpy(c->words[i], argv[i], c->lens[i]);
        for (size_t k = 0; k < c->lens[i]; k++)
            world.digest = random_mix(world.digest ^ (uint8_t)argv[i][k]);
    }
    world.digest = random_mix(world.digest ^ (uint64_t)c->sent_us);
    r->flight[r->n++] = c;
    return 0;
}

static void reply_free(redisReply *r)
{
    for (size_t i = 0; r && i < r->elements; i++)
        reply_free(r->element[i]);
    if (r) {
        free(r->element);
        free(r->str);
    }
    free(r);
}

static void command_end(struct command *c, const redisReply *reply)
{
    if (c->done.fn)
        c->done.fn(c->done.arg, reply);
    for (int i = 0; i < c->n; i++)
        free(c->words[i]);
    reply_free(c->reply);
    free(c);
}

/* Its commands have no answer. */
static void lose(struct redis *r, bool told)
{
    struct command *flight[FLIGHT_MAX];
    unsigned n = r->n;
    bool was_up = r->up;

    memcpy(flight, r->flight, n * sizeof(*flight));
    r->n = 0;
    r->up = false;
    r->again_us = world_now_us() + 50000 + world_pick(100000);
    for (unsigned i = 0; i < n; i++)
        command_end(flight[i], NULL);
    if (was_up && told && r->watch.fn)
        r->watch.fn(r->watch.arg, false);
}

void redis_free(struct redis *r)
{
    if (!r)
        return;
    for (unsigned i = 0; i < r->n; i++)
        r->flight[i]->done.fn = NULL;
    lose(r, false);
    r->used = false;
}

/* --- answers -------------------------------------------------------------- */

static redisReply *reply_of(int type)
{
    redisReply *r = calloc(1, sizeof(*r));

    if (!r)
        abort();
    r->type = type;
    return r;
}

static redisReply *bytes_of(int type, const char *bytes, size_t n)
{
    redisReply *r = reply_of(type);

    r->str = calloc(1, n + 1);
    if (!r->str)
        abort();
    memcpy(r->str, bytes, n);
    r->len = n;
    return r;
}

static redisReply *text_of(const char *text)
{
    return bytes_of(REDIS_REPLY_STRING, text, strlen(text));
}

static redisReply *token_of(uint64_t token)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, token);
    return text_of(text);
}

static redisReply *number_of(int64_t n)
{
    redisReply *r = reply_of(REDIS_REPLY_INTEGER);

    r->integer = n;
    return r;
}

static void append(redisReply *array, redisReply *element)
{
    size_t bytes = (array->elements + 1) * sizeof(redisReply *);

    array->element = realloc(array->element, bytes);
    if (!array->element)
        abort();
    array->element[array->elements++] = element;
}

/* --- the server ----------------------------------------------------------- */

static int64_t server_ms(void)
{
    return (world_now_us() + world.server.clock_us) / 1000 + EPOCH_MS;
}

static void drop_entries(unsigned from, unsigned n)
{
    struct server *s = &world.server;

    for (unsigned i = from; i < from + n; i++)
        free(s->entries[i].data);
    memmove(&s->entries[from], &s->entries[from + n],
            (s->n - from - n) * sizeof(*s->entries));
    s->n -= n;
}

static redisReply *entry_id(const struct entry *e)
{
    char text[48];

    snprintf(text, sizeof(text), "%" PRIu64 "-%" PRIu64, e->ms, e->seq);
    return text_of(text);
}

static redisReply *entry_reply(const struct entry *e)
{
    redisReply *r = reply_of(REDIS_REPLY_ARRAY),
               *fields = reply_of(REDIS_REPLY_ARRAY);

    append(fields, text_of("e"));
    append(fields, bytes_of(REDIS_REPLY_STRING, e->data, e->n));
    append(r, entry_id(e));
    append(r, fields);
    return r;
}

static redisReply *add(const struct command *c)
{
    struct server *s = &world.server;
    struct entry *e = &s->entries[s->n++];
    uint64_t ms = (uint64_t)server_ms();

    *e = (struct entry){.ms = ms, .n = c->lens[7]};
    if (ms <= s->last_ms) {
        e->ms = s->last_ms;
        e->seq = s->last_seq + 1;
    }
    s->last_ms = e->ms;
    s->last_seq = e->seq;
    e->data = calloc(1, e->n + 1);
    if (!e->data)
        abort();
    memcpy(e->data, c->words[7], e->n);
    redisReply *r = entry_id(e);
    if (s->n > ENTRIES_MAX)
        drop_entries(0, s->n - ENTRIES_MAX);
    return r;
}

static redisReply *last_of(void)
{
    const struct server *s = &world.server;
    redisReply *r = reply_of(REDIS_REPLY_ARRAY);

    if (s->n > 0)
        append(r, entry_reply(&s->entries[s->n - 1]));
    return r;
}

/* What is behind the place; NULL: it waits. */
static redisReply *read_on(struct command *c)
{
    const struct server *s = &world.server;
    uint64_t ms = 0, seq = 0;
    unsigned from = 0;
    redisReply *r, *stream, *entries;

    sscanf(c->words[c->n - 1], "%" SCNu64 "-%" SCNu64, &ms, &seq);
    while (from < s->n &&
           (s->entries[from].ms < ms ||
            (s->entries[from].ms == ms && s->entries[from].seq <= seq)))
        from++;
    if (c->block_until_us == 0)
        c->block_until_us = world_now_us() + BLOCK_US;
    if (from == s->n)
        return world_now_us() < c->block_until_us ? NULL
                                                  : reply_of(REDIS_REPLY_NIL);
    r = reply_of(REDIS_REPLY_ARRAY);
    stream = reply_of(REDIS_REPLY_ARRAY);
    entries = reply_of(REDIS_REPLY_ARRAY);
    for (; from < s->n; from++)
        append(entries, entry_reply(&s->entries[from]));
    append(stream, text_of(c->words[c->n - 2]));
    append(stream, entries);
    append(r, stream);
    return r;
}

static uint64_t largest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t fence(struct registry *g, uint64_t heard)
{
    g->token = largest(largest(g->token, heard) + 1, (uint64_t)server_ms());
    return g->token;
}

/* The member of that id, or a free place; those that are over go. */
static struct member *find_member(struct registry *g, const char *id)
{
    struct member *free_one = NULL, *found = NULL;

    for (unsigned i = 0; i < MEMBERS_MAX; i++) {
        struct member *m = &g->members[i];

        if (m->until_ms <= server_ms())
            *m = (struct member){0};
        if (strcmp(m->id, id) == 0)
            found = m;
        else if (!*m->id)
            free_one = m;
    }
    return found ? found : free_one;
}

static redisReply *members_of(struct registry *g, redisReply *r,
                              int64_t lease_ms)
{
    for (unsigned i = 0; i < MEMBERS_MAX; i++) {
        struct member *m = &g->members[i];
        char text[160];

        if (!*m->id)
            continue;
        if (m->until_ms - server_ms() > 60000)
            m->until_ms = server_ms() + lease_ms;
        snprintf(text, sizeof(text), "%" PRIu64 " %s", m->token, m->text);
        append(r, text_of(m->id));
        append(r, text_of(text));
        append(r, number_of(m->until_ms - server_ms()));
    }
    return r;
}

/* As the script in conductor/cluster/registry.c. */
static redisReply *renew(const struct command *c)
{
    struct registry *g = &world.server.registry;
    char *const *argv = &c->words[3 + atoi(c->words[2])];
    int64_t lease_ms = atoll(argv[2]);
    uint64_t own = strtoull(argv[3], NULL, 10);
    uint64_t led = strtoull(argv[4], NULL, 10);
    struct member *m = find_member(g, argv[0]);
    bool had = *m->id && m->token >= own;
    redisReply *r = reply_of(REDIS_REPLY_ARRAY);

    if (!had)
        m->token = fence(g, largest(own, led));
    snprintf(m->id, sizeof(m->id), "%s", argv[0]);
    snprintf(m->text, sizeof(m->text), "%s", argv[1]);
    m->until_ms = server_ms() + lease_ms;
    if (g->lead_until_ms - server_ms() > 60000)
        g->lead_until_ms = server_ms() + lease_ms;
    if (!*g->leader || g->lead_until_ms <= server_ms()) {
        snprintf(g->leader, sizeof(g->leader), "%s", argv[0]);
        g->lead_token = 0;
    }
    if (g->lead_token == 0 || g->lead_token < led)
        g->lead_token = fence(g, largest(own, led));
    bool leads = strcmp(g->leader, argv[0]) == 0;
    if (leads)
        g->lead_until_ms = server_ms() + lease_ms;
    append(r, token_of(m->token));
    append(r, number_of(!had));
    append(r, token_of(g->lead_token));
    append(r, number_of(leads));
    return members_of(g, r, lease_ms);
}

static redisReply *refuse_write(void)
{
    static const char why[] = "OOM command not allowed";

    return bytes_of(REDIS_REPLY_ERROR, why, sizeof(why) - 1);
}

static void execute(struct command *c)
{
    const char *word = c->words[0];
    bool full = world_now_us() < world.server.refuses_until_us;

    if (strcmp(word, "XADD") == 0)
        c->reply = full ? refuse_write() : add(c);
    else if (strcmp(word, "EVAL") == 0)
        c->reply = full && world_pick(2) ? refuse_write() : renew(c);
    else if (strcmp(word, "XREVRANGE") == 0)
        c->reply = last_of();
    else if (strcmp(word, "XREAD") == 0)
        c->reply = read_on(c);
    else /* limits, which nobody has here */
        c->reply = reply_of(REDIS_REPLY_NIL);
    c->executed = c->reply;
}

/* Up to so many of its commands, in their order, up to one that waits. */
static void execute_some(struct redis *r, unsigned most)
{
    for (unsigned i = 0; i < r->n && most > 0; i++) {
        if (r->flight[i]->executed)
            continue;
        execute(r->flight[i]);
        if (!r->flight[i]->executed)
            return;
        most--;
    }
}

static void answer_some(struct redis *r, unsigned most)
{
    while (r->n > 0 && r->flight[0]->executed && most-- > 0) {
        struct command *c = r->flight[0];

        memmove(r->flight, r->flight + 1, --r->n * sizeof(*r->flight));
        command_end(c, c->reply);
    }
}

static void run_connection(struct redis *r, bool rough)
{
    bool there = world_now_us() >= world.server.back_us;

    world.who = r->who;
    if (world_is_paused(r->who)) {
        if (there && r->up)
            execute_some(r, FLIGHT_MAX);
        return;
    }
    if (!r->up) {
        if (!there || world_now_us() < r->again_us)
            return;
        r->up = true;
        if (r->watch.fn)
            r->watch.fn(r->watch.arg, true);
        return;
    }
    if (!there) {
        lose(r, true);
        return;
    }
    execute_some(r, rough ? 1 + world_pick(8) : FLIGHT_MAX);
    answer_some(r, rough ? world_pick(6) : FLIGHT_MAX);
    if (r->n > 0 &&
        world_now_us() - r->flight[0]->sent_us > r->options.timeout_us)
        lose(r, true);
}

void world_run(int64_t us, bool rough)
{
    unsigned first = rough ? world_pick(CONNECTIONS_MAX) : 0;
    int64_t until_us = world_now_us() + us;

    while (virtual_time_step(world.time, until_us))
        ;
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        struct redis *r = &world.connections[(first + i) % CONNECTIONS_MAX];

        if (r->used && !(rough && world_pick(3) == 0))
            run_connection(r, rough);
    }
    if (world_pick(100) == 0)
        world.server.older = world.server.registry;
}

void world_lose(unsigned who, bool reader)
{
    world.who = who;
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        struct redis *r = &world.connections[i];

        if (r->used && r->up && r->who == who && r->reader == reader)
            lose(r, true);
    }
}

/* --- faults of Redis ------------------------------------------------------ */

static void drop_stream(void)
{
    drop_entries(0, world.server.n);
    world.server.last_ms = world.server.last_seq = 0;
}

void world_flush_redis(void)
{
    drop_stream();
    world.server.registry = (struct registry){0};
}

void world_replace_redis(int64_t back_us, int64_t clock_us)
{
    world_flush_redis();
    world.server.older = (struct registry){0};
    world.server.back_us = back_us;
    world.server.clock_us = clock_us;
}

void world_fail_over(int64_t back_us, int64_t clock_us)
{
    struct server *s = &world.server;
    unsigned lost = world_pick(s->n < 10 ? s->n + 1 : 10);

    drop_entries(s->n - lost, lost);
    s->last_ms = s->n ? s->entries[s->n - 1].ms : 0;
    s->last_seq = s->n ? s->entries[s->n - 1].seq : 0;
    if (world_pick(3) == 0)
        s->registry = s->older;
    s->back_us = back_us;
    s->clock_us = clock_us;
}

void world_evict(void)
{
    struct registry *g = &world.server.registry;

    switch (world_pick(4)) {
    case 0:
        drop_stream();
        break;
    case 1:
        memset(g->members, 0, sizeof(g->members));
        break;
    case 2:
        g->token = 0;
        break;
    default:
        g->leader[0] = '\0';
    }
}

void world_refuse(int64_t until_us)
{
    world.server.refuses_until_us = until_us;
}

void world_calm(void)
{
    world.server.back_us = world.server.refuses_until_us = 0;
    for (unsigned i = 0; i < WORLD_CONDUCTORS; i++)
        world_pause(i, 0);
}

static uint32_t tie(void *)
{
    return (uint32_t)random_u64(&world.random);
}

void world_begin(uint64_t seed)
{
    drop_stream();
    for (unsigned i = 0; i < WORLD_CONDUCTORS; i++)
        loop_free(world.loops[i]);
    virtual_time_free(world.time);
    memset(&world, 0, sizeof(world));
    random_init(&world.random, seed);
    world.time = virtual_time_new(1000000, tie, NULL);
    for (unsigned i = 0; world.time && i < WORLD_CONDUCTORS; i++)
        if (!(world.loops[i] = virtual_loop_new(world.time)))
            abort();
}
