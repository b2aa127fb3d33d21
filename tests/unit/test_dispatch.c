/* The orders of dispatch: send, wait or refuse, which request is next, and
 * which instances a retry excludes. One prefill and one decode instance with
 * room for one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/dispatch/dispatch.h"
#include "conductor/core/dispatch/held.h"
#include "tests/unit/cases.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

enum { BLOCK = 100, REQUESTS = 16, NOW_US = 5000000 };

/* prefill_us = 1000 u; a decode step takes 100 us. */
struct rig {
    struct cost_model cost;
    struct pool *pool;
    struct prefix_index *index;
    struct scheduler *scheduler;
    struct dispatch dispatch;
    struct dispatch_request requests[REQUESTS];
    struct dispatch_order order;
    uint32_t prefill, decode;
};

static uint32_t add_batch(struct rig *r, unsigned role, uint32_t max_batch)
{
    return READY(r->pool, .role = role, .kv_capacity_tokens = 5000,
                 .max_batch = max_batch, .block_tokens = BLOCK);
}

static uint32_t add(struct rig *r, unsigned role)
{
    return add_batch(r, role, 1);
}

static void rig_init(struct rig *r)
{
    struct pool_config pool = pool_config_default;

    memset(r, 0, sizeof(*r));
    r->cost.prefill[1] = 1000;
    r->cost.decode[0] = 100;
    r->cost.range = (struct cost_model_range){1, 10000, 10000, 64, 1000000};
    pool.max_instances = 8;
    r->pool = pool_new(&pool);
    r->index = core_index(8, 1 << 15);
    dispatch_init(&r->dispatch);
    r->dispatch.scheduler = r->scheduler = core_scheduler(
        "least_loaded", NULL, 0,
        &(struct estimate_model){
            .cost = &r->cost, .block_tokens = BLOCK, .kv_bytes_per_token = 1},
        r->pool, r->index);
    r->dispatch.max_retries = 2;
    for (uint64_t i = 0; i < REQUESTS; i++)
        r->requests[i] =
            (struct dispatch_request){.ask = {.request_id = i,
                                              .n_tokens = 100, /* 100 ms */
                                              .max_output_tokens = 10},
                                      .arrived_us = NOW_US};
}

static void rig_fini(struct rig *r)
{
    CORE_FREE(r);
}

static enum dispatch_action place(struct rig *r, int i, int64_t now_us)
{
    dispatch_place(&r->dispatch, &r->requests[i], now_us, &r->order);
    return r->order.action;
}

/* The number of the next one, or -1. */
static int next(struct rig *r, int64_t now_us)
{
    struct dispatch_request *next =
        dispatch_next(&r->dispatch, now_us, &r->order);

    return next ? (int)(next - r->requests) : -1;
}

/* A request's work is over, and the room that it took free. */
static void done(struct rig *r, int i)
{
    uint64_t id = r->requests[i].ask.request_id;

    CU_ASSERT_EQUAL(pool_prefill_done(r->pool, r->prefill, id, -1, 0), 0);
    CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->decode, id), 0);
    dispatch_freed(&r->dispatch);
}

#define RIG_TEST(test) SUITE_TEST(test, struct rig, r, rig_init(r), rig_fini(r))

/* With an instance of each role. */
#define TWO_TEST(test)                                          \
    SUITE_TEST(test, struct rig, r,                             \
               (rig_init(r), r->prefill = add(r, ROLE_PREFILL), \
                r->decode = add(r, ROLE_DECODE)),               \
               rig_fini(r))

RIG_TEST(test_without_instances)
{
    r->dispatch.scheduler = NULL;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_REJECT);
    CU_ASSERT_EQUAL(r->order.reason, DISPATCH_NO_PREFILL);
    CU_ASSERT_FALSE(r->order.decided);
    r->dispatch.scheduler = r->scheduler;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_REJECT);
    CU_ASSERT_EQUAL(r->order.reason, DISPATCH_NO_PREFILL);
    CU_ASSERT(r->order.decided);
    r->prefill = add(r, ROLE_PREFILL);
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_REJECT);
    CU_ASSERT_EQUAL(r->order.reason, DISPATCH_NO_DECODE);
    add(r, ROLE_DECODE);
    r->requests[0].ask.n_tokens = 6000;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_REJECT);
    CU_ASSERT_EQUAL(r->order.reason, DISPATCH_TOO_LONG);
}

/* Hand-over and passage are taken off the SLO and put on the prediction. */
TWO_TEST(test_slo_left)
{
    r->dispatch.overhead_us = 20000;
    r->requests[0].passage_us = 5000;
    r->requests[0].slo_ttft_us = 126000;
    /* 100 ms to compute, 1 + 20 + 5 have gone. */
    CU_ASSERT_EQUAL(place(r, 0, NOW_US + 1001), DISPATCH_REJECT);
    CU_ASSERT_EQUAL(r->order.reason, DISPATCH_MISSES_TTFT);
    CU_ASSERT_EQUAL(r->order.forecast.ttft_us, 121001);
    CU_ASSERT_EQUAL(r->requests[0].ask.slo_ttft_us, 99999);
    CU_ASSERT_EQUAL(r->requests[0].ask.waited_us, 1001);
    CU_ASSERT_EQUAL(place(r, 0, NOW_US + 900000), DISPATCH_REJECT);
    CU_ASSERT_EQUAL(r->requests[0].ask.slo_ttft_us, 1);
    CU_ASSERT_EQUAL(place(r, 0, NOW_US + 1000), DISPATCH_SEND);
    CU_ASSERT_EQUAL(r->order.forecast.ttft_us, 121000);
    CU_ASSERT_EQUAL(r->order.decision.prefill, r->prefill);
    done(r, 0);
    /* Once accepted it is held to no SLO. */
    CU_ASSERT_EQUAL(place(r, 0, NOW_US + 900000), DISPATCH_SEND);
    CU_ASSERT_EQUAL(r->requests[0].ask.slo_ttft_us, 0);
}

/* What came of forecasts teaches the next ones, and refuses nobody. */
TWO_TEST(test_forecast)
{
    r->dispatch.overhead_us = 20000;
    r->requests[0].slo_ttft_us = 126000;
    for (uint32_t i = 0; i < FORECAST_LEAST; i++) {
        CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
        CU_ASSERT_EQUAL(r->order.forecast.ttft_us, 120000);
        CU_ASSERT_EQUAL(r->order.forecast.p90_us, 0);
        dispatch_first_token(&r->dispatch, &r->order.forecast, 320000);
        done(r, 0);
    }
    r->requests[0].accepted = false;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(r->order.forecast.known_us, 20000);
    CU_ASSERT_EQUAL(r->order.forecast.ttft_us, 320000);
    CU_ASSERT_EQUAL(r->order.forecast.p50_us, 320000);
    CU_ASSERT_EQUAL(r->order.forecast.p90_us, 320000);
    done(r, 0);
}

/* Where no time is known an SLO ends a wait, and nothing else. */
RIG_TEST(test_unpredicted)
{
    struct schedule_config config = {
        .policy = schedule_policy_by_name("least_loaded"), .admission = "none"};

    scheduler_free(r->scheduler);
    r->dispatch.scheduler = r->scheduler = scheduler_new(
        &config,
        &(struct estimate_model){
            .cost = &r->cost, .block_tokens = BLOCK, .kv_bytes_per_token = 1},
        r->pool, r->index);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->scheduler);
    r->dispatch.unpredicted = true;
    r->prefill = add(r, ROLE_PREFILL);
    r->decode = add(r, ROLE_DECODE);
    r->requests[0].ask.max_output_tokens = 4000; /* 400 ms, if they were any */
    r->requests[0].slo_ttft_us = r->requests[1].slo_ttft_us = 50000;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(r->order.forecast.ttft_us, 0);
    CU_ASSERT_EQUAL(place(r, 1, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(r->order.decision.retry_after_us, 0);
    CU_ASSERT_EQUAL(next(r, NOW_US + 49999), -1);
    CU_ASSERT_EQUAL(next(r, NOW_US + 50000), 1);
    CU_ASSERT_EQUAL(r->order.reason, DISPATCH_WAITED_TOO_LONG);
    CU_ASSERT_EQUAL(next(r, NOW_US + 50000), -1);
}

/* First come, first served: no request overtakes, and one that can never be
 * served is told at once. */
TWO_TEST(test_wait)
{
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(place(r, 1, NOW_US), DISPATCH_WAIT); /* no room */
    CU_ASSERT_EQUAL(place(r, 2, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(next(r, NOW_US), -1);
    r->requests[3].ask.n_tokens = 6000;
    CU_ASSERT_EQUAL(place(r, 3, NOW_US), DISPATCH_REJECT);
    /* It needs no decode and so there is room for it, but others wait. */
    r->requests[4].ask.max_output_tokens = 1;
    CU_ASSERT_EQUAL(place(r, 4, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(r->dispatch.n_waiting, 3);
    dispatch_forget(&r->dispatch, &r->requests[2]);
    dispatch_forget(&r->dispatch, &r->requests[2]);
    CU_ASSERT_EQUAL(r->dispatch.n_waiting, 2);
    CU_ASSERT_EQUAL(next(r, NOW_US), -1);
    done(r, 0);
    CU_ASSERT_EQUAL(next(r, NOW_US), 1);
    CU_ASSERT_EQUAL(r->order.action, DISPATCH_SEND);
    CU_ASSERT_EQUAL(next(r, NOW_US), 4);
    CU_ASSERT_EQUAL(r->order.action, DISPATCH_SEND);
    CU_ASSERT_EQUAL(next(r, NOW_US), -1);
    CU_ASSERT_EQUAL(r->dispatch.n_waiting, 0);
}

/* With an SLO a request waits only for room that is expected in time, and no
 * longer than that. */
TWO_TEST(test_wait_with_slo)
{
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    r->requests[1].slo_ttft_us = 999; /* room is expected in 10 x 100 us */
    CU_ASSERT_EQUAL(place(r, 1, NOW_US), DISPATCH_REJECT);
    CU_ASSERT_EQUAL(r->order.reason, DISPATCH_NO_ROOM);
    CU_ASSERT_EQUAL(r->order.retry_after_us, 1000);
    r->requests[2].slo_ttft_us = 5000;
    r->requests[3].slo_ttft_us = 3000;
    CU_ASSERT_EQUAL(place(r, 2, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(place(r, 3, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(place(r, 4, NOW_US), DISPATCH_WAIT); /* for ever */
    CU_ASSERT_EQUAL(next(r, NOW_US + 2999), -1);
    CU_ASSERT_EQUAL(next(r, NOW_US + 3000), 3);
    CU_ASSERT_EQUAL(r->order.action, DISPATCH_REJECT);
    CU_ASSERT_EQUAL(r->order.reason, DISPATCH_WAITED_TOO_LONG);
    CU_ASSERT_FALSE(r->order.decided);
    /* The oldest one finds no room in time any more. */
    CU_ASSERT_EQUAL(next(r, NOW_US + 4500), -1);
    dispatch_freed(&r->dispatch);
    CU_ASSERT_EQUAL(next(r, NOW_US + 4500), 2);
    CU_ASSERT_EQUAL(r->order.reason, DISPATCH_NO_ROOM);
    CU_ASSERT_EQUAL(next(r, NOW_US + 4500), -1);
    CU_ASSERT_EQUAL(next(r, NOW_US + 100000000), -1);
    CU_ASSERT_EQUAL(r->dispatch.n_waiting, 1);
    /* Nobody is asked for in vain: nothing was freed. */
    uint64_t n = r->dispatch.n_decisions;
    CU_ASSERT_EQUAL(next(r, NOW_US + 100000000), -1);
    CU_ASSERT_EQUAL(r->dispatch.n_decisions, n);
}

/* What failed it is not chosen again, unless there is nothing else. */
RIG_TEST(test_retry)
{
    uint32_t other;

    r->prefill = add(r, ROLE_PREFILL);
    other = add(r, ROLE_PREFILL);
    r->decode = add(r, ROLE_DECODE);
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(r->order.decision.prefill, r->prefill);
    CU_ASSERT_FALSE(
        dispatch_failed(&r->dispatch, &r->requests[0], r->prefill, true));
    done(r, 0);
    CU_ASSERT(
        dispatch_failed(&r->dispatch, &r->requests[0], r->prefill, false));
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(r->order.decision.prefill, other);
    CU_ASSERT_EQUAL(pool_prefill_cancel(r->pool, other, 0, 0), 0);
    CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->decode, 0), 0);
    CU_ASSERT(dispatch_failed(&r->dispatch, &r->requests[0], other, false));
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(r->order.decision.prefill, r->prefill);
    CU_ASSERT_EQUAL(r->dispatch.n_decisions, 4); /* the last one took two */
    CU_ASSERT_FALSE(dispatch_failed(&r->dispatch, &r->requests[0],
                                    POOL_NO_INSTANCE, false)); /* max_retries */
    CU_ASSERT_EQUAL(r->requests[0].retries, 2);
}

/* Rather to the one that failed it than to one that is not eligible. */
RIG_TEST(test_retry_of_eligible)
{
    uint64_t eligible = 1u | 1u << 2;

    r->prefill = add(r, ROLE_PREFILL);
    (void)add(r, ROLE_PREFILL);
    r->decode = add(r, ROLE_DECODE);
    r->requests[0].ask.eligible = &eligible;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    done(r, 0);
    CU_ASSERT(
        dispatch_failed(&r->dispatch, &r->requests[0], r->prefill, false));
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(r->order.decision.prefill, r->prefill);
    done(r, 0);
    eligible = 1u << 2;
    CU_ASSERT(
        dispatch_failed(&r->dispatch, &r->requests[0], r->prefill, false));
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_REJECT);
    CU_ASSERT_EQUAL(r->order.reason, DISPATCH_NO_PREFILL);
}

/* A retry is refused for nothing, but while it can be in time queues know when
 * it is due. */
RIG_TEST(test_retry_is_due)
{
    uint32_t other;

    r->prefill = add(r, ROLE_PREFILL);
    other = add(r, ROLE_PREFILL);
    r->decode = add(r, ROLE_DECODE);
    r->requests[0].slo_ttft_us = 500000;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(schedule_deadline_us(&r->requests[0].ask), NOW_US + 500000);
    /* Earlier by its last step, but no earlier than it is expected. */
    CU_ASSERT_EQUAL(schedule_due_us(&r->requests[0].ask,
                                    &(struct prefill_estimate){
                                        .ttft_us = 200000, .last_us = 70000}),
                    NOW_US + 430000);
    CU_ASSERT_EQUAL(schedule_due_us(&r->requests[0].ask,
                                    &(struct prefill_estimate){
                                        .ttft_us = 450000, .last_us = 70000}),
                    NOW_US + 450000);
    done(r, 0);
    CU_ASSERT(
        dispatch_failed(&r->dispatch, &r->requests[0], r->prefill, false));
    CU_ASSERT_EQUAL(place(r, 0, NOW_US + 200000), DISPATCH_SEND);
    CU_ASSERT_EQUAL(r->requests[0].ask.slo_ttft_us, 0);
    CU_ASSERT_EQUAL(schedule_deadline_us(&r->requests[0].ask), NOW_US + 500000);
    CU_ASSERT_EQUAL(pool_prefill_cancel(r->pool, other, 0, 0), 0);
    CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->decode, 0), 0);
    CU_ASSERT(dispatch_failed(&r->dispatch, &r->requests[0], other, false));
    CU_ASSERT_EQUAL(place(r, 0, NOW_US + 500000), DISPATCH_SEND);
    CU_ASSERT_EQUAL(schedule_deadline_us(&r->requests[0].ask), 0);
}

/* With the policy plan, which prices, and an option of it. */
static void use_plan(struct rig *r, const char *option, double value)
{
    scheduler_free(r->scheduler);
    r->dispatch.scheduler = CORE_SCHEDULER(
        r, "plan",
        (&(struct estimate_model){
            .cost = &r->cost, .block_tokens = BLOCK, .kv_bytes_per_token = 1}),
        {option, value});
    r->prefill = add(r, ROLE_PREFILL);
    r->decode = add(r, ROLE_DECODE);
}

/* With a queue of almost its SLO little is admitted, and that by price: seven
 * requests of 0.5 s are more than the 3 s of a minute that the limit leaves. A
 * request is priced on arrival only, and none without an SLO. */
RIG_TEST(test_price)
{
    int64_t now_us = NOW_US;
    struct pool_prefill_request work = {.request_id = 99,
                                        .predicted_us = 8500000};

    use_plan(r, "rho", 0);
    CU_ASSERT_EQUAL(pool_prefill_accept(r->pool, r->prefill, &work), 0);
    for (int i = 0; i < 10; i++, now_us += 1000000) {
        r->requests[i].arrived_us = now_us;
        r->requests[i].slo_ttft_us = i < 9 ? 10000000 : 0;
        r->requests[i].ask.n_tokens = i < 7 ? 500 : 600;
        if (i == 8)
            r->requests[i].priced = true;
        if (place(r, i, now_us) == DISPATCH_SEND)
            done(r, i);
        CU_ASSERT_EQUAL(r->order.action,
                        i == 7 ? DISPATCH_REJECT : DISPATCH_SEND);
        CU_ASSERT_EQUAL(r->order.reason,
                        i == 7 ? DISPATCH_PRICE : DISPATCH_NO_REASON);
        if (i < 8)
            CU_ASSERT_DOUBLE_EQUAL(r->order.decision.price_us,
                                   i < 7 ? 500000 : 600000, 1e-6);
    }
    CU_ASSERT_EQUAL(r->requests[7].accepted, false);
}

/* Who is late only for the queue is an arrival, also where nobody knows when to
 * ask again since more comes than is computed; who would be late without it is
 * none. */
RIG_TEST(test_price_of_late)
{
    use_plan(r, "rho", 0.7);
    for (int i = 0; i < 5; i++) {
        r->requests[i].ask.n_tokens = 4900; /* 4.9 s */
        r->requests[i].ask.max_output_tokens = 1;
        r->requests[i].slo_ttft_us = i < 3 ? 0 : i == 3 ? 4000000 : 10000000;
        CU_ASSERT_EQUAL(place(r, i, NOW_US),
                        i < 3 ? DISPATCH_SEND : DISPATCH_REJECT);
        CU_ASSERT_EQUAL(r->order.reason,
                        i < 3 ? DISPATCH_NO_REASON : DISPATCH_MISSES_TTFT);
        CU_ASSERT_EQUAL(r->order.retry_after_us, i < 3 ? 0 : -1);
        /* Its work alone is more than so long a queue leaves. */
        CU_ASSERT_EQUAL(r->order.decision.price_limit_us, i == 4 ? 4900000 : 0);
    }
}

/* --- passing the oldest ------------------------------------------------ */

enum { PASSING = 200, BYPASS = 3 };

/* A decode instance of 5000 tokens, requests of 100 to 4900; a policy that lets
 * others pass until they have taken BYPASS times what the oldest needs. */
struct passing {
    struct rig rig;
    struct dispatch_request requests[PASSING];
    size_t running[PASSING], n_running;
    int64_t passed[PASSING]; /* tokens of those sent past it as the oldest */
    bool sent[PASSING];
    struct schedule_decision where[PASSING]; /* that it was sent */
};

static uint64_t below(uint64_t *state, uint64_t bound)
{
    *state = random_mix(*state);
    return *state % bound;
}

static void passing_init(struct passing *p, bool coupled)
{
    struct rig *r = &p->rig;

    memset(p, 0, sizeof(*p));
    rig_init(r);
    scheduler_free(r->scheduler);
    r->dispatch.scheduler = CORE_SCHEDULER(
        r, "plan",
        (&(struct estimate_model){.cost = &r->cost,
                                  .block_tokens = BLOCK,
                                  .kv_bytes_per_token = 1,
                                  .coupled = coupled,
                                  .step_tokens = coupled ? 1000 : 0}),
        {"lengths", 0}, {"bypass", BYPASS});
    r->prefill = add_batch(r, coupled ? ROLE_BOTH : ROLE_PREFILL, 0);
    r->decode = add_batch(r, coupled ? ROLE_BOTH : ROLE_DECODE, 0);
}

static struct passing *passing_new(bool coupled)
{
    struct passing *p = malloc(sizeof(*p));

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    passing_init(p, coupled);
    return p;
}

#define PASSING_TEST(test, coupled)                              \
    SUITE_TEST_OF(test, struct passing, p, passing_new(coupled), \
                  (rig_fini(&p->rig), free(p)))

/* Whether others may pass it whatever they take: half of the requests have just
 * come, and a quarter have an SLO that is far. */
static bool is_patient(const struct dispatch_request *r)
{
    return r->arrived_us == NOW_US || r->slo_ttft_us > 0;
}

static int64_t far_slo(uint64_t *random)
{
    return below(random, 4) == 0 ? 1000000000000 : 0;
}

static int64_t arrived(uint64_t *random)
{
    return below(random, 2) == 0 ? NOW_US : NOW_US - 1000000000;
}

static int64_t tokens_of(const struct dispatch_request *r)
{
    return r->ask.n_tokens + r->ask.max_output_tokens;
}

static void passing_sent(struct passing *p, size_t i)
{
    struct dispatch_request *oldest = TAILQ_FIRST(&p->rig.dispatch.waiting);

    p->sent[i] = true;
    p->running[p->n_running++] = i;
    p->where[i] = p->rig.order.decision;
    if (oldest && oldest < &p->requests[i] &&
        p->requests[i].ask.max_output_tokens > 1 &&
        (oldest->room.instance == POOL_NO_INSTANCE ||
         !(oldest->room.only || p->rig.dispatch.keeps) ||
         oldest->room.instance == p->where[i].decode)) {
        int64_t *passed = &p->passed[oldest - p->requests];

        CU_ASSERT_TRUE(is_patient(oldest) ||
                       *passed < BYPASS * tokens_of(oldest));
        *passed += tokens_of(&p->requests[i]);
    }
}

static void passing_done(struct passing *p, size_t k)
{
    size_t i = p->running[k];

    p->running[k] = p->running[--p->n_running];
    CU_ASSERT_EQUAL(pool_prefill_done(p->rig.pool, p->where[i].prefill,
                                      p->requests[i].ask.request_id, -1, 0),
                    0);
    if (p->where[i].decode != POOL_NO_INSTANCE)
        CU_ASSERT_EQUAL(pool_decode_done(p->rig.pool, p->where[i].decode,
                                         p->requests[i].ask.request_id),
                        0);
    dispatch_freed(&p->rig.dispatch);
}

static void passing_round(struct passing *p)
{
    struct dispatch_request *r;

    while ((r = dispatch_next(&p->rig.dispatch, NOW_US, &p->rig.order))) {
        CU_ASSERT_EQUAL(p->rig.order.action, DISPATCH_SEND);
        passing_sent(p, (size_t)(r - p->requests));
    }
}

/* Whatever comes and ends in whatever order: nobody passes the oldest request
 * once it has lost its patience and others have taken BYPASS times what it
 * needs, and all are sent. Returns
 * what they took. */
static int64_t check_passing(uint64_t seed, bool coupled, int n_more)
{
    struct passing *p = passing_new(coupled);
    uint64_t random = seed;
    unsigned failed = CU_get_number_of_failures();
    int64_t passed = 0;
    size_t n = 0;

    for (; n_more > 0; n_more--)
        add_batch(&p->rig, coupled ? ROLE_BOTH : ROLE_DECODE, 0);
    while (n < PASSING || p->n_running > 0) {
        if (n < PASSING && (p->n_running == 0 || below(&random, 2) == 0)) {
            int64_t tokens = (int64_t)below(&random, 4800);

            tokens = 100 + tokens / (1 + (int64_t)below(&random, 9));
            p->requests[n] =
                (struct dispatch_request){.ask = {.request_id = n + 1,
                                                  .n_tokens = tokens,
                                                  .max_output_tokens = 2},
                                          .arrived_us = arrived(&random),
                                          .slo_ttft_us = far_slo(&random)};
            dispatch_place(&p->rig.dispatch, &p->requests[n], NOW_US,
                           &p->rig.order);
            n++;
            if (p->rig.order.action == DISPATCH_SEND)
                passing_sent(p, n - 1);
        } else {
            passing_done(p, below(&random, p->n_running));
        }
        passing_round(p);
    }
    for (size_t i = 0; i < PASSING; i++) {
        passed += p->passed[i];
        CU_ASSERT_TRUE(p->sent[i]);
    }
    if (CU_get_number_of_failures() > failed)
        printf("passing: seed %llu\n", (unsigned long long)seed);
    CU_ASSERT_EQUAL(p->rig.dispatch.n_waiting, 0);
    rig_fini(&p->rig);
    free(p);
    return passed;
}

/* All that wait leave within the round in which they found no room, as where
 * their SLO is over between two orders. */
PASSING_TEST(test_passing_left, false)
{
    struct rig *r = &p->rig;

    for (int i = 0; i < 3; i++)
        r->requests[i].ask.n_tokens = i == 2 ? 100 : 2900;
    r->requests[1].slo_ttft_us = 30000000;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(place(r, 1, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(place(r, 2, NOW_US), DISPATCH_WAIT);
    dispatch_freed(&r->dispatch);
    CU_ASSERT_EQUAL(next(r, NOW_US), 2);
    CU_ASSERT_EQUAL(r->order.action, DISPATCH_SEND);
    CU_ASSERT_EQUAL(next(r, NOW_US + 30000000), 1);
    CU_ASSERT_EQUAL(r->order.reason, DISPATCH_WAITED_TOO_LONG);
    CU_ASSERT_EQUAL(next(r, NOW_US + 30000000), -1);
}

enum { LEAVING = 48, LEAVE_STEPS = 600 };

/* Requests that come, are sent, end, miss their SLO or are given up at any time
 * between two orders of a round. Each has a set of instances of its own, that
 * goes with it. */
struct leaving {
    struct passing p;
    enum { AWAY, WAITS, RUNS } is[LEAVING];
    int64_t now_us;
    uint64_t n_ended[2]; /* sent, not sent */
    uint64_t n_came;
};

static void leaving_follow(struct leaving *l, size_t i)
{
    struct dispatch_request *r = &l->p.requests[i];
    bool sent = l->p.rig.order.action == DISPATCH_SEND;

    if (l->p.rig.order.action == DISPATCH_WAIT) {
        l->is[i] = WAITS;
        return;
    }
    CU_ASSERT_FALSE(r->waits);
    if (sent)
        l->p.where[i] = l->p.rig.order.decision;
    l->is[i] = sent ? RUNS : AWAY;
    l->n_ended[!sent]++;
    free((void *)r->ask.eligible);
    r->ask.eligible = NULL;
}

static void leaving_comes(struct leaving *l, size_t i, uint64_t *random)
{
    static const uint64_t sets[] = {0xf, 0x5, 0xa, 0xd};
    uint64_t kind = below(random, 6);
    uint64_t *set = kind < 4 ? malloc(sizeof(*set)) : NULL;

    if (set)
        *set = sets[kind];
    l->p.requests[i] = (struct dispatch_request){
        .ask = {.request_id = ++l->n_came,
                .n_tokens = 100 + 100 * (int64_t)below(random, 45),
                .max_output_tokens = 1 + (int64_t)below(random, 3),
                .eligible = set},
        .arrived_us = l->now_us,
        .slo_ttft_us = below(random, 2) ? (int64_t)below(random, 20000000) : 0};
    dispatch_place(&l->p.rig.dispatch, &l->p.requests[i], l->now_us,
                   &l->p.rig.order);
    leaving_follow(l, i);
}

static void leaving_goes(struct leaving *l, size_t i)
{
    struct dispatch_request *r = &l->p.requests[i];

    if (l->is[i] == WAITS) {
        dispatch_forget(&l->p.rig.dispatch, r);
        free((void *)r->ask.eligible);
        r->ask.eligible = NULL;
    } else {
        CU_ASSERT_EQUAL(pool_prefill_done(l->p.rig.pool, l->p.where[i].prefill,
                                          r->ask.request_id, -1, l->now_us),
                        0);
        if (r->ask.max_output_tokens > 1)
            CU_ASSERT_EQUAL(pool_decode_done(l->p.rig.pool,
                                             l->p.where[i].decode,
                                             r->ask.request_id),
                            0);
        dispatch_freed(&l->p.rig.dispatch);
    }
    l->is[i] = AWAY;
}

static bool leaving_next(struct leaving *l)
{
    struct dispatch_request *r =
        dispatch_next(&l->p.rig.dispatch, l->now_us, &l->p.rig.order);

    if (r)
        leaving_follow(l, (size_t)(r - l->p.requests));
    return r;
}

static void check_leaving(uint64_t seed, uint64_t n_ended[2])
{
    struct leaving *l = calloc(1, sizeof(*l));
    unsigned failed = CU_get_number_of_failures();
    struct dispatch *d = &l->p.rig.dispatch;
    uint64_t random = seed;

    CU_ASSERT_PTR_NOT_NULL_FATAL(l);
    passing_init(&l->p, false);
    add_batch(&l->p.rig, ROLE_PREFILL, 0);
    add_batch(&l->p.rig, ROLE_DECODE, 0);
    l->now_us = NOW_US;
    for (size_t step = 0; step < LEAVE_STEPS; step++) {
        size_t i = below(&random, LEAVING);

        l->now_us += below(&random, 3) ? 0 : (int64_t)below(&random, 2000000);
        if (l->is[i] == AWAY)
            leaving_comes(l, i, &random);
        else if (l->is[i] == RUNS || below(&random, 4) == 0)
            leaving_goes(l, i);
        for (uint64_t n = below(&random, 4); n > 0 && leaving_next(l); n--)
            l->now_us += (int64_t)below(&random, 2) * 1000000;
    }
    for (size_t round = 0; round < LEAVING; round++) {
        for (size_t i = 0; i < LEAVING; i++)
            if (l->is[i] == RUNS)
                leaving_goes(l, i);
        while (leaving_next(l))
            ;
    }
    CU_ASSERT_EQUAL(d->n_waiting, 0);
    CU_ASSERT_EQUAL(d->reach.n_anywhere, 0);
    for (uint32_t i = 0; i < DISPATCH_REACHES; i++)
        CU_ASSERT_EQUAL(d->reach.sets[i].n, 0);
    if (CU_get_number_of_failures() > failed)
        printf("leaving: seed %llu\n", (unsigned long long)seed);
    n_ended[0] += l->n_ended[0];
    n_ended[1] += l->n_ended[1];
    rig_fini(&l->p.rig);
    free(l);
}

/* Whoever leaves, and when: all that stay are sent or refused. */
static void test_leaving(void)
{
    uint64_t n_ended[2] = {0};

    for (uint64_t seed = 1; seed <= cases_of(100); seed++)
        check_leaving(seed, n_ended);
    CU_ASSERT(n_ended[0] > 0 && n_ended[1] > 0);
}

static void test_passing(void)
{
    int64_t passed = 0, passed_coupled = 0;

    for (uint64_t seed = 1; seed <= cases_of(200); seed++) {
        passed += check_passing(seed, false, (int)(seed % 4));
        passed_coupled += check_passing(seed, true, (int)(seed % 4));
    }
    CU_ASSERT(passed > 0);
    CU_ASSERT(passed_coupled > 0);
}

/* --- rounds, against a slow and obvious version ------------------------- */

/* Who waits, by age, and what a round of tries has to do. */
struct slow {
    size_t waiting[PASSING], n_waiting;
    int64_t passed_tokens;
    uint64_t n_decisions; /* in all */
};

/* Quarters of powers of two, from 16 on. */
static uint32_t slow_size(const struct dispatch_request *r)
{
    int64_t tokens = r->ask.n_tokens + r->ask.max_output_tokens;
    uint32_t size = 1;

    if (r->ask.max_output_tokens == 1)
        return 0;
    for (int64_t power = 16; size < DISPATCH_SIZES - 1; power *= 2)
        for (int64_t q = 4; q < 8 && size < DISPATCH_SIZES - 1; q++, size++)
            if (tokens * 4 < power * q)
                return size;
    return size;
}

static bool slow_fits(const struct rig *r, const struct dispatch_request *q)
{
    const struct pool_instance *i = pool_get(r->pool, r->decode);

    return q->ask.max_output_tokens == 1 ||
           pool_kv_tokens(i, q->ask.n_tokens, q->ask.max_output_tokens) <=
               pool_decode_room_tokens(i);
}

/* Who is to be sent next, after the one at `*at`; it waits no more. */
static struct dispatch_request *slow_next(struct slow *s, struct passing *p,
                                          size_t *at, uint32_t *limit)
{
    for (; *at < s->n_waiting; ++*at) {
        struct dispatch_request *r = &p->requests[s->waiting[*at]];
        uint32_t size = slow_size(r);

        const struct dispatch_request *oldest = &p->requests[s->waiting[0]];

        if (size >= *limit || (*at > 0 && size > 0 && !is_patient(oldest) &&
                               s->passed_tokens >= BYPASS * tokens_of(oldest)))
            continue;
        s->n_decisions++;
        if (!slow_fits(&p->rig, r)) {
            *limit = size;
            continue;
        }
        s->passed_tokens =
            *at == 0 ? 0 : s->passed_tokens + (size > 0 ? tokens_of(r) : 0);
        s->n_waiting--;
        memmove(&s->waiting[*at], &s->waiting[*at + 1],
                (s->n_waiting - *at) * sizeof(s->waiting[0]));
        return r;
    }
    return NULL;
}

static void slow_round(struct slow *s, struct passing *p)
{
    struct dispatch_request *want, *got;
    uint32_t limit = DISPATCH_SIZES;
    size_t at = 0;

    do {
        want = slow_next(s, p, &at, &limit);
        got = dispatch_next(&p->rig.dispatch, NOW_US, &p->rig.order);
        CU_ASSERT_PTR_EQUAL(got, want);
        if (got)
            passing_sent(p, (size_t)(got - p->requests));
    } while (want && got == want);
}

static void slow_arrival(struct slow *s, struct passing *p, size_t i)
{
    struct dispatch_request *r = &p->requests[i];
    bool fits = slow_fits(&p->rig, r) &&
                (r->ask.max_output_tokens == 1 || s->n_waiting == 0);

    s->n_decisions++;
    dispatch_place(&p->rig.dispatch, r, NOW_US, &p->rig.order);
    CU_ASSERT_EQUAL(p->rig.order.action, fits ? DISPATCH_SEND : DISPATCH_WAIT);
    if (fits)
        passing_sent(p, i);
    else
        s->waiting[s->n_waiting++] = i;
}

static struct dispatch_request random_request(uint64_t *random, size_t n)
{
    int64_t tokens = below(random, 2) == 0 ? 2000 + (int64_t)below(random, 2800)
                                           : 1 + (int64_t)below(random, 600);
    int64_t most = 1 + (int64_t)below(random, 4);

    return (struct dispatch_request){.ask = {.request_id = n + 1,
                                             .n_tokens = tokens,
                                             .max_output_tokens = most},
                                     .arrived_us = arrived(random),
                                     .slo_ttft_us = far_slo(random)};
}

/* Returns the longest wait list that somebody was sent from. */
static size_t check_rounds(uint64_t seed)
{
    struct passing *p = malloc(sizeof(*p));
    struct slow s = {.n_waiting = 0};
    unsigned failed = CU_get_number_of_failures();
    uint64_t random = seed;
    size_t n = 0, longest = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    passing_init(p, false);
    while ((n < PASSING || p->n_running > 0) &&
           CU_get_number_of_failures() == failed) {
        size_t waited = s.n_waiting;

        if (n < PASSING && (p->n_running == 0 || below(&random, 3) > 0)) {
            p->requests[n] = random_request(&random, n);
            slow_arrival(&s, p, n);
            n++;
            continue;
        }
        passing_done(p, below(&random, p->n_running));
        slow_round(&s, p);
        CU_ASSERT_EQUAL(p->rig.dispatch.n_decisions, s.n_decisions);
        if (s.n_waiting < waited && waited > longest)
            longest = waited;
    }
    CU_ASSERT_EQUAL(p->rig.dispatch.n_waiting, 0);
    if (CU_get_number_of_failures() > failed)
        printf("rounds: seed %llu\n", (unsigned long long)seed);
    rig_fini(&p->rig);
    free(p);
    return longest;
}

/* Whoever waits, a round decides on the same requests as the obvious version,
 * and sends the same ones in the same order. */
static void test_rounds(void)
{
    size_t longest = 0;

    for (uint64_t seed = 1; seed <= cases_of(100); seed++) {
        size_t one = check_rounds(seed);

        longest = one > longest ? one : longest;
    }
    CU_ASSERT(longest > 2 * DISPATCH_LOOK);
}

/* Two aggregated instances. One request waits for the room of the first: it is
 * not tried again before there is more, and who goes to the other one does not
 * count as passing it. */
PASSING_TEST(test_room_of_one, true)
{
    struct rig *r = &p->rig;

    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->prefill, 900, 4000, 2), 0);
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->prefill, 901, 400, 2), 0);
    ACCEPTS(r->pool, r->decode, .request_id = 902, .predicted_us = 1000000000);
    r->requests[0].ask.n_tokens = 3000;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(r->requests[0].room.instance, r->prefill);
    CU_ASSERT_EQUAL(r->requests[0].room.needs_tokens, 3100);
    CU_ASSERT_EQUAL(place(r, 1, NOW_US), DISPATCH_WAIT);
    r->requests[2].excluded[0] = r->prefill;
    r->requests[2].n_excluded = 1;
    CU_ASSERT_EQUAL(place(r, 2, NOW_US), DISPATCH_WAIT);
    dispatch_freed(&r->dispatch);
    r->dispatch.n_decisions = 0;
    CU_ASSERT_EQUAL(next(r, NOW_US), 1);
    CU_ASSERT_EQUAL(r->dispatch.passed_tokens, 110);
    CU_ASSERT_EQUAL(r->order.decision.decode, r->prefill);
    CU_ASSERT_EQUAL(next(r, NOW_US), 2);
    CU_ASSERT_EQUAL(r->dispatch.passed_tokens, 110);
    CU_ASSERT_EQUAL(next(r, NOW_US), -1);
    CU_ASSERT_EQUAL(r->dispatch.n_decisions, 2);
    CU_ASSERT_EQUAL(pool_get(r->pool, r->prefill)->awaited_tokens, 3100);
    /* More room, but not enough; then enough. */
    CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->prefill, 901), 0);
    dispatch_freed(&r->dispatch);
    CU_ASSERT_EQUAL(next(r, NOW_US), -1);
    CU_ASSERT_EQUAL(r->dispatch.n_decisions, 3);
    CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->prefill, 900), 0);
    dispatch_freed(&r->dispatch);
    CU_ASSERT_EQUAL(next(r, NOW_US), 0);
    CU_ASSERT_EQUAL(pool_get(r->pool, r->prefill)->awaited_tokens, 0);
}

/* Two decode instances of 5000 tokens, 2900 and 3100 of them in use. The oldest
 * request needs 3100 and has been passed for long enough: the instance with
 * more room is kept for it, and the next one, which fits into either, goes to
 * the other. */
PASSING_TEST(test_room_is_kept, false)
{
    struct rig *r = &p->rig;
    uint32_t other;

    other = add_batch(r, ROLE_DECODE, 0);
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, other, 900, 3000, 2), 0);
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->decode, 901, 2800, 2), 0);
    r->dispatch.passed_tokens = BYPASS * 3100;
    r->requests[0].ask.n_tokens = 3000;
    r->requests[0].arrived_us = NOW_US - 1000000000;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(r->requests[0].room.instance, r->decode);
    CU_ASSERT_FALSE(r->requests[0].room.only);
    for (int i = 1; i < 3; i++) {
        r->requests[i].ask.n_tokens = 1000;
        CU_ASSERT_EQUAL(place(r, i, NOW_US), DISPATCH_WAIT);
    }
    dispatch_freed(&r->dispatch);
    CU_ASSERT_EQUAL(next(r, NOW_US), 1);
    CU_ASSERT_EQUAL(r->order.decision.decode, other);
    CU_ASSERT_EQUAL(r->dispatch.passed_tokens, BYPASS * 3100);
    CU_ASSERT_EQUAL(next(r, NOW_US), -1);
    CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->decode, 901), 0);
    dispatch_freed(&r->dispatch);
    CU_ASSERT_EQUAL(next(r, NOW_US), 0);
    CU_ASSERT_EQUAL(r->order.decision.decode, r->decode);
    CU_ASSERT_EQUAL(next(r, NOW_US), 2);
    CU_ASSERT_EQUAL(r->order.decision.decode, r->decode);
}

/* Likewise for an oldest request that may not go to the other instance, as one
 * that was tried there. */
PASSING_TEST(test_room_is_kept_excluded, false)
{
    struct rig *r = &p->rig;
    uint32_t other;

    other = add_batch(r, ROLE_DECODE, 0);
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, other, 900, 3000, 2), 0);
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->decode, 901, 2800, 2), 0);
    r->dispatch.passed_tokens = BYPASS * 3100;
    r->requests[0].ask.n_tokens = 3000;
    r->requests[0].arrived_us = NOW_US - 1000000000;
    r->requests[0].excluded[0] = other;
    r->requests[0].n_excluded = 1;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_WAIT);
    r->requests[1].ask.n_tokens = 1000;
    CU_ASSERT_EQUAL(place(r, 1, NOW_US), DISPATCH_WAIT);
    dispatch_freed(&r->dispatch);
    CU_ASSERT_EQUAL(next(r, NOW_US), 1);
    CU_ASSERT_EQUAL(r->order.decision.decode, other);
}

static void add_pair(struct rig *r, unsigned role, uint8_t pair, int64_t used)
{
    uint32_t id = POOL_NO_INSTANCE;

    id = READY(r->pool, .role = role, .kv_capacity_tokens = 5000, .pair = pair,
               .block_tokens = BLOCK);
    if (used > 0)
        CU_ASSERT_EQUAL(pool_decode_accept(r->pool, id, 900 + id, used, 1002),
                        0);
}

/* Two groups of pairs: where the instance that is kept is the only one of its
 * group with room, the next request goes to the other group. */
PASSING_TEST(test_room_is_kept_of_pairs, true)
{
    struct rig *r = &p->rig;

    CU_ASSERT_EQUAL(pool_set_health(r->pool, r->prefill, HEALTH_GONE), 0);
    CU_ASSERT_EQUAL(pool_set_health(r->pool, r->decode, HEALTH_GONE), 0);
    for (uint8_t pair = 1; pair <= 2; pair++) {
        add_pair(r, ROLE_PREFILL, pair, 0);
        add_pair(r, ROLE_DECODE, pair, 1800);
        add_pair(r, ROLE_DECODE, pair, pair == 1 ? 3800 : 1800);
    }
    r->dispatch.passed_tokens = BYPASS * 3100;
    r->requests[0].ask.n_tokens = 3000;
    r->requests[0].arrived_us = NOW_US - 1000000000;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_WAIT);
    r->requests[1].ask.n_tokens = 1000;
    CU_ASSERT_EQUAL(place(r, 1, NOW_US), DISPATCH_WAIT);
    dispatch_freed(&r->dispatch);
    CU_ASSERT_EQUAL(next(r, NOW_US), 1);
}

/* Likewise where requests decode where they are prefilled: the oldest waits for
 * room on one instance, and a request that may not go there goes to the other.
 */
PASSING_TEST(test_room_is_kept_coupled, true)
{
    struct rig *r = &p->rig;

    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->prefill, 900, 3000, 2), 0);
    ACCEPTS(r->pool, r->decode, .request_id = 902, .predicted_us = 1000000000);
    r->requests[0].ask.n_tokens = 3000;
    r->requests[0].arrived_us = NOW_US - 1000000000;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(r->requests[0].room.instance, r->prefill);
    CU_ASSERT_TRUE(r->requests[0].room.only);
    for (int i = 1; i < 3; i++) {
        r->requests[i].ask.n_tokens = 1000;
        CU_ASSERT_EQUAL(place(r, i, NOW_US), DISPATCH_WAIT);
    }
    r->requests[2].excluded[0] = r->prefill;
    r->requests[2].n_excluded = 1;
    r->dispatch.passed_tokens = BYPASS * 3100;
    dispatch_freed(&r->dispatch);
    CU_ASSERT_EQUAL(next(r, NOW_US), 2);
    CU_ASSERT_EQUAL(r->order.decision.decode, r->decode);
    CU_ASSERT_EQUAL(next(r, NOW_US), -1);
}

static uint32_t add_linked(struct rig *r, unsigned role)
{
    return READY(r->pool, .role = role, .kv_capacity_tokens = 5000,
                 .max_batch = 8, .link_bytes_per_s = 1e6,
                 .block_tokens = BLOCK);
}

/* One prefill and one decode instance under plan, and so many bytes of KV on
 * their way to it. */
static void rig_init_linked(struct rig *r, int64_t bytes)
{
    struct schedule_config config = {.policy = schedule_policy_by_name("plan")};

    rig_init(r);
    scheduler_free(r->scheduler);
    r->scheduler = scheduler_new(
        &config,
        &(struct estimate_model){
            .cost = &r->cost, .block_tokens = BLOCK, .kv_bytes_per_token = 1},
        r->pool, r->index);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->scheduler);
    r->dispatch.scheduler = r->scheduler;
    r->prefill = add_linked(r, ROLE_PREFILL);
    r->decode = add_linked(r, ROLE_DECODE);
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->decode, 99, 1, 2), 0);
    PUSHES(r->pool, r->decode, 99, r->prefill, bytes, NOW_US);
}

/* Behind a second of KV on its way to where it decodes a request waits; a link
 * that is freed means a round of tries only then. */
static void test_wait_for_link(void)
{
    struct rig r;

    rig_init_linked(&r, 1000000);
    dispatch_link_freed(&r.dispatch);
    CU_ASSERT_FALSE(r.dispatch.room);
    r.requests[0].slo_ttft_us = 4000000;
    r.requests[0].slo_tbt_us = 200000;
    r.requests[1].slo_ttft_us = 3500000;
    r.requests[1].slo_tbt_us = 200000;
    CU_ASSERT_EQUAL(place(&r, 0, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(place(&r, 1, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(next(&r, NOW_US), -1);
    CU_ASSERT_EQUAL(next(&r, NOW_US + 3500000), 1);
    CU_ASSERT_EQUAL(r.order.reason, DISPATCH_LINK_BUSY);
    CU_ASSERT_EQUAL(next(&r, NOW_US), -1);
    CU_ASSERT_EQUAL(pool_decode_started(r.pool, r.decode, 99), 0);
    CU_ASSERT_EQUAL(next(&r, NOW_US), -1);
    dispatch_link_freed(&r.dispatch);
    CU_ASSERT_EQUAL(next(&r, NOW_US), 0);
    CU_ASSERT_EQUAL(r.order.action, DISPATCH_SEND);
    CU_ASSERT_EQUAL(next(&r, NOW_US), -1);
    dispatch_link_freed(&r.dispatch);
    CU_ASSERT_FALSE(r.dispatch.room);
    rig_fini(&r);
}

/* Those who wait for a link hold up who may have to do so, too, and nobody
 * else, however many they are. */
static void test_links_hold_up(void)
{
    struct rig r;
    int last = REQUESTS - 1;

    rig_init_linked(&r, 10000000);
    for (int i = 0; i < last; i++) {
        r.requests[i].slo_ttft_us = 60000000;
        r.requests[i].slo_tbt_us = 200000;
        CU_ASSERT_EQUAL(place(&r, i, NOW_US), DISPATCH_WAIT);
        CU_ASSERT_EQUAL(r.dispatch.n_for_link, (uint64_t)i + 1);
    }
    r.requests[last].ask.max_output_tokens = 1;
    CU_ASSERT_EQUAL(place(&r, last, NOW_US), DISPATCH_SEND);
    dispatch_freed(&r.dispatch);
    CU_ASSERT_EQUAL(next(&r, NOW_US), -1);
    CU_ASSERT_EQUAL(r.dispatch.n_for_link, (uint64_t)last);
    CU_ASSERT_EQUAL(r.dispatch.n_link_missed, DISPATCH_LOOK);
    for (int i = 0; i < last; i++)
        dispatch_forget(&r.dispatch, &r.requests[i]);
    CU_ASSERT_EQUAL(r.dispatch.n_for_link, 0);
    rig_fini(&r);
}

/* Behind who waits for room, and not for a link, nobody waits for one. */
PASSING_TEST(test_behind_room, false)
{
    struct rig *r = &p->rig;

    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->decode, 900, 4000, 2), 0);
    r->requests[0].ask.n_tokens = 3000;
    r->requests[1].slo_ttft_us = 4000000;
    r->requests[1].slo_tbt_us = 200000;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(place(r, 1, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(r->order.decision.verdict, SCHEDULE_ACCEPT);
    CU_ASSERT_EQUAL(r->dispatch.n_for_link, 0);
    CU_ASSERT_EQUAL(next(r, NOW_US + 4000000), 1);
    CU_ASSERT_EQUAL(r->order.reason, DISPATCH_WAITED_TOO_LONG);
}

/* Two aggregated instances with room for one: where a prefill and its decode
 * are over, the next one finds room. */
static void done_at(struct rig *r, uint32_t instance, int i)
{
    r->prefill = r->decode = instance;
    done(r, i);
}

/* Requests of an adapter that one instance has, and that is full, hold up each
 * other, and who would take what they wait for, and nobody else. */
RIG_TEST(test_reach)
{
    uint64_t first = 1u;

    uint32_t a = add(r, ROLE_PREFILL | ROLE_DECODE);
    uint32_t b = add(r, ROLE_PREFILL | ROLE_DECODE);

    for (int i = 0; i < REQUESTS; i++)
        if (i < 2 || i == 4)
            r->requests[i].ask.eligible = &first;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(place(r, 1, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(place(r, 2, NOW_US), DISPATCH_SEND); /* passes */
    CU_ASSERT_EQUAL(r->order.decision.prefill, b);
    CU_ASSERT_EQUAL(place(r, 3, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(place(r, 4, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(place(r, 5, NOW_US), DISPATCH_WAIT);
    done_at(r, b, 2);
    CU_ASSERT_EQUAL(next(r, NOW_US), 3);
    CU_ASSERT_EQUAL(next(r, NOW_US), -1);
    /* No arrival takes what the oldest is about to get; it gets it, and the
     * other ones of its adapter wait for the next. */
    done_at(r, a, 0);
    CU_ASSERT_EQUAL(place(r, 6, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(next(r, NOW_US), 1);
    CU_ASSERT_EQUAL(r->order.decision.prefill, a);
    CU_ASSERT_EQUAL(next(r, NOW_US), -1);
    done_at(r, b, 3);
    CU_ASSERT_EQUAL(next(r, NOW_US), 5);
    done_at(r, b, 5);
    CU_ASSERT_EQUAL(next(r, NOW_US), 6);
    CU_ASSERT_EQUAL(next(r, NOW_US), -1);
    done_at(r, a, 1);
    CU_ASSERT_EQUAL(next(r, NOW_US), 4);
    CU_ASSERT_EQUAL(r->order.decision.prefill, a);
    CU_ASSERT_EQUAL(r->dispatch.n_waiting, 0);
    CU_ASSERT_EQUAL(r->dispatch.reach.n_anywhere, 0);
    for (uint32_t i = 0; i < DISPATCH_REACHES; i++)
        CU_ASSERT_EQUAL(r->dispatch.reach.sets[i].n, 0);
}

/* A request leaves within the round in which it found no room: the instances
 * that it might have gone to are its shell's again, and are not looked at. */
RIG_TEST(test_reach_left)
{
    uint64_t first = 1u, alike = 1u, second = 2u;

    (void)add(r, ROLE_PREFILL | ROLE_DECODE);
    uint32_t b = add(r, ROLE_PREFILL | ROLE_DECODE);
    for (int i = 0; i < 5; i++)
        r->requests[i].ask.eligible = i < 2 ? &first : &second;
    r->requests[5].ask.eligible = &alike;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(place(r, 1, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(place(r, 5, NOW_US), DISPATCH_WAIT); /* then the oldest */
    CU_ASSERT_EQUAL(place(r, 2, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(place(r, 3, NOW_US), DISPATCH_WAIT);
    CU_ASSERT_EQUAL(place(r, 4, NOW_US), DISPATCH_WAIT);
    done_at(r, b, 2);
    CU_ASSERT_EQUAL(next(r, NOW_US), 3); /* the first one found none */
    CU_ASSERT_TRUE(r->dispatch.in_round);
    done_at(r, b, 3);
    dispatch_forget(&r->dispatch, &r->requests[1]);
    first = 2u;
    CU_ASSERT_EQUAL(next(r, NOW_US), 4);
}

/* An instance without the adapter joins while its requests wait: it is free for
 * others at once. */
RIG_TEST(test_reach_joined)
{
    uint64_t first = 1u;

    uint32_t a = add(r, ROLE_PREFILL | ROLE_DECODE);

    for (int i = 0; i < 2; i++)
        r->requests[i].ask.eligible = &first;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(place(r, 1, NOW_US), DISPATCH_WAIT);
    uint32_t b = add(r, ROLE_PREFILL | ROLE_DECODE);
    dispatch_freed(&r->dispatch);
    CU_ASSERT_EQUAL(next(r, NOW_US), -1);
    CU_ASSERT_EQUAL(place(r, 2, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(r->order.decision.prefill, b);
    done_at(r, a, 0);
    CU_ASSERT_EQUAL(next(r, NOW_US), 1);
}

enum { AGGREGATED = 3, STEPS = 200 };

/* Instances with room for one, and requests that may go to some of them. */
struct apart {
    struct rig rig;
    uint32_t ids[AGGREGATED];
    int busy[AGGREGATED];           /* the request there, or -1 */
    uint64_t sets[1 << AGGREGATED]; /* the number of each is its bits */
    bool waits[REQUESTS], sent[REQUESTS];
};

static uint64_t set_of(const struct apart *a, int i)
{
    return *a->rig.requests[i].ask.eligible;
}

/* It was sent where it may go, and took nothing from an older one. */
static void check_sent(struct apart *a, int i)
{
    int at = 0;

    while (a->ids[at] != a->rig.order.decision.prefill)
        at++;
    CU_ASSERT_EQUAL(a->busy[at], -1);
    a->busy[at] = i;
    a->waits[i] = false;
    a->sent[i] = true;
    CU_ASSERT_TRUE(set_of(a, i) >> at & 1);
    for (int k = 0; k < REQUESTS; k++)
        if (a->waits[k] &&
            a->rig.requests[k].line.seq < a->rig.requests[i].line.seq)
            CU_ASSERT_FALSE(set_of(a, k) >> at & 1);
}

/* Nobody waits who may go where nobody is. */
static void check_waiting(const struct apart *a)
{
    for (int k = 0; k < REQUESTS; k++)
        for (int at = 0; at < AGGREGATED && a->waits[k]; at++)
            CU_ASSERT_TRUE(a->busy[at] >= 0 || !(set_of(a, k) >> at & 1));
}

static void apart_arrives(struct apart *a, int i, uint64_t *random)
{
    struct dispatch_request *r = &a->rig.requests[i];

    if (a->waits[i] || a->sent[i])
        return;
    *r = (struct dispatch_request){
        .ask = {.request_id = (uint64_t)i,
                .n_tokens = 100,
                .max_output_tokens = 10,
                .eligible = &a->sets[1 + below(random, (1 << AGGREGATED) - 1)]},
        .arrived_us = NOW_US};
    a->waits[i] = place(&a->rig, i, NOW_US) == DISPATCH_WAIT;
    if (!a->waits[i])
        check_sent(a, i);
}

static void apart_ends(struct apart *a, int at)
{
    int i = a->busy[at];

    if (i < 0)
        return;
    a->busy[at] = -1;
    a->sent[i] = false;
    done_at(&a->rig, a->ids[at], i);
    while ((i = next(&a->rig, NOW_US)) >= 0)
        check_sent(a, i);
}

/* Whatever sets of instances requests may go to: each takes room from no older
 * one, and none waits beside room. */
static void test_reach_random(void)
{
    for (uint64_t seed = 1; seed <= cases_of(20); seed++) {
        struct apart a = {.busy = {-1, -1, -1}};
        unsigned failed = CU_get_number_of_failures();
        uint64_t random = seed;

        rig_init(&a.rig);
        for (int at = 0; at < AGGREGATED; at++)
            a.ids[at] = add(&a.rig, ROLE_PREFILL | ROLE_DECODE);
        for (uint64_t set = 0; set < 1 << AGGREGATED; set++)
            a.sets[set] = set;
        for (int step = 0; step < STEPS; step++) {
            if (below(&random, 3) > 0)
                apart_arrives(&a, (int)below(&random, REQUESTS), &random);
            else
                apart_ends(&a, (int)below(&random, AGGREGATED));
            check_waiting(&a);
        }
        if (CU_get_number_of_failures() > failed)
            printf("reach: seed %llu\n", (unsigned long long)seed);
        rig_fini(&a.rig);
    }
}

/* More sets of instances than are told apart hold up everybody; the set of all
 * instances is none. */
RIG_TEST(test_reaches)
{
    uint64_t sets[DISPATCH_REACHES + 1], all = 3u;
    struct reach reach = {.n_anywhere = 0};
    struct schedule_decision second = {.prefill = 0};
    struct schedule_request ask = {.eligible = &all};

    add(r, ROLE_PREFILL);
    second.prefill = add(r, ROLE_PREFILL | ROLE_DECODE);
    second.decode = second.prefill;
    uint32_t place = reach_add(&reach, &ask);
    CU_ASSERT(place < DISPATCH_REACHES);
    CU_ASSERT_FALSE(reach_takes(&reach, REACH_MISSED, r->pool, &second));
    reach_miss(&reach, r->pool, &ask, place);
    CU_ASSERT_TRUE(reach_takes(&reach, REACH_MISSED, r->pool, &second));
    CU_ASSERT_FALSE(reach_missed(&reach, &ask));
    reach_begin(&reach);
    CU_ASSERT_FALSE(reach_takes(&reach, REACH_MISSED, r->pool, &second));
    reach_remove(&reach, place);
    for (uint32_t i = 0; i <= DISPATCH_REACHES; i++) {
        CU_ASSERT_FALSE(reach_takes(&reach, REACH_WAITING, r->pool, &second));
        sets[i] = 1u;
        ask.eligible = &sets[i];
        for (int times = 0; times < 2; times++)
            CU_ASSERT_EQUAL(reach_add(&reach, &ask) < DISPATCH_REACHES,
                            i < DISPATCH_REACHES);
    }
    CU_ASSERT_TRUE(reach_takes(&reach, REACH_WAITING, r->pool, &second));
    CU_ASSERT_FALSE(reach_takes_of(&ask, r->pool, &second));
    ask = (struct schedule_request){.only = second.prefill};
    CU_ASSERT_TRUE(reach_takes_of(&ask, r->pool, &second));
}

/* How many wait for a place in a queue: counted while a request waits, however
 * often it is told what it lacks, and given back when it leaves. */
RIG_TEST(test_waits_for_a_queue)
{
    struct dispatch *d = &r->dispatch;

    held_lacks(d, &r->requests[0], false, true); /* it does not wait yet */
    CU_ASSERT_EQUAL(d->n_for_queue, 0);
    held_add(d, &r->requests[0]);
    held_add(d, &r->requests[1]);
    CU_ASSERT_EQUAL(d->n_for_queue, 1);
    held_lacks(d, &r->requests[0], false, true);
    held_lacks(d, &r->requests[1], false, true);
    CU_ASSERT_EQUAL(d->n_for_queue, 2);
    held_lacks(d, &r->requests[1], true, false);
    CU_ASSERT_EQUAL(d->n_for_queue, 1);
    CU_ASSERT_EQUAL(d->n_for_link, 1);
    held_remove(d, &r->requests[0]);
    CU_ASSERT_EQUAL(d->n_for_queue, 0);
    held_remove(d, &r->requests[1]);
    CU_ASSERT_EQUAL(d->n_for_link, 0);
    CU_ASSERT_EQUAL(d->n_waiting, 0);
}

/* Two tenants: a decode's room is charged for the answer that is expected, and
 * in the end for what it was. */
PASSING_TEST(test_charge_of_decode, false)
{
    struct rig *r = &p->rig;
    const double *used_us;

    r->requests[0].tenant = 7;
    r->requests[1].tenant = 8;
    r->requests[0].ask.max_output_tokens = 1;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    CU_ASSERT_EQUAL(place(r, 1, NOW_US), DISPATCH_SEND);
    used_us = r->dispatch.share.tenants[r->requests[0].place].used_us;
    CU_ASSERT_DOUBLE_EQUAL(used_us[SHARE_PREFILL], 100000.0, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(used_us[SHARE_DECODE], 0.0, 1e-6);
    /* 110 of 5000 tokens, for 10 steps of 100 us. */
    used_us = r->dispatch.share.tenants[r->requests[1].place].used_us;
    CU_ASSERT_DOUBLE_EQUAL(used_us[SHARE_DECODE], 1000.0 * 110 / 5000, 1e-6);
    dispatch_decoded(&r->dispatch, &r->requests[1], 50, NOW_US);
    CU_ASSERT_DOUBLE_EQUAL(used_us[SHARE_DECODE], 5000.0 * 150 / 5000, 1e-6);
    dispatch_decoded(&r->dispatch, &r->requests[1], 50, NOW_US);
    CU_ASSERT_DOUBLE_EQUAL(used_us[SHARE_DECODE], 5000.0 * 150 / 5000, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(used_us[SHARE_PREFILL], 100000.0, 1e-6);
}

/* Where places are what is short, twice the answer is charged twice. */
RIG_TEST(test_charge_of_place)
{
    const double *used_us;

    use_plan(r, "rho", 0);
    r->dispatch.share.matters = true;
    CU_ASSERT_EQUAL(place(r, 0, NOW_US), DISPATCH_SEND);
    used_us = r->dispatch.share.tenants[r->requests[0].place].used_us;
    /* The one place, for 10 steps of 100 us. */
    CU_ASSERT_DOUBLE_EQUAL(used_us[SHARE_DECODE], 1000.0, 1e-6);
    dispatch_decoded(&r->dispatch, &r->requests[0], 20, NOW_US);
    CU_ASSERT_DOUBLE_EQUAL(used_us[SHARE_DECODE], 2000.0, 1e-6);
}

static const struct suite_test tests[] = {
    {"without instances", test_without_instances},
    {"SLO left", test_slo_left},
    {"forecast", test_forecast},
    {"unpredicted", test_unpredicted},
    {"wait", test_wait},
    {"wait with SLO", test_wait_with_slo},
    {"retry", test_retry},
    {"retry of eligible", test_retry_of_eligible},
    {"who waits for some instances", test_reach},
    {"an instance joins that they may not take", test_reach_joined},
    {"who leaves within a round", test_reach_left},
    {"any sets of instances", test_reach_random},
    {"sets of instances", test_reaches},
    {"a retry is due", test_retry_is_due},
    {"price", test_price},
    {"price of the late", test_price_of_late},
    {"passing", test_passing},
    {"all leave while others pass", test_passing_left},
    {"any leave at any time", test_leaving},
    {"rounds", test_rounds},
    {"room of one", test_room_of_one},
    {"room is kept", test_room_is_kept},
    {"room is kept, excluded", test_room_is_kept_excluded},
    {"room is kept, of pairs", test_room_is_kept_of_pairs},
    {"room is kept, aggregated", test_room_is_kept_coupled},
    {"wait for a link", test_wait_for_link},
    {"links hold up", test_links_hold_up},
    {"behind room", test_behind_room},
    {"waits for a queue", test_waits_for_a_queue},
    {"charge of a decode", test_charge_of_decode},
    {"charge of a place", test_charge_of_place},
};
SUITE("dispatch", tests)
