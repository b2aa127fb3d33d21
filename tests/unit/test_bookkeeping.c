/*
 * What is booked comes back. Random clusters under random policies serve random
 * requests, which wait, are refused, cancelled, fail and are tried again, while
 * instances come and go. The pool's own invariants hold after each step; when
 * all requests have ended, nothing is left of them: no place in a queue or a
 * batch, no KV, no work, no link or tier that is busy, nobody in a line.
 */
#include <stdio.h>
#include <string.h>

#include "conductor/core/dispatch/dispatch.h"
#include "conductor/core/pool/internal.h"
#include "tests/unit/cases.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/pool_check.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

enum {
    BLOCK = 16,
    SLOTS = 6,
    LIVE = 32,
    CHAINS = 4, /* prompts of one chain begin alike */
    LONGEST = 24,
    STEPS = 250,
};

enum state { ENDED, WAITS, SENT };

struct live {
    struct dispatch_request request;
    enum state state;
    uint32_t prefill, decode; /* pool ids of what it holds there */
    bool prefills, decodes, begun;
    int chain;
};

struct rig {
    struct random_state random;
    struct cost_model cost, other;
    struct pool *pool;
    struct prefix_index *index;
    struct scheduler *scheduler;
    struct dispatch dispatch;
    struct live live[LIVE];
    uint64_t keys[CHAINS][LONGEST];
    double push[2];
    uint64_t last_id;
    int64_t now_us;
    bool coupled;
};

static uint32_t below(struct rig *r, uint32_t n)
{
    return random_below(&r->random, n);
}

static bool one_in(struct rig *r, uint32_t n)
{
    return below(r, n) == 0;
}

/* Of all sizes. */
static int64_t any(struct rig *r, uint32_t bits)
{
    return (int64_t)(random_u64(&r->random) >> (64 - 1 - below(r, bits)));
}

static void add_instance(struct rig *r)
{
    uint32_t id;
    struct pool_instance_config config = {
        .name = "i",
        .role = r->coupled && !one_in(r, 3) ? ROLE_BOTH : 1 + below(r, 3),
        .kv_capacity_tokens = (1 + (int64_t)below(r, 100)) * BLOCK,
        .link_bytes_per_s = one_in(r, 8) ? 0.0 : (double)any(r, 36),
        .block_tokens = BLOCK,
        .max_batch = below(r, 5),
        .window_tokens = one_in(r, 6) ? 200 : 0,
        .tier_bytes_per_s = {[TIER_DISK] = (double)any(r, 30)},
        .pair = r->coupled ? (uint8_t)below(r, 3) : 0,
    };

    if (pool_add(r->pool, &config, &id) < 0)
        return;
    CU_ASSERT_EQUAL(pool_set_health(r->pool, id, HEALTH_READY), 0);
    if (one_in(r, 3))
        CU_ASSERT_EQUAL(pool_set_cost(r->pool, id, &r->other), 0);
    dispatch_freed(&r->dispatch);
}

static void draw_cost(struct rig *r, struct cost_model *cost)
{
    static const double times[] = {0.0, 0.01, 1.0, 1.0, 100.0};
    double slower = times[below(r, 5)];

    *cost = (struct cost_model){
        .prefill = {100.0 * slower, 10.0 * slower, 0.5 * slower, 0.01 * slower},
        .decode = {50.0 * slower, 100.0 * slower, 0.1 * slower},
        .range = {1, 10000, 10000, 64, 1000000},
    };
}

/* Each option is as at first, at a bound, or in between. */
static void draw_options(struct rig *r, const struct schedule_policy *policy,
                         double *options)
{
    policy_options_init(policy, options);
    for (size_t i = 0; i < policy->n_options; i++) {
        const struct policy_option *o = &policy->options[i];
        double value = below(r, 3) > 0 ? o->initial
                       : one_in(r, 2)  ? o->min
                                       : o->max;

        CU_ASSERT_EQUAL(policy_options_set(policy, options, o->name, value), 0);
    }
}

static const struct schedule_policy *draw_policy(struct rig *r)
{
    uint32_t n = 0;

    while (schedule_policy_at(n))
        n++;
    return one_in(r, 3) ? schedule_policy_at(below(r, n))
                        : schedule_policy_by_name("plan");
}

static void draw_pool(struct rig *r)
{
    struct pool_config config = pool_config_default;
    uint32_t n = 0;

    while (queue_order_name(n))
        n++;
    config.max_instances = SLOTS;
    config.max_waiting = 1 + below(r, 12);
    config.max_running = 1 + below(r, 3);
    config.max_decodes = 1 + below(r, 12);
    config.max_pending_blocks = 1 + below(r, 300);
    config.max_bookings = 4096;
    config.order = queue_order_by_name(queue_order_name(below(r, n)));
    config.patience_us = 1 + any(r, 26);
    config.uncorrected = one_in(r, 4);
    config.shared_steps = one_in(r, 2);
    config.step_tokens = below(r, 64);
    config.grows = one_in(r, 2);
    r->pool = pool_new(&config);
}

static void rig_init(struct rig *r, uint64_t seed)
{
    double options[POLICY_OPTIONS_MAX];
    struct schedule_config config = {.options = options};

    *r = (struct rig){.now_us = 5000000, .push = {500.0, 0.5}};
    random_init(&r->random, seed);
    r->coupled = one_in(r, 2);
    draw_cost(r, &r->cost);
    draw_cost(r, &r->other);
    draw_pool(r);
    r->index = core_index(SLOTS, PREFIX_INDEX_BYTES_MIN);
    config.policy = draw_policy(r);
    config.admission = one_in(r, 4) ? "none" : "plain";
    draw_options(r, config.policy, options);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->pool);
    r->scheduler =
        scheduler_new(&config,
                      &(struct estimate_model){
                          .cost = &r->cost,
                          .block_tokens = BLOCK,
                          .kv_bytes_per_token = 1 + any(r, 18),
                          .layers = below(r, 3),
                          .coupled = r->coupled,
                          .push = r->coupled && one_in(r, 2) ? r->push : NULL,
                          .step_tokens = r->coupled ? below(r, 64) : 0,
                      },
                      r->pool, r->index);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->scheduler);
    dispatch_init(&r->dispatch);
    r->dispatch.scheduler = r->scheduler;
    r->dispatch.max_retries = 2;
    r->dispatch.unpredicted = one_in(r, 6);
    for (int c = 0; c < CHAINS; c++)
        for (int b = 0; b < LONGEST; b++)
            r->keys[c][b] =
                random_mix((uint64_t)(b < 4 ? b : 1000 * (c + 1) + b)) | 1;
    for (uint32_t n = 1 + below(r, SLOTS); n > 0; n--)
        add_instance(r);
}

static void rig_fini(struct rig *r)
{
    CORE_FREE(r);
}

static void carry_out(struct rig *r, struct live *l,
                      const struct dispatch_order *order)
{
    CU_ASSERT_EQUAL(l->request.waits, order->action == DISPATCH_WAIT);
    l->state = order->action == DISPATCH_SEND   ? SENT
               : order->action == DISPATCH_WAIT ? WAITS
                                                : ENDED;
    if (l->state != SENT)
        return;
    l->prefill = order->decision.prefill;
    l->decode = order->decision.decode;
    l->prefills = true;
    l->decodes = l->decode != POOL_NO_INSTANCE;
    l->begun = false;
    CU_ASSERT_PTR_NOT_NULL(pool_get(r->pool, l->prefill));
}

static void place(struct rig *r, struct live *l)
{
    struct dispatch_order order;

    l->request.ask.request_id = ++r->last_id;
    dispatch_place(&r->dispatch, &l->request, r->now_us, &order);
    carry_out(r, l, &order);
}

static void go_on(struct rig *r)
{
    struct dispatch_request *next;
    struct dispatch_order order;

    while ((next = dispatch_next(&r->dispatch, r->now_us, &order)))
        carry_out(r, (struct live *)(void *)next, &order);
}

static void arrive(struct rig *r, struct live *l)
{
    static const int32_t priorities[] = {0, 0, 0, 7, INT32_MIN, INT32_MAX};
    int64_t n =
        one_in(r, 10) ? 1 + any(r, 40) : 1 + (int64_t)below(r, LONGEST * BLOCK);
    int64_t blocks = n / BLOCK < LONGEST ? n / BLOCK : LONGEST;

    *l = (struct live){.chain = (int)below(r, CHAINS)};
    l->request = (struct dispatch_request){
        .ask = {.keys = r->keys[l->chain],
                .n_keys = (size_t)blocks,
                .n_tokens = n,
                .max_output_tokens = one_in(r, 3) ? 1 : 1 + any(r, 32)},
        .arrived_us = r->now_us,
        .slo_ttft_us = one_in(r, 2) ? 0 : 1 + any(r, 50),
        .slo_tbt_us = one_in(r, 2) ? 0 : 1 + any(r, 50),
        .length_key = below(r, 3),
        .tenant = below(r, 3),
        .weight = (double)below(r, 3),
        .priority = priorities[below(r, 6)],
    };
    place(r, l);
}

/* What it holds is given back, wherever that still is. */
static void give_back(struct rig *r, struct live *l)
{
    uint64_t id = l->request.ask.request_id;
    bool decode_first = one_in(r, 2);

    if (l->decodes && decode_first)
        (void)pool_decode_done(r->pool, l->decode, id);
    CU_ASSERT(pool_check(r->pool));
    if (l->prefills)
        (void)pool_prefill_cancel(r->pool, l->prefill, id, r->now_us);
    if (l->decodes && !decode_first)
        (void)pool_decode_done(r->pool, l->decode, id);
    l->prefills = l->decodes = false;
    l->state = ENDED;
    dispatch_freed(&r->dispatch);
}

static void leave(struct rig *r, struct live *l)
{
    if (l->state == WAITS)
        dispatch_forget(&r->dispatch, &l->request);
    give_back(r, l);
}

/* Its attempt fails; it may be tried again elsewhere. */
static void fail(struct rig *r, struct live *l, uint32_t blamed)
{
    give_back(r, l);
    if (dispatch_failed(&r->dispatch, &l->request, blamed, one_in(r, 4)))
        place(r, l);
}

static void compute(struct rig *r, struct live *l)
{
    uint64_t id = l->request.ask.request_id;
    const struct pool_instance *i = pool_get(r->pool, l->prefill);

    if (!l->begun) {
        l->begun =
            pool_prefill_started(r->pool, l->prefill, id, r->now_us) == 0;
        if (l->begun && l->decodes)
            CU_ASSERT_EQUAL(
                pool_decode_comes(r->pool, l->decode, id, r->now_us), 0);
        return;
    }
    (void)!prefix_index_stored(r->index, i->slot,
                               one_in(r, 3) ? TIER_DISK : TIER_DEVICE, 0,
                               r->keys[l->chain], l->request.ask.n_keys);
    CU_ASSERT_EQUAL(
        pool_prefill_done(r->pool, l->prefill, id, any(r, 40) - 1, r->now_us),
        0);
    l->prefills = false;
    dispatch_freed(&r->dispatch);
    if (l->decodes)
        CU_ASSERT_EQUAL(pool_decode_started(r->pool, l->decode, id), 0)
    else
        l->state = ENDED;
}

static void decode(struct rig *r, struct live *l)
{
    uint64_t id = l->request.ask.request_id;
    int64_t most = l->request.ask.max_output_tokens;
    int64_t n = 1 + any(r, 20);

    n = n < most ? n : most;
    if (!one_in(r, 3)) {
        (void)pool_decode_progress(r->pool, l->decode, id, n);
        return;
    }
    dispatch_answered(&r->dispatch, &l->request, n);
    dispatch_told(&r->dispatch, &l->request, l->request.ask.n_tokens,
                  (int64_t)below(r, 300), r->now_us);
    give_back(r, l);
}

static void remove_instance(struct rig *r, uint32_t slot)
{
    const struct pool_instance *i = pool_at(r->pool, slot);
    uint32_t id = i ? i->id : POOL_NO_INSTANCE;

    if (!i)
        return;
    CU_ASSERT_EQUAL(pool_remove(r->pool, id, r->now_us), 0);
    prefix_index_cleared(r->index, slot);
    for (struct live *l = r->live; l < r->live + LIVE; l++)
        if ((l->prefills && l->prefill == id) ||
            (l->decodes && l->decode == id))
            fail(r, l, POOL_NO_INSTANCE);
}

static void report(struct rig *r, uint32_t slot)
{
    const struct pool_instance *i = pool_at(r->pool, slot);

    if (!i)
        return;
    (void)pool_link_observed(r->pool, i->id, any(r, 40), any(r, 30));
    (void)pool_set_others(r->pool, i->id, below(r, 4), any(r, 12));
    (void)!pool_set_health(r->pool, i->id,
                           one_in(r, 3) ? HEALTH_DRAINING : HEALTH_READY);
    dispatch_freed(&r->dispatch);
}

static void step(struct rig *r)
{
    struct live *l = &r->live[below(r, LIVE)];

    if (l->state == ENDED && !one_in(r, 4))
        arrive(r, l);
    else if (one_in(r, 12))
        leave(r, l);
    else if (l->state == SENT && one_in(r, 12))
        fail(r, l, l->prefill);
    else if (l->prefills)
        compute(r, l);
    else if (l->decodes)
        decode(r, l);
    if (one_in(r, 40))
        remove_instance(r, below(r, SLOTS));
    if (one_in(r, 25))
        add_instance(r);
    if (one_in(r, 10))
        report(r, below(r, SLOTS));
    if (one_in(r, 2))
        r->now_us += any(r, 24);
    if (!one_in(r, 3))
        go_on(r);
}

/* As long as prefills take from links and tiers what they have booked, no
 * channel is busy without one. */
static bool is_as_new(const struct pool *pool, const struct pool_instance *i,
                      int64_t now_us)
{
    bool free = i->egress_free_us <= now_us && i->ingress_free_us <= now_us;

    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        free = free && i->tier_free_us[t] <= now_us;
    return free && i->n_waiting + i->n_running + i->n_decodes == 0 &&
           i->load.cost_us == 0 && i->load.latest_ready_us == INT64_MIN &&
           i->load.latest_loading_us == 0 && i->prefill_tokens == 0 &&
           i->decode_kv_tokens == 0 && i->decode_reserved_tokens == 0 &&
           i->running_kv_tokens == 0 && i->push_out_bytes == 0 &&
           i->push_in_bytes == 0 && i->n_pushes_out + i->n_pushes_in == 0 &&
           pool_running_left_us(i, now_us) == 0 && pool->n_slots > i->slot;
}

static void check_end(struct rig *r)
{
    for (struct live *l = r->live; l < r->live + LIVE; l++)
        if (l->state != ENDED)
            leave(r, l);
    go_on(r);
    CU_ASSERT(pool_check(r->pool));
    CU_ASSERT_EQUAL(r->pool->bookings.n_used, 0);
    CU_ASSERT_EQUAL(r->pool->keys.used_units, 0);
    CU_ASSERT_EQUAL(r->pool->pending->n_used, 0);
    for (uint32_t s = 0; s < SLOTS; s++)
        if (pool_at(r->pool, s))
            CU_ASSERT(is_as_new(r->pool, pool_at(r->pool, s), r->now_us));
    CU_ASSERT_EQUAL(r->dispatch.n_waiting, 0);
    CU_ASSERT(TAILQ_EMPTY(&r->dispatch.waiting));
    for (uint32_t t = 0; t < SHARE_TENANTS; t++) {
        CU_ASSERT_PTR_NULL(r->dispatch.lines[t]);
        CU_ASSERT_EQUAL(r->dispatch.share.tenants[t].waiting, 0);
        CU_ASSERT_EQUAL(r->dispatch.share.tenants[t].patient, 0);
    }
}

static void test_all_comes_back(void)
{
    static struct rig r;

    for (uint64_t seed = 1; seed <= cases_of(1000); seed++) {
        unsigned failed = CU_get_number_of_failures();

        rig_init(&r, seed);
        for (int i = 0; i < STEPS; i++) {
            step(&r);
            CU_ASSERT(pool_check(r.pool));
            if (CU_get_number_of_failures() > failed) {
                printf("seed %llu, step %d\n", (unsigned long long)seed, i);
                break;
            }
        }
        check_end(&r);
        rig_fini(&r);
        if (CU_get_number_of_failures() > failed) {
            printf("seed %llu\n", (unsigned long long)seed);
            break;
        }
    }
}

static const struct suite_test tests[] = {
    {"all comes back", test_all_comes_back},
};
SUITE("bookkeeping", tests)
