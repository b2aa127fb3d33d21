/* What prefills do to the decodes beside them: by literal cases, and against a
 * slow version that lays the intervals of each decode out. */
#include <stdio.h>

#include "conductor/core/plan/beside.h"
#include "conductor/core/pool/pool.h"
#include "tests/unit/cases.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/pool_check.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

/* A step on its own takes 10 ms, whatever is in it, and has 100 tokens. */
enum { STEP_US = 10000, STEP_TOKENS = 100, NOW_US = 5000000 };

struct rig {
    struct cost_model cost;
    struct pool *pool;
    uint32_t id;
};

static void rig_init(struct rig *r)
{
    struct pool_config config = pool_config_default;

    *r = (struct rig){.id = POOL_NO_INSTANCE};
    r->cost.decode[0] = STEP_US;
    r->cost.range = (struct cost_model_range){1, 10000, 10000, 64, 1000000};
    config.max_instances = 1;
    config.max_running = 1;
    config.shared_steps = true;
    config.uncorrected = true;
    r->pool = pool_new(&config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->pool);
    r->id = READY(r->pool, .role = ROLE_BOTH, .kv_capacity_tokens = 1000000,
                  .block_tokens = 10);
}

static void rig_fini(struct rig *r)
{
    pool_free(r->pool);
}

/* All chunks take as long. */
static struct pool_work even(int64_t tokens, int64_t us)
{
    return (struct pool_work){.tokens = tokens,
                              .us = us,
                              .own_tokens = (double)tokens,
                              .own_us = (double)us,
                              .own_square =
                                  (double)us * (double)us / (double)tokens};
}

static void accept(struct rig *r, uint64_t id, int64_t tokens, int64_t us,
                   int64_t n_output)
{
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->id, id, tokens, n_output),
                    0);
    ACCEPTS(r->pool, r->id, .request_id = id, .predicted_us = us,
            .ready_at_us = NOW_US, .arrived_us = NOW_US,
            .uncached_tokens = tokens, .work = even(tokens, us));
    CU_ASSERT_EQUAL(pool_decode_likely(r->pool, r->id, id, n_output), 0);
}

static void prefill_done(struct rig *r, uint64_t id)
{
    CU_ASSERT_EQUAL(pool_prefill_done(r->pool, r->id, id, 1, NOW_US), 0);
    CU_ASSERT_EQUAL(pool_decode_started(r->pool, r->id, id), 0);
    CU_ASSERT_EQUAL(pool_decode_progress(r->pool, r->id, id, 1), 0);
}

static int64_t ask(const struct rig *r, int64_t tokens, int64_t us)
{
    return beside_tbt_us(
        &r->cost, STEP_TOKENS, pool_get(r->pool, r->id),
        &(struct beside_request){.work = even(tokens, us), .now_us = NOW_US});
}

#define RIG_TEST(test) SUITE_TEST(test, struct rig, r, rig_init(r), rig_fini(r))

/* A decode of 101 tokens has 100 intervals, of which the longest 10 count. A
 * chunk has 99 tokens. */
RIG_TEST(test_chunks)
{
    CU_ASSERT_EQUAL(ask(r, 9900, 9000000), STEP_US);
    accept(r, 1, 50, 1000, 101);
    prefill_done(r, 1);
    CU_ASSERT_EQUAL(ask(r, 99, 90000), (90000 + 9 * STEP_US) / 10);
    CU_ASSERT_EQUAL(ask(r, 297, 270000), (270000 + 7 * STEP_US) / 10);
    CU_ASSERT_EQUAL(ask(r, 396, 360000), (360000 + 6 * STEP_US) / 10);
    CU_ASSERT_EQUAL(ask(r, 9900, 9000000), 90000);
    /* What has been beside it counts. */
    accept(r, 2, 196, 160000, 11);
    prefill_done(r, 2);
    CU_ASSERT_EQUAL(ask(r, 98, 80000), 80000); /* for 2 */
    CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->id, 2), 0);
    CU_ASSERT_EQUAL(ask(r, 101, 80000), (240000 + 7 * STEP_US) / 10);
}

/* No more of what is to come than the decode has tokens to come. */
RIG_TEST(test_end)
{
    accept(r, 1, 50, 1000, 101);
    prefill_done(r, 1);
    CU_ASSERT_EQUAL(pool_decode_progress(r->pool, r->id, 1, 99), 0);
    CU_ASSERT_EQUAL(ask(r, 9900, 9000000), (180000 + 8 * STEP_US) / 10);
}

/* Chunks of 20 and 60 ms in equal parts: lying evenly within sqrt(3) standard
 * deviations, from 5.4 to 74.6 ms, the longest 10 of 98 are 71.1 on average. */
RIG_TEST(test_unlike)
{
    accept(r, 1, 50, 1000, 101);
    prefill_done(r, 1);
    accept(r, 2, 49 * 99, 49 * 20000, 2);
    prefill_done(r, 2);
    CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->id, 2), 0);
    CU_ASSERT_EQUAL(ask(r, 49 * 99, 49 * 60000), 71106);
}

/* 49 chunks of short prompts beside a decode whose step takes 10 ms more for
 * it: each chunk has that once, not once for each prompt. All are alike then,
 * however unlike the prompts are. */
RIG_TEST(test_short)
{
    const struct pool_instance *i;
    struct pool_work sum = {0};
    int64_t us;

    r->cost.prefill[1] = 300;
    r->cost.decode[1] = 5000;
    i = pool_get(r->pool, r->id);
    accept(r, 1, 50, 1000, 101);
    prefill_done(r, 1);
    for (int k = 0; k < 9 * 49; k++)
        sum = pool_work_add(
            sum, beside_work_of(&r->cost, STEP_TOKENS, i, k % 2 ? 1 : 21, 0));
    us = beside_tbt_us(&r->cost, STEP_TOKENS, i,
                       &(struct beside_request){.work = sum, .now_us = NOW_US});
    CU_ASSERT_EQUAL(us, 99 * 300 + 2 * 5000);
}

/* The end of a long prompt takes longer than its begin: chunks of 1, 3 .. 199
 * ms, lying evenly, of which the longest 10 of 100 are 190 on average. */
RIG_TEST(test_long)
{
    const struct pool_instance *i;
    struct pool_work work;
    int64_t us;

    r->cost.prefill[2] = 0.1;
    r->cost.decode[0] = 100;
    i = pool_get(r->pool, r->id);
    accept(r, 1, 50, 1000, 101);
    prefill_done(r, 1);
    work = beside_work_of(&r->cost, STEP_TOKENS, i, 100 * 99, 0);
    CU_ASSERT_EQUAL(work.us, 9801000);
    us =
        beside_tbt_us(&r->cost, STEP_TOKENS, i,
                      &(struct beside_request){.work = work, .now_us = NOW_US});
    CU_ASSERT(us > 186000 && us < 187000); /* of 99 tokens: 98 % of it */
    work = beside_work_of(&r->cost, STEP_TOKENS, i, 0, 0);
    CU_ASSERT_EQUAL(work.tokens, 0);
}

/* Where prefills are off by a fifth, what they add to a step counts 1.2 times.
 */
RIG_TEST(test_uncertain)
{
    struct pool_instance uncertain;

    accept(r, 1, 50, 1000, 101);
    prefill_done(r, 1);
    uncertain = *pool_get(r->pool, r->id);
    uncertain.correction.square = 0.04;
    uncertain.correction.known = 1.0;
    for (int64_t n = 0; n <= 99 * 20; n += 99 * 5) {
        struct beside_request ask_it = {.work = even(n, 500 * n),
                                        .now_us = NOW_US};
        int64_t more_us = ask(r, n, 500 * n) - STEP_US;

        CU_ASSERT_EQUAL(
            beside_tbt_us(&r->cost, STEP_TOKENS, &uncertain, &ask_it),
            STEP_US + (int64_t)((double)more_us * 1.2));
    }
    CU_ASSERT_EQUAL(ask(r, 0, 0), STEP_US);
}

/* A step of 100 tokens takes 10 ms, and 30 ms of prompts wait. One that stands
 * before all of them, or behind 12 ms of them, ends with its step, and with the
 * last of them at the latest. */
static void test_shared(void)
{
    const struct queue_order *orders[] = {
        queue_order_by_name("fifo"), queue_order_by_name("shortest_first")};
    struct beside none = {0};

    for (int k = 0; k < 2; k++) {
        struct pool_config config = pool_config_default;
        struct cost_model cost = {.prefill = {0, 100}};
        const struct pool_instance *i;
        struct pool *pool = pool_new(&config);
        uint32_t id;

        cost.range = (struct cost_model_range){1, 10000, 10000, 64, 1000000};
        id = ADDED(pool, .role = ROLE_BOTH, .kv_capacity_tokens = 1000,
                   .order = orders[k]);
        ACCEPTS(pool, id, .request_id = 1, .predicted_us = 30000);
        i = pool_get(pool, id);
        CU_ASSERT_EQUAL(beside_shared_us(&cost, 100, i, &none, 0, 2000, NOW_US),
                        k * 8000);
        CU_ASSERT_EQUAL(
            beside_shared_us(&cost, 100, i, &none, 12000, 2000, NOW_US),
            k * 6000);
        CU_ASSERT_EQUAL(
            beside_shared_us(&cost, 100, i, &none, 28000, 4000, NOW_US),
            k * 2000);
        CU_ASSERT_EQUAL(
            beside_shared_us(&cost, 100, i, &none, 30000, 4000, NOW_US), 0);
        CU_ASSERT_EQUAL(beside_shared_us(&cost, 0, i, &none, 0, 2000, NOW_US),
                        0);
        pool_free(pool);
    }
}

/* As if it had never been. */
RIG_TEST(test_cancelled)
{
    int64_t us;

    accept(r, 1, 50, 1000, 101);
    prefill_done(r, 1);
    us = ask(r, 198, 100000);
    accept(r, 2, 990, 900000, 101);
    accept(r, 3, 40, 10000, 101);
    CU_ASSERT_EQUAL(pool_prefill_cancel(r->pool, r->id, 2, NOW_US), 0);
    CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->id, 2), 0);
    CU_ASSERT_EQUAL(pool_prefill_cancel(r->pool, r->id, 3, NOW_US), 0);
    CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->id, 3), 0);
    CU_ASSERT_EQUAL(ask(r, 198, 100000), us);
}

/* --- against a slow version -------------------------------------------- */

enum { REQUESTS = 12 };

struct request {
    int64_t tokens;
    int64_t n_output;
    int64_t produced;
    bool prefilled, cancelled, decoded;
};

static int64_t below(uint64_t *state, uint64_t bound)
{
    *state = random_mix(*state);
    return (int64_t)(*state % bound);
}

/* The intervals of a decode, longest first: chunks, the last one in part, and
 * steps; the mean of the first tenth. */
static double slow_tail(double chunks, double chunk_us, int64_t intervals)
{
    int64_t tail = (intervals + 9) / 10;
    double sum_us = 0.0;

    for (int64_t k = 0; k < tail; k++, chunks -= 1.0)
        sum_us += chunks >= 1.0  ? chunk_us
                  : chunks > 0.0 ? chunks * chunk_us + (1 - chunks) * STEP_US
                                 : STEP_US;
    return sum_us / (double)tail;
}

/* With `more` tokens of a request that comes last. */
static double slow_worst(const struct request *requests, size_t n, double room,
                         double token_us, int64_t more)
{
    double worst_us = STEP_US;

    for (size_t j = 0; j < n; j++) {
        const struct request *d = &requests[j];
        double left = (double)(d->n_output - d->produced);
        double past = 0.0, to_come = (double)more, us;

        if (d->decoded || d->cancelled)
            continue;
        for (size_t k = j + 1; k < n; k++)
            if (requests[k].prefilled)
                past += (double)requests[k].tokens;
            else if (!requests[k].cancelled)
                to_come += (double)requests[k].tokens;
        if (to_come > left * room)
            to_come = left * room;
        us = slow_tail((past + to_come) / room, room * token_us,
                       d->n_output - 1);
        if (us > worst_us)
            worst_us = us;
    }
    return worst_us;
}

/* The first that waits is prefilled, one in three is cancelled before; the rest
 * decodes a little. */
static void go_on(struct rig *r, uint64_t *random, struct request *requests,
                  size_t n)
{
    for (size_t k = 0; k < n; k++) {
        struct request *q = &requests[k];

        if (q->cancelled || q->decoded)
            continue;
        if (!q->prefilled) {
            if (below(random, 3) == 0) {
                q->cancelled = true;
                CU_ASSERT_EQUAL(pool_prefill_cancel(r->pool, r->id, k, NOW_US),
                                0);
                CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->id, k), 0);
                continue;
            }
            q->prefilled = true;
            q->produced = 1;
            prefill_done(r, k);
            return;
        }
        q->produced += below(random, 10);
        if (q->produced < q->n_output) {
            CU_ASSERT_EQUAL(
                pool_decode_progress(r->pool, r->id, k, q->produced), 0);
            continue;
        }
        q->decoded = true;
        CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->id, k), 0);
    }
}

static bool check(uint64_t seed)
{
    uint64_t random = seed;
    int64_t token_us = 120 + below(&random, 1000); /* a chunk > a step */
    struct request requests[REQUESTS];
    bool equal = true;
    struct rig r;

    rig_init(&r);
    for (size_t n = 0; n < REQUESTS && equal;) {
        int64_t more = 1 + below(&random, 1000);
        double room, slow, fast;

        requests[n] = (struct request){.tokens = 1 + below(&random, 1000),
                                       .n_output = 2 + below(&random, 200)};
        accept(&r, n, requests[n].tokens, requests[n].tokens * token_us,
               requests[n].n_output);
        n++;
        go_on(&r, &random, requests, n);
        if (n % 4 == 0 || n == REQUESTS) /* what is broken stays so */
            CU_ASSERT(pool_check(r.pool));
        room = STEP_TOKENS - (double)pool_get(r.pool, r.id)->n_decodes;
        slow = slow_worst(requests, n, room, (double)token_us, more);
        fast = (double)ask(&r, more, more * token_us);
        /* Whole microseconds and tokens. */
        equal = fast > slow - 0.01 * slow - 1 && fast < slow + 0.01 * slow + 1;
        if (!equal) {
            printf("seed %llu, request %zu: %g, not %g\n",
                   (unsigned long long)seed, n, fast, slow);
            CU_FAIL("as the slow version");
        }
    }
    rig_fini(&r);
    return equal;
}

static void test_random(void)
{
    for (uint64_t seed = 1; seed <= cases_of(600); seed++)
        if (!check(seed))
            break;
}

static const struct suite_test tests[] = {
    {"chunks", test_chunks}, {"end", test_end},
    {"unlike", test_unlike}, {"short", test_short},
    {"long", test_long},     {"uncertain", test_uncertain},
    {"shared", test_shared}, {"cancelled", test_cancelled},
    {"random", test_random},
};
SUITE("beside", tests)
