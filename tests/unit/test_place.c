/* Places of decodes: by literal cases, and against a slow version that looks
 * at every millisecond. */
#include <errno.h>
#include <stdio.h>

#include "conductor/core/plan/place.h"
#include "conductor/core/plan/traffic.h"
#include "tests/unit/cases.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

/* A decode step takes a millisecond, whatever is in it. */
enum { BLOCK = 10, CAPACITY = 1000, STEP_US = 1000, NOW_US = 5000000 };

struct rig {
    struct cost_model cost;
    struct estimate_model model;
    struct pool *pool;
    uint32_t id;
};

static void rig_init(struct rig *r, uint32_t max_batch, const char *order)
{
    struct pool_config config = pool_config_default;

    *r =
        (struct rig){.model = {.block_tokens = BLOCK, .kv_bytes_per_token = 1}};
    r->model.cost = &r->cost;
    r->cost.decode[0] = STEP_US;
    r->cost.range = (struct cost_model_range){1, 10000, 10000, 64, 1000000};
    config.max_instances = 2;
    /* No more than is needed: each pool is laid out anew. */
    config.max_waiting = config.max_running = config.max_bookings = 8;
    config.max_decodes = 128;
    config.max_pending_blocks = 64;
    config.order = queue_order_by_name(order);
    r->pool = pool_new(&config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->pool);
    r->id = READY(r->pool, .role = ROLE_DECODE, .kv_capacity_tokens = CAPACITY,
                  .max_batch = max_batch, .block_tokens = BLOCK);
}

static void rig_fini(struct rig *r)
{
    pool_free(r->pool);
}

static void expect_from(struct rig *r, uint64_t id, int64_t n_tokens,
                        int64_t expected_tokens, int64_t in_us,
                        uint32_t prefill, int64_t prefill_us)
{
    CU_ASSERT_EQUAL(pool_decode_expect(r->pool, r->id,
                                       &(struct pool_decode_request){
                                           .request_id = id,
                                           .prompt_tokens = n_tokens,
                                           .max_output_tokens = 900,
                                           .expected_tokens = expected_tokens,
                                           .comes_us = NOW_US + in_us,
                                           .prefill = prefill,
                                           .prefill_us = prefill_us}),
                    0);
}

static void expect(struct rig *r, uint64_t id, int64_t n_tokens,
                   int64_t expected_tokens, int64_t in_us)
{
    expect_from(r, id, n_tokens, expected_tokens, in_us, POOL_NO_INSTANCE, 0);
}

static bool has_room(const struct rig *r, int64_t n_tokens,
                     int64_t expected_tokens, int64_t in_us, double overhang)
{
    struct decode_estimate e;

    place_estimate(
        &r->model, pool_get(r->pool, r->id),
        &(struct place_request){.n_tokens = n_tokens,
                                .max_output_tokens = CAPACITY + 1 - n_tokens,
                                .expected_tokens = expected_tokens,
                                .comes_us = NOW_US + in_us,
                                .ready_us = NOW_US + in_us,
                                .overhang_steps = overhang,
                                .pool = r->pool,
                                .now_us = NOW_US},
        &e);
    CU_ASSERT_FALSE(e.too_long);
    return !e.no_room;
}

#define RIG_TEST(test, ...) \
    SUITE_TEST(test, struct rig, r, rig_init(r, __VA_ARGS__), rig_fini(r))

RIG_TEST(test_times, 8, "fifo")
{
    expect(r, 1, 490, 11, 0); /* 500 tokens for 10 ms */
    CU_ASSERT_EQUAL(pool_decode_started(r->pool, r->id, 1), 0);
    CU_ASSERT(has_room(r, 490, 11, 0, 0));
    CU_ASSERT_FALSE(has_room(r, 500, 11, 0, 0));
    CU_ASSERT_FALSE(has_room(r, 500, 11, 9999, 0));
    CU_ASSERT(has_room(r, 500, 11, 10000, 0));
    CU_ASSERT(has_room(r, 500, 11, 8000, 2)); /* the overhang */
    CU_ASSERT_FALSE(has_room(r, 500, 11, 7999, 2));
    expect(r, 2, 490, 11, 30000); /* and from 30 to 40 ms */
    CU_ASSERT(has_room(r, 900, 21, 10000, 0));
    CU_ASSERT_FALSE(has_room(r, 900, 22, 10000, 0));
    CU_ASSERT_FALSE(has_room(r, 501, 2, 39999, 0));
    CU_ASSERT(has_room(r, 501, 2, 40000, 0));
}

/* One that is longer than expected keeps its place, and more KV. */
RIG_TEST(test_outgrown, 8, "fifo")
{
    const struct pool_instance *i;

    i = pool_get(r->pool, r->id);
    expect(r, 1, 501, 10, 0);
    CU_ASSERT_EQUAL(pool_decode_started(r->pool, r->id, 1), 0);
    CU_ASSERT_EQUAL(i->decode_reserved_tokens, 510);
    CU_ASSERT_EQUAL(pool_decode_progress(r->pool, r->id, 1, 9), 0);
    CU_ASSERT(has_room(r, 500, 11, 1000, 0));
    CU_ASSERT_EQUAL(pool_decode_progress(r->pool, r->id, 1, 10), 0);
    CU_ASSERT_EQUAL(i->decodes[0].expected_tokens, 16);
    CU_ASSERT_EQUAL(i->decode_reserved_tokens, 520);
    CU_ASSERT_FALSE(has_room(r, 500, 11, 5999, 0));
    CU_ASSERT(has_room(r, 500, 11, 6000, 0));
    CU_ASSERT_EQUAL(pool_decode_advance(r->pool, r->id, 889), 0);
    CU_ASSERT_EQUAL(i->decodes[0].expected_tokens, 900); /* the most */
    CU_ASSERT_EQUAL(i->decode_reserved_tokens, 1400);
    CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->id, 1), 0);
    CU_ASSERT_EQUAL(i->decode_reserved_tokens, 0);
}

/* Two that are not there together do not add up. */
RIG_TEST(test_one_by_one, 8, "fifo")
{
    expect(r, 1, 490, 11, 0);     /* 500 tokens for 10 ms */
    expect(r, 2, 490, 11, 20000); /* and from 20 to 30 ms */
    CU_ASSERT(has_room(r, 470, 31, 0, 0));
    CU_ASSERT_FALSE(has_room(r, 471, 31, 0, 0));
    expect(r, 3, 190, 11, 15000);
    CU_ASSERT_FALSE(has_room(r, 470, 31, 0, 0));
    CU_ASSERT_FALSE(has_room(r, 271, 31, 0, 0));
    CU_ASSERT(has_room(r, 270, 31, 0, 0));
}

/* Places in the batch end, too; but only so many are given ahead. */
RIG_TEST(test_batch, 2, "fifo")
{
    for (uint64_t id = 0; id < 2; id++) {
        expect(r, id, 1, 6, 0);
        CU_ASSERT_EQUAL(pool_decode_started(r->pool, r->id, id), 0);
    }
    CU_ASSERT_FALSE(has_room(r, 1, 6, 4999, 0));
    CU_ASSERT(has_room(r, 1, 6, 5000, 0));
    for (uint64_t id = 2; id < 2 * POOL_DECODES_AHEAD; id++)
        expect(r, id, 1, 6, 10000 * (int64_t)id);
    CU_ASSERT_FALSE(has_room(r, 1, 6, 5000, 0));
    CU_ASSERT_EQUAL(
        pool_decode_expect(r->pool, r->id,
                           &(struct pool_decode_request){.request_id = 99}),
        -ENOSPC);
}

/* The TBT of those that are still there when the prefill has ended. */
RIG_TEST(test_slo, 8, "fifo")
{
    struct place_request ask = {.n_tokens = 1,
                                .max_output_tokens = 5,
                                .expected_tokens = 5,
                                .slo_tbt_us = STEP_US + 150,
                                .now_us = NOW_US};
    struct decode_estimate e;

    r->cost.decode[1] = 100; /* a decode more: 0.1 ms */
    expect(r, 1, 1, 6, 0);
    CU_ASSERT_EQUAL(pool_decode_started(r->pool, r->id, 1), 0);
    ask.comes_us = ask.ready_us = NOW_US + 5000;
    place_estimate(&r->model, pool_get(r->pool, r->id), &ask, &e);
    CU_ASSERT_EQUAL(e.tbt_us, STEP_US + 200);
    ask.ready_us = NOW_US + 5500; /* five steps of 1.1 ms */
    place_estimate(&r->model, pool_get(r->pool, r->id), &ask, &e);
    CU_ASSERT_EQUAL(e.tbt_us, STEP_US + 100);
    CU_ASSERT_EQUAL(e.load_us, STEP_US + 200);
    CU_ASSERT_EQUAL(e.batch, 1);
}

/* A long prefill that shorter ones pass takes its room no sooner than they
 * leave the engine to it; in a queue by age it begins any moment. */
static void test_passed(void)
{
    static const char *const orders[] = {"shortest_first", "fifo"};
    const struct pool_instance_config prefill = {.role = ROLE_PREFILL,
                                                 .kv_capacity_tokens = CAPACITY,
                                                 .link_bytes_per_s = 1e9,
                                                 .block_tokens = BLOCK};

    for (int by_age = 0; by_age < 2; by_age++) {
        uint32_t prefill_id;
        struct rig r;

        rig_init(&r, 8, orders[by_age]);
        prefill_id = core_add(r.pool, &prefill);
        expect_from(&r, 1, 490, 11, 0, prefill_id, 4000);
        for (uint64_t id = 1; id <= 2; id++)
            ACCEPTS(r.pool, prefill_id, .request_id = id,
                    .predicted_us = id == 1 ? 4000 : 3000,
                    .arrived_us = NOW_US);
        CU_ASSERT_EQUAL(has_room(&r, 600, 4, 0, 0), !by_age); /* 3 ms */
        CU_ASSERT_FALSE(has_room(&r, 600, 5, 0, 0));
        CU_ASSERT_EQUAL(pool_decode_comes(r.pool, r.id, 1, NOW_US), 0);
        CU_ASSERT_FALSE(has_room(&r, 600, 4, 0, 0));
        rig_fini(&r);
    }
}

/* KV whose prefill is over is on its way; of one that was passed, none is. */
RIG_TEST(test_late_push, 8, "fifo")
{
    const struct traffic_push push = {.n_tokens = 1000,
                                      .kv_bytes_per_token = 1,
                                      .due_us = NOW_US + 1000,
                                      .now_us = NOW_US};
    uint32_t to;

    to = ADDED(r->pool, .role = ROLE_BOTH, .kv_capacity_tokens = CAPACITY,
               .link_bytes_per_s = 1e6, .block_tokens = BLOCK);
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, to, 1, 100, 11), 0);
    PUSHES(r->pool, to, 1, r->id, 4000, NOW_US - 1);
    CU_ASSERT_EQUAL(traffic_gap_us(5, pool_get(r->pool, to), &push), 5);
    CU_ASSERT_EQUAL(pool_decode_comes(r->pool, to, 1, NOW_US - 1), 0);
    CU_ASSERT_EQUAL(traffic_gap_us(5, pool_get(r->pool, to), &push), 2000);
}

/* All that comes to an instance holds a push up, unless its prefill takes
 * longer. */
static void test_behind(void)
{
    struct traffic_push push = {
        .n_tokens = 1000, .kv_bytes_per_token = 1, .now_us = NOW_US};
    static const struct {
        int64_t due_us;
        int64_t behind_us;
    } cases[] = {{0, 4000}, {1000, 4000}, {3000, 2000}, {5000, 0}, {9000, 0}};
    uint32_t to;
    struct rig r;

    rig_init(&r, 8, "fifo");
    to = ADDED(r.pool, .role = ROLE_BOTH, .kv_capacity_tokens = CAPACITY,
               .link_bytes_per_s = 1e6, .block_tokens = BLOCK);
    CU_ASSERT_EQUAL(pool_decode_accept(r.pool, to, 1, 100, 11), 0);
    PUSHES(r.pool, to, 1, r.id, 4000, NOW_US + 90000);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        push.due_us = NOW_US + cases[i].due_us;
        CU_ASSERT_EQUAL(traffic_behind_us(pool_get(r.pool, to), &push),
                        cases[i].behind_us);
    }
    CU_ASSERT_EQUAL(traffic_behind_us(pool_get(r.pool, r.id), &push),
                    0); /* its rate is not known */
    rig_fini(&r);
}

/* What comes beside a push holds it up for its own length at most. */
static void test_beside(void)
{
    static const int64_t bytes[] = {4000, 1000, 300};
    static const struct {
        int64_t due_us;
        int64_t late_us;
    } cases[] = {{0, 2300}, {1000, 2300}, {3000, 300}, {3300, 0}, {9000, 0}};
    struct traffic_push push = {
        .n_tokens = 1000, .kv_bytes_per_token = 1, .now_us = NOW_US};
    struct traffic_beside beside;
    uint32_t to;
    struct rig r;

    rig_init(&r, 8, "fifo");
    to = ADDED(r.pool, .role = ROLE_BOTH, .kv_capacity_tokens = CAPACITY,
               .link_bytes_per_s = 1e6, .block_tokens = BLOCK);
    beside = traffic_beside(pool_get(r.pool, to), &push);
    CU_ASSERT_EQUAL(beside.longest_us, 0);
    for (uint64_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        struct pool_push other = {r.id, bytes[i], NOW_US + 90000};

        CU_ASSERT_EQUAL(pool_decode_accept(r.pool, to, i, 100, 11), 0);
        CU_ASSERT_EQUAL(pool_book_push(r.pool, &other, to, i), 0);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        push.due_us = NOW_US + cases[i].due_us;
        beside = traffic_beside(pool_get(r.pool, to), &push);
        CU_ASSERT_EQUAL(beside.longest_us, 4000);
        CU_ASSERT_EQUAL(beside.late_us, cases[i].late_us);
    }
    CU_ASSERT_EQUAL(pool_decode_started(r.pool, to, 0), 0);
    beside = traffic_beside(pool_get(r.pool, to), &push);
    CU_ASSERT_EQUAL(beside.longest_us, 1000);
    rig_fini(&r);
}

/* --- against a slow version -------------------------------------------- */

enum { DECODES = 12, LAST_MS = 400 };

struct decode {
    int64_t kv_tokens;
    int64_t from_ms, until_ms;
};

static int64_t below(uint64_t *state, uint64_t bound)
{
    *state = random_mix(*state);
    return (int64_t)(*state % bound);
}

/* Whether there is room at each millisecond of a stretch; `together`: beside
 * all that is there at any of them. */
static bool slow_room(const struct decode *decodes, size_t n, int64_t from_ms,
                      int64_t until_ms, int64_t need_tokens, size_t max_batch,
                      bool together)
{
    for (int64_t ms = from_ms; ms < until_ms; ms++) {
        int64_t tokens = need_tokens;
        size_t n_there = 0;

        for (size_t i = 0; i < n; i++) {
            const struct decode *d = &decodes[i];
            bool there = together
                             ? d->from_ms < until_ms && d->until_ms > from_ms
                             : d->from_ms <= ms && ms < d->until_ms;

            tokens += there ? d->kv_tokens : 0;
            n_there += there;
        }
        if (tokens > CAPACITY || n_there >= max_batch)
            return false;
    }
    return true;
}

static int64_t in_blocks(int64_t tokens)
{
    return (tokens + BLOCK - 1) / BLOCK * BLOCK;
}

static void check(uint64_t seed)
{
    uint64_t random = seed;
    uint32_t max_batch = 1 + (uint32_t)below(&random, 8);
    size_t n = (size_t)below(&random, DECODES);
    struct decode decodes[DECODES];
    struct rig r;

    if (n > max_batch * POOL_DECODES_AHEAD)
        n = max_batch * POOL_DECODES_AHEAD;
    rig_init(&r, max_batch, "fifo");
    for (size_t i = 0; i < n; i++) {
        int64_t n_tokens = 1 + below(&random, 300);
        int64_t length = 2 + below(&random, 60);
        int64_t in_ms = below(&random, 100);
        bool started = below(&random, 2) == 0;

        expect(&r, i, n_tokens, length, in_ms * 1000);
        if (started) {
            CU_ASSERT_EQUAL(pool_decode_started(r.pool, r.id, i), 0);
            in_ms = 0;
        }
        decodes[i] = (struct decode){in_blocks(n_tokens + length - 1), in_ms,
                                     in_ms + length - 1};
    }
    for (int k = 0; k < 20; k++) {
        int64_t n_tokens = 1 + below(&random, 600);
        int64_t length = 1 + below(&random, 60);
        int64_t in_ms = below(&random, 150);
        int64_t over = below(&random, 5);
        bool room = has_room(&r, n_tokens, length, in_ms * 1000, (double)over);
        bool ahead = n < max_batch * POOL_DECODES_AHEAD;
        int64_t need = in_blocks(n_tokens + length - 1);
        /* It begins as late as the overhang lets it, and ends as planned. */
        bool slow = slow_room(decodes, n, in_ms + over, in_ms + length - 1,
                              need, max_batch, false);
        bool least = slow_room(decodes, n, in_ms + over, in_ms + length - 1,
                               need, max_batch, true);

        if (over >= length - 1) /* nothing is left of it to look at */
            continue;
        /* A part counts as a whole, so it may refuse what would fit. */
        if (room <= (slow && ahead) && room >= (least && ahead))
            continue;
        printf("seed %llu, request %d: room %d, slowly %d, beside all %d\n",
               (unsigned long long)seed, k, room, slow, least);
        CU_FAIL("as the slow version");
        break;
    }
    rig_fini(&r);
}

static void test_random(void)
{
    for (uint64_t seed = 1; seed <= cases_of(2000); seed++)
        check(seed);
}

static const struct suite_test tests[] = {
    {"times", test_times},
    {"outgrown", test_outgrown},
    {"one by one", test_one_by_one},
    {"batch", test_batch},
    {"SLO", test_slo},
    {"passed", test_passed},
    {"late push", test_late_push},
    {"behind pushes", test_behind},
    {"beside pushes", test_beside},
    {"random", test_random},
};
SUITE("place", tests)
