/*
 * Three conductors over a Redis, and a search for an order of events after
 * which one of them never knows what the others have in work: requests come and
 * end, conductors stand still and are killed, connections are lost, workers
 * join and leave, Redis is full, is flushed, dies and comes back empty, forgets
 * one key, or is replaced by a replica that lacks what came last, and its clock
 * jumps. Then QUIET_US pass without a fault, and all must be whole again:
 *
 *   each booking of each conductor is in the pool of every other one, on the
 *   instance of the same name and as far on, unless that has no such instance;
 *   no pool has anything else;
 *   one leads, and no other one has told workers a higher token.
 *
 * Prints the seed of an order that fails. Environment: CONDUCTOR_SEED, of the
 * first order; CONDUCTOR_CASES, percent of ORDERS, which may be above 100.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "conductor/cluster/cluster.h"
#include "conductor/core/observation/lengths.h"
#include "conductor/core/pool/pool.h"
#include "conductor/core/pool/record.h"
#include "tests/unit/cases.h"
#include "tests/unit/cluster_world.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/pool_check.h"
#include "tests/unit/suite.h"

enum {
    ORDERS = 100,
    QUIET_US = 18000000, /* a lease, given by a clock that was 2 * SKEW_US
                            ahead, and two more */
    SKEW_US = 5000000,
    PREFILLS = 3, /* instances; as many decode */
    INSTANCES = 2 * PREFILLS,
    REQUESTS_MAX = 16, /* of one conductor at once */
    COMPLAINTS_MAX = 5,
};

enum phase { WAITS, COMPUTES, DECODES };

struct request {
    uint64_t id;
    unsigned prefill, decode; /* places in `names` */
    enum phase phase;
};

struct conductor {
    unsigned number;
    struct cluster *cluster;
    struct cluster_pool *joined;
    struct pool *pool;
    struct lengths lengths;
    uint32_t instances[INSTANCES]; /* pool ids; 0: it is not there */
    struct request requests[REQUESTS_MAX];
    unsigned n;
};

static const char *const names[INSTANCES] = {"p0", "p1", "p2",
                                             "d0", "d1", "d2"};
static struct conductor conductors[WORLD_CONDUCTORS];
static uint64_t next_id;

/* --- a conductor ---------------------------------------------------------- */

static void on_freed(void *)
{
}

static void
each(void *arg, void (*visit)(void *, const struct cluster_request *), void *to)
{
    const struct conductor *c = arg;

    for (unsigned i = 0; i < c->n; i++) {
        const struct request *r = &c->requests[i];

        visit(to, &(struct cluster_request){.id = r->id,
                                            .prefill = c->instances[r->prefill],
                                            .decode = c->instances[r->decode]});
    }
}

static struct joint_key *no_limit(void *, size_t)
{
    return NULL;
}

static const struct cluster_ops ops = {.limit = no_limit};
static const struct cluster_pool_ops pool_ops = {on_freed, each};

static void join(struct conductor *c, unsigned i)
{
    c->instances[i] = READY(c->pool, .name = names[i],
                            .role = i < PREFILLS ? ROLE_PREFILL : ROLE_DECODE,
                            .kv_capacity_tokens = 1000000, .block_tokens = 16,
                            .link_bytes_per_s = 1e9);
    cluster_joined(c->joined);
}

static void begin(struct conductor *c, unsigned number)
{
    struct pool_config config = pool_config_default;

    world_as(number);
    *c = (struct conductor){.number = number};
    config.max_instances = INSTANCES;
    config.max_pending_blocks = 4096;
    config.max_bookings = 1024;
    config.grows = true;
    c->pool = pool_new(&config);
    c->cluster =
        cluster_new(world_loop(number), NULL,
                    &(struct cluster_options){.lease_us = WORLD_LEASE_US,
                                              .model = "m",
                                              .workers_at = {.port = 8081}},
                    &ops, c);
    CU_ASSERT_TRUE_FATAL(c->pool && c->cluster);
    c->joined =
        cluster_join(c->cluster, "m", c->pool, &c->lengths, &pool_ops, c);
    CU_ASSERT_PTR_NOT_NULL_FATAL(c->joined);
    for (unsigned i = 0; i < INSTANCES; i++)
        if (world_pick(4) > 0)
            join(c, i);
}

static void end(struct conductor *c)
{
    CU_ASSERT_TRUE(pool_check(c->pool));
    cluster_leave(c->joined);
    cluster_free(c->cluster);
    pool_free(c->pool);
}

/* --- its requests --------------------------------------------------------- */

static void decide(struct conductor *c)
{
    struct request r = {.id = next_id++,
                        .prefill = world_pick(PREFILLS),
                        .decode = PREFILLS + world_pick(PREFILLS)};
    uint32_t prefill = c->instances[r.prefill];
    uint32_t decode = c->instances[r.decode];
    const uint64_t keys[] = {r.id * 3, r.id * 3 + 1};
    int64_t now_us = world_now_us();

    if (c->n == REQUESTS_MAX || prefill == 0 || decode == 0)
        return;
    ACCEPTS(c->pool, prefill, .request_id = r.id, .predicted_us = 500,
            .ready_at_us = now_us + 500, .arrived_us = now_us,
            .deadline_us = now_us + 90000, .uncached_tokens = 32,
            .work = {32, 500, 1, 2, 3}, .keys = keys, .n_keys = 2);
    CU_ASSERT_EQUAL_FATAL(
        pool_decode_expect(c->pool, decode,
                           &(struct pool_decode_request){
                               r.id, 64, 50, 20, now_us + 800, prefill, 500}),
        0);
    c->requests[c->n++] = r;
    cluster_decided(c->joined, &(struct cluster_request){.id = r.id,
                                                         .prefill = prefill,
                                                         .decode = decode});
}

static void request_end(struct conductor *c, unsigned at)
{
    struct request *r = &c->requests[at];

    if (r->phase != DECODES)
        (void)pool_prefill_cancel(c->pool, c->instances[r->prefill], r->id,
                                  world_now_us());
    (void)pool_decode_done(c->pool, c->instances[r->decode], r->id);
    cluster_ended(c->joined, r->id);
    *r = c->requests[--c->n];
}

static void go_on(struct conductor *c, unsigned at)
{
    struct request *r = &c->requests[at];
    uint32_t prefill = c->instances[r->prefill];
    int64_t now_us = world_now_us();

    switch (r->phase) {
    case WAITS:
        (void)pool_prefill_started(c->pool, prefill, r->id, now_us);
        cluster_started(c->joined, r->id);
        r->phase = COMPUTES;
        break;
    case COMPUTES:
        (void)pool_prefill_done(c->pool, prefill, r->id, 400, now_us);
        cluster_prefilled(c->joined, r->id, 400);
        (void)pool_decode_started(c->pool, c->instances[r->decode], r->id);
        cluster_decoding(c->joined, r->id);
        r->phase = DECODES;
        break;
    default:
        request_end(c, at);
    }
}

static void work(struct conductor *c)
{
    world_as(c->number);
    for (unsigned n = world_pick(4); n > 0; n--)
        if (world_pick(5) <= 1)
            decide(c);
        else if (c->n > 0)
            go_on(c, world_pick(c->n));
}

/* A worker connects to this conductor, or leaves it. */
static void turn_worker(struct conductor *c)
{
    unsigned at = world_pick(INSTANCES);

    world_as(c->number);
    if (c->instances[at] == 0) {
        join(c, at);
        return;
    }
    for (unsigned i = c->n; i-- > 0;)
        if (c->requests[i].prefill == at || c->requests[i].decode == at)
            request_end(c, i);
    CU_ASSERT_EQUAL(pool_remove(c->pool, c->instances[at], world_now_us()), 0);
    c->instances[at] = 0;
}

/* --- faults --------------------------------------------------------------- */

static int64_t from_now_us(unsigned most_us)
{
    return world_now_us() + world_pick(most_us);
}

/* Most clocks are right, some nearly, few not at all. */
static int64_t skew_us(void)
{
    switch (world_pick(8)) {
    case 0:
    case 1:
        return (int64_t)world_pick(2 * SKEW_US) - SKEW_US;
    case 2:
        return (world_pick(2) ? 1 : -1) * INT64_C(3600000000);
    default:
        return 0;
    }
}

/* Returns whether something went wrong, for a conductor or for Redis. */
static bool make_trouble(struct conductor *c)
{
    switch (world_pick(120)) {
    case 0:
        world_pause(c->number, from_now_us(2500000));
        return true;
    case 1:
        end(c);
        begin(c, c->number);
        return true;
    case 2:
        if (world_pick(3) == 0)
            world_replace_redis(from_now_us(4000000), skew_us());
        return true;
    case 3:
        if (world_pick(3) == 0)
            world_fail_over(from_now_us(800000), skew_us());
        return true;
    case 4:
    case 5:
        if (!world_is_paused(c->number))
            world_lose(c->number, world_pick(2));
        return true;
    case 6:
    case 7:
        if (!world_is_paused(c->number))
            turn_worker(c);
        return true;
    case 8:
        world_refuse(from_now_us(300000));
        return true;
    case 9:
        world_flush_redis();
        return true;
    case 10:
        world_evict();
        return true;
    case 11: /* beyond its lease */
        if (world_pick(3) == 0)
            world_pause(c->number, from_now_us(6000000));
        return true;
    default:
        return false;
    }
}

static void make_order(uint64_t seed)
{
    world_begin(seed);
    next_id = 1;
    for (unsigned i = 0; i < WORLD_CONDUCTORS; i++)
        begin(&conductors[i], i);
    for (unsigned steps = 600 + world_pick(1500); steps > 0; steps--) {
        struct conductor *c = &conductors[world_pick(WORLD_CONDUCTORS)];

        if (!make_trouble(c) && !world_is_paused(c->number))
            work(c);
        world_run(world_pick(20) ? world_pick(4000) : world_pick(300000), true);
    }
    world_calm();
    for (unsigned us = 0; us < QUIET_US; us += 5000)
        world_run(5000, false);
}

/* --- whole ---------------------------------------------------------------- */

struct verdict {
    uint64_t seed;
    unsigned wrong;
};

static void complain(struct verdict *v, const char *what, unsigned who,
                     unsigned of, uint64_t request)
{
    if (v->wrong++ < COMPLAINTS_MAX)
        printf("\n    CONDUCTOR_SEED=%" PRIu64 ": conductor %u %s (%u, %" PRIu64
               ")",
               v->seed, who, what, of, request);
}

/* Whether `c` has a request's prefill or decode on an instance, as it is. */
static bool has_part(const struct conductor *c, unsigned at,
                     const struct request *r, bool decodes)
{
    struct pool_record_prefill prefill;
    struct pool_record_decode decode;

    if (decodes)
        return pool_read_decode(c->pool, c->instances[at], r->id, &decode) ==
                   0 &&
               decode.started == (r->phase == DECODES);
    return pool_read_prefill(c->pool, c->instances[at], r->id, 0, &prefill) ==
               0 &&
           prefill.started == (r->phase == COMPUTES);
}

/* What `c` must have on an instance, of requests of all; how many these are. */
static size_t look_for(struct verdict *v, const struct conductor *c,
                       unsigned at, bool decodes)
{
    size_t n = 0;

    for (unsigned i = 0; i < WORLD_CONDUCTORS; i++)
        for (unsigned k = 0; k < conductors[i].n; k++) {
            const struct request *r = &conductors[i].requests[k];

            if (decodes ? r->decode != at
                        : r->prefill != at || r->phase == DECODES)
                continue;
            n++;
            if (!has_part(c, at, r, decodes))
                complain(v, decodes ? "lacks a decode" : "lacks a prefill",
                         c->number, i, r->id);
        }
    return n;
}

static void check_books(struct verdict *v, const struct conductor *c)
{
    for (unsigned at = 0; at < INSTANCES; at++) {
        const struct pool_instance *in =
            c->instances[at] ? pool_get(c->pool, c->instances[at]) : NULL;

        if (!in)
            continue;
        if (look_for(v, c, at, false) != in->n_waiting + in->n_running)
            complain(v, "has other prefills, too", c->number, at, 0);
        if (look_for(v, c, at, true) != in->n_decodes)
            complain(v, "has other decodes, too", c->number, at, 0);
    }
}

static void check_lead(struct verdict *v)
{
    unsigned leaders = 0;
    uint64_t token = 0;

    for (unsigned i = 0; i < WORLD_CONDUCTORS; i++)
        if (cluster_leads(conductors[i].cluster)) {
            leaders++;
            token = cluster_lead_token(conductors[i].cluster);
        }
    if (leaders != 1)
        complain(v, "is not the one leader", 0, leaders, 0);
    for (unsigned i = 0; i < WORLD_CONDUCTORS; i++)
        if (cluster_lead_token(conductors[i].cluster) > token)
            complain(v, "told workers a higher token than the leader's", i, 0,
                     cluster_lead_token(conductors[i].cluster));
}

static bool is_whole(uint64_t seed)
{
    struct verdict v = {.seed = seed};

    for (unsigned i = 0; i < WORLD_CONDUCTORS; i++)
        check_books(&v, &conductors[i]);
    check_lead(&v);
    return v.wrong == 0;
}

static void end_all(void)
{
    for (unsigned k = 0; k < WORLD_CONDUCTORS; k++) {
        world_as(k);
        end(&conductors[k]);
    }
}

/* A seed gives the same commands at the same times, another one others. */
static void test_same_seed(void)
{
    static const uint64_t seeds[] = {5, 5, 6};
    uint64_t digests[3];

    for (size_t i = 0; i < 3; i++) {
        make_order(seeds[i]);
        digests[i] = world_digest();
        end_all();
    }
    CU_ASSERT_EQUAL(digests[0], digests[1]);
    CU_ASSERT_NOT_EQUAL(digests[0], digests[2]);
}

static void test_any_order(void)
{
    uint64_t seed = seed_or((uint64_t)time(NULL) * 100000);
    uint32_t orders = cases_of(ORDERS), failed = 0;

    printf("[%u orders, CONDUCTOR_SEED=%" PRIu64 "] ", orders, seed);
    for (uint32_t i = 0; i < orders; i++) {
        make_order(seed + i);
        failed += !is_whole(seed + i);
        end_all();
    }
    if (failed > 0)
        printf("\n    %u of %u orders are not whole ", failed, orders);
    CU_ASSERT_EQUAL(failed, 0);
}

static const struct suite_test tests[] = {
    {"a seed is an order", test_same_seed},
    {"whole after any order of faults", test_any_order},
};

int main(void)
{
    log_init("test_cluster_orders", LOG_ERROR);
    return SUITE_RUN("cluster_orders", tests);
}
