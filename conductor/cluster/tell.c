/*
 * Publishes this conductor's events, in batches: events within FLUSH_US are one
 * entry of the stream; a decision is sent at once, unless a batch was sent
 * within that time. After a batch that Redis did not take, nothing is sent
 * until Redis takes the full state, behind a RESET.
 */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/cluster/internal.h"

#define FLUSH_US 1000
#define FLUSH_BYTES (48u << 10)
/* Entries kept in a stream, roughly: a slower reader asks for full states. */
#define STREAM_ENTRIES "2000"
/* Least time between two full states, and between two questions for them. */
#define ALL_US 200000
#define ASK_US 500000
/* Tokens between two PRODUCED events of a decode. */
#define PRODUCED_TOKENS 32
/* Most block keys in a full state: 8 MB, half of what may be on its way to
 * Redis. Others learn of further blocks when they are stored. */
#define ALL_KEYS (1u << 20)

static void complain(struct cluster *c, const char *why)
{
    c->counts.untold++;
    if (!c->complained)
        log_warn(
            "state: redis does not take the events for other conductors: %s; "
            "until it does, conductors do not see each other's requests",
            why);
    c->complained = true;
}

/* A failure counts for all pools: the batch's own pool may be gone by now. */
static void on_added(void *arg, const struct redisReply *reply)
{
    struct cluster *c = arg;
    struct cluster_pool *p;

    if (reply && reply->type != REDIS_REPLY_ERROR) {
        if (c->complained)
            log_info(
                "state: redis takes the events for other conductors again");
        c->complained = false;
        return;
    }
    complain(c, reply ? reply->str : "no answer");
    LIST_FOREACH(p, &c->pools, entry)
    {
        p->all_due = p->ask_due = true; /* the question may have been in it */
    }
}

void tell_flush(struct cluster_pool *p)
{
    struct cluster *c = p->cluster;
    const char *const words[] = {
        "XADD",         p->key, "MAXLEN", "~",
        STREAM_ENTRIES, "*",    "e",      (const char *)p->out.data};
    const size_t lens[] = {
        4, strlen(p->key), 6, 1, sizeof(STREAM_ENTRIES) - 1, 1, 1, p->out.len};

    if (p->out.len == 0)
        return;
    p->flushed_us = loop_now_us(p->cluster->loop);
    if (p->out.failed ||
        redis_command(c->redis, (struct redis_done){on_added, c}, 8, words,
                      lens)) {
        complain(c,
                 *redis_why(c->redis) ? redis_why(c->redis) : "it is too slow");
        p->all_due = p->ask_due = true;
    } else {
        c->counts.told++;
    }
    wire_buf_reset(&p->out);
}

static void put_head(struct cluster_pool *p, int64_t now_us)
{
    struct codec c = codec_writer(&p->out);
    struct cluster_head head = {p->cluster->self.id, p->cluster->self.token,
                                p->number};

    cluster_head_fields(&c, &head);
    p->began_us[p->number % CLUSTER_ECHOES] = now_us;
    p->number++;
}

static void put_event(struct cluster_pool *p, struct cluster_event *e)
{
    struct codec c = codec_writer(&p->out);
    const struct cluster_wire wire = {.names = p->names,
                                      .now_us = loop_now_us(p->cluster->loop)};

    if (p->out.len == 0)
        put_head(p, wire.now_us);
    cluster_event_fields(&c, &wire, e);
    if (p->out.len >= FLUSH_BYTES)
        tell_flush(p);
    else if (!loop_timer_pending(&p->cluster->flush))
        loop_timer_start(&p->cluster->flush, FLUSH_US);
}

static void put_prefill(struct cluster_pool *p, uint32_t instance,
                        uint64_t request)
{
    struct cluster_event e = {.kind = CLUSTER_PREFILL, .request = request};
    size_t *n_keys = &e.prefill.request.n_keys;

    if (pool_read_prefill(p->pool, instance, request,
                          loop_now_us(p->cluster->loop), &e.prefill))
        return;
    if (*n_keys > p->keys_left)
        *n_keys = p->keys_left;
    p->keys_left -= *n_keys;
    put_event(p, &e);
}

void tell_echo(struct cluster_pool *p, uint64_t number, int64_t now_us)
{
    int64_t *began_us = &p->began_us[number % CLUSTER_ECHOES];

    p->echoed = number + 1;
    if (*began_us == 0 || number >= p->number ||
        p->number - number > CLUSTER_ECHOES)
        return;
    p->cluster->counts.echoes++;
    p->cluster->counts.echo_us += (uint64_t)(now_us - *began_us);
    *began_us = 0;
}

/* Writes a request's prefills and its decode, as the pool has them. */
static void put_request(void *to, const struct cluster_request *r)
{
    struct cluster_pool *p = to;
    struct cluster_event e = {.kind = CLUSTER_DECODE, .request = r->id};

    put_prefill(p, r->prefill, r->id);
    for (uint32_t i = 0; r->lent && i < r->lent->n; i++)
        put_prefill(p, r->lent->members[i], r->id);
    if (pool_read_decode(p->pool, r->decode, r->id, &e.decode) == 0)
        put_event(p, &e);
}

static void put_all(struct cluster_pool *p)
{
    struct cluster_event e = {.kind = CLUSTER_RESET};

    tell_flush(p);
    p->all_due = p->asked = false;
    p->keys_left = ALL_KEYS;
    put_event(p, &e);
    p->ops->each(p->arg, put_request, p);
    tell_flush(p);
    p->cluster->counts.told_all++;
}

/* Whether every_us have passed since last_us; else tell_due() comes again. */
static bool turn_of(struct cluster *c, int64_t last_us, int64_t every_us,
                    int64_t now_us)
{
    int64_t wait_us = last_us == 0 ? 0 : last_us + every_us - now_us;

    if (wait_us > 0 && !loop_timer_pending(&c->due))
        loop_timer_start(&c->due, wait_us < ALL_US ? wait_us : ALL_US);
    return wait_us <= 0;
}

/* Asks conductors with a lease whose full state is not known here. A question
 * or its answer may be lost: they are asked until it is known. */
static void put_asks(struct cluster_pool *p, int64_t now_us)
{
    struct cluster *c = p->cluster;
    bool any = false;

    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = &c->members[i];
        struct cluster_event e = {.kind = CLUSTER_ASK, .request = m->id};

        if (m->id == c->self.id || foreign_has_all(p->foreign, m->id, m->token))
            continue;
        put_event(p, &e);
        any = true;
    }
    if (!any)
        return;
    p->ask_us = now_us;
    c->counts.asked++;
    tell_flush(p);
}

static bool can_tell(const struct cluster *c)
{
    return redis_is_up(c->redis) && c->self.token != 0;
}

void tell_beat(struct cluster_pool *p)
{
    if (can_tell(p->cluster) && !p->all_due && p->number == p->beaten) {
        put_head(p, loop_now_us(p->cluster->loop));
        tell_flush(p);
    }
    if (p->echoed < p->beaten_before)
        p->place[0] = '\0';
    p->beaten_before = p->beaten;
    p->beaten = p->number;
}

void tell_due(struct cluster_pool *p, int64_t now_us)
{
    struct cluster *c = p->cluster;

    if (!can_tell(c))
        return;
    if ((p->all_due || p->asked) && turn_of(c, p->all_us, ALL_US, now_us)) {
        p->all_us = now_us;
        put_all(p);
    }
    if (p->ask_due && !p->all_due && turn_of(c, p->ask_us, ASK_US, now_us)) {
        p->ask_due = false;
        put_asks(p, now_us);
    }
}

/* Whether single events are sent now: not before a full state that is due. */
static bool tells(struct cluster_pool *p)
{
    if (!p || p->all_due)
        return false;
    if (redis_is_up(p->cluster->redis))
        return true;
    p->all_due = true;
    return false;
}

static void tell(struct cluster_pool *p, enum cluster_kind kind,
                 uint64_t request, int64_t value, int64_t most)
{
    struct cluster_event e = {
        .kind = kind, .request = request, .value = value, .most = most};

    if (tells(p))
        put_event(p, &e);
}

void cluster_decided(struct cluster_pool *p, const struct cluster_request *r)
{
    if (!tells(p))
        return;
    p->keys_left = ALL_KEYS; /* enough for any one */
    put_request(p, r);
    /* Sent at once: others must not decide the same. */
    if (loop_now_us(p->cluster->loop) - p->flushed_us >= FLUSH_US)
        tell_flush(p);
}

void cluster_asked(struct cluster_pool *p, const struct schedule_asked *asked)
{
    struct cluster_event e = {.kind = CLUSTER_ASKED, .asked = *asked};

    if (tells(p))
        put_event(p, &e);
}

void cluster_started(struct cluster_pool *p, uint64_t request)
{
    tell(p, CLUSTER_STARTED, request, 0, 0);
}

void cluster_prefilled(struct cluster_pool *p, uint64_t request,
                       int64_t observed_us)
{
    tell(p, CLUSTER_PREFILLED, request, observed_us < 0 ? -1 : observed_us, 0);
}

void cluster_decoding(struct cluster_pool *p, uint64_t request)
{
    tell(p, CLUSTER_DECODING, request, 0, 0);
}

void cluster_produced(struct cluster_pool *p, uint64_t request, int64_t tokens)
{
    if (tokens % PRODUCED_TOKENS == 0)
        tell(p, CLUSTER_PRODUCED, request, tokens, 0);
}

void cluster_ended(struct cluster_pool *p, uint64_t request)
{
    tell(p, CLUSTER_ENDED, request, 0, 0);
}

void cluster_learnt(struct cluster_pool *p, uint64_t key, int64_t tokens,
                    int64_t most)
{
    if (tokens > 0 && most > 0)
        tell(p, CLUSTER_LEARNT, key, tokens, most);
}

void cluster_joined(struct cluster_pool *p)
{
    if (!p)
        return;
    foreign_doubt(p->foreign);
    p->ask_due = true;
    tell_due(p, loop_now_us(p->cluster->loop));
}
