/* Pairs in an aggregated pool: instances that prefill for others, those that
 * decode for them, and when these do both themselves. */
#include <string.h>

#include "conductor/core/schedule/schedule.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/suite.h"

enum { BLOCK = 100, N_KEYS = 20, PAIR = 3 };

/* prefill_us = 10 u, decode_step_us = 100 batch; a push takes 500 us and 2 for
 * each token. Nobody sends blocks to others. */
struct rig {
    struct cost_model cost;
    double push[2];
    struct pool *pool;
    struct prefix_index *index;
    struct scheduler *scheduler;
    uint64_t keys[N_KEYS];
    struct schedule_request request;
    struct schedule_decision decision;
    uint32_t ids[8];
};

static void rig_init(struct rig *r, const char *policy)
{
    struct pool_config pool = pool_config_default;

    memset(r, 0, sizeof(*r));
    r->cost.prefill[1] = 10;
    r->cost.decode[1] = 100;
    r->cost.range = (struct cost_model_range){1, 10000, 10000, 64, 1000000};
    r->push[0] = 500;
    r->push[1] = 2;
    pool.max_instances = 8;
    pool.max_waiting = 4;
    r->pool = pool_new(&pool);
    r->index = core_index(8, 1 << 15);
    struct estimate_model model = {.cost = &r->cost,
                                   .block_tokens = BLOCK,
                                   .kv_bytes_per_token = 1,
                                   .coupled = true,
                                   .step_tokens = 512,
                                   .push = r->push};
    r->scheduler = core_scheduler(policy, NULL, 0, &model, r->pool, r->index);
    for (uint64_t k = 0; k < N_KEYS; k++)
        r->keys[k] = 1000 + k;
    r->request = (struct schedule_request){.request_id = 1,
                                           .keys = r->keys,
                                           .n_keys = 10,
                                           .n_tokens = 10 * BLOCK + 50,
                                           .max_output_tokens = 20,
                                           .now_us = 1000000};
}

static void rig_fini(struct rig *r)
{
    CORE_FREE(r);
}

static void add(struct rig *r, unsigned role, uint8_t pair, uint32_t held)
{
    uint32_t slot = pool_slots(r->pool);

    r->ids[slot] =
        READY(r->pool, .role = role, .pair = pair, .kv_capacity_tokens = 5000);
    CU_ASSERT_EQUAL(
        prefix_index_stored(r->index, slot, TIER_DEVICE, 0, r->keys, held), 0);
}

/* Decides; p and d are places in ids. */
static void goes_to(struct rig *r, uint32_t p, uint32_t d)
{
    schedule_decide(r->scheduler, &r->request, &r->decision);
    CU_ASSERT_EQUAL(r->decision.verdict, SCHEDULE_ACCEPT);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[p]);
    CU_ASSERT_EQUAL(r->decision.decode, r->ids[d]);
}

static const char *const policies[] = {"plan", "least_loaded", "local_cache",
                                       "global_cache", "round_robin"};

/* Whatever the policy: the pair, although the decode instance alone would have
 * the first token sooner. Its push is in the TTFT. */
static void test_long(void)
{
    struct rig r;

    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        rig_init(&r, policies[i]);
        add(&r, ROLE_BOTH, PAIR, 0);
        add(&r, ROLE_PREFILL, PAIR, 0);
        goes_to(&r, 1, 0);
        CU_ASSERT_EQUAL(r.decision.n_candidates, 2);
        CU_ASSERT_TRUE(r.decision.candidates[0].spared);
        CU_ASSERT_EQUAL(r.decision.chosen.prefill_us, 10500);
        CU_ASSERT_EQUAL(r.decision.chosen.push_us, 500 + 2 * 1050);
        CU_ASSERT_EQUAL(r.decision.chosen.ttft_us, 13100);
        COMMIT(&r, decision);
        CU_ASSERT_EQUAL(pool_get(r.pool, r.ids[1])->n_waiting, 1);
        CU_ASSERT_EQUAL(pool_get(r.pool, r.ids[0])->n_decodes, 1);
        CU_ASSERT_EQUAL(pool_get(r.pool, r.ids[1])->n_decodes, 0);
        rig_fini(&r);
    }
}

#define RIG_TEST(test) \
    SUITE_TEST(test, struct rig, r, rig_init(r, "plan"), rig_fini(r))

/* What the decode instance has is not pushed: of two, the one that has more
 * decodes, and the TTFT says so; but not where it is that much slower. */
RIG_TEST(test_held_by_the_decode_instance)
{
    add(r, ROLE_BOTH, PAIR, 0);
    add(r, ROLE_BOTH, PAIR, 4);
    add(r, ROLE_PREFILL, PAIR, 6);
    goes_to(r, 2, 1);
    CU_ASSERT_TRUE(r->decision.candidates[0].spared);
    CU_ASSERT_TRUE(r->decision.candidates[1].spared);
    CU_ASSERT_EQUAL(r->decision.chosen.push_tokens, 650);
    CU_ASSERT_EQUAL(r->decision.chosen.push_us, 500 + 2 * 650);
    CU_ASSERT_EQUAL(r->decision.chosen.ttft_us, 4500 + 1800);
    /* 800 us sooner, 20 tokens: a step may take 40 us more; one of two 100. */
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->ids[1], 99, 50, 20), 0);
    goes_to(r, 2, 0);
    CU_ASSERT_EQUAL(r->decision.chosen.push_us, 500 + 2 * 1050);
    CU_ASSERT_EQUAL(r->decision.chosen.ttft_us, 4500 + 2600);
    r->request.max_output_tokens = 5;
    goes_to(r, 2, 1);
}

/* A pair whose decode instance is full comes behind who has room; and who waits
 * for it waits for any room, not for that of an instance which never decodes.
 */
RIG_TEST(test_no_room_to_decode)
{
    struct schedule_room room;

    add(r, ROLE_DECODE, PAIR, 0);
    add(r, ROLE_PREFILL, PAIR, 6);
    add(r, ROLE_BOTH, 0, 0);
    goes_to(r, 1, 0);
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->ids[0], 99, 4000, 500), 0);
    goes_to(r, 2, 2);
    CU_ASSERT_TRUE(r->decision.candidates[0].room_us > 0);
    CU_ASSERT_EQUAL(pool_set_health(r->pool, r->ids[2], HEALTH_DRAINING), 0);
    schedule_decide(r->scheduler, &r->request, &r->decision);
    CU_ASSERT_EQUAL(r->decision.verdict, SCHEDULE_DECODE_FULL);
    room = schedule_room(r->scheduler, &r->request, &r->decision);
    CU_ASSERT_EQUAL(room.instance, POOL_NO_INSTANCE);
}

/* What is computed sooner than it is pushed. */
static void test_skips_the_prefill_leg(void)
{
    struct rig r;

    rig_init(&r, "plan");
    add(&r, ROLE_BOTH, PAIR, 9); /* 150 tokens, 1.5 ms; a push 2.6 */
    add(&r, ROLE_PREFILL, PAIR, 0);
    goes_to(&r, 0, 0);
    CU_ASSERT_FALSE(r.decision.candidates[0].spared);
    CU_ASSERT_EQUAL(r.decision.chosen.push_us, 0);
    CU_ASSERT_EQUAL(r.decision.n_candidates, 2); /* explain shows both */
    CU_ASSERT_EQUAL(r.decision.candidates[1].push_us, 500 + 2 * 150);
    rig_fini(&r);

    rig_init(&r, "plan");
    add(&r, ROLE_BOTH, PAIR, 0);
    add(&r, ROLE_PREFILL, PAIR, 0);
    r.request.n_tokens = 50;
    r.request.n_keys = 0;
    goes_to(&r, 0, 0);
    rig_fini(&r);
}

/* Once the queue of those that prefill is longer than it computes. */
RIG_TEST(test_long_queue)
{
    add(r, ROLE_BOTH, PAIR, 0);
    add(r, ROLE_PREFILL, PAIR, 0);
    r->request.n_keys = 0;
    goes_to(r, 1, 0);
    COMMIT(r, decision);
    r->request.request_id++;
    goes_to(r, 0, 0);
    CU_ASSERT_FALSE(r->decision.candidates[0].spared);
}

/* With a TBT SLO what a decode instance computes is judged by what its decodes
 * bear, and by prices; by no policy but plan. A step of 512 tokens takes 5 ms.
 */
static void test_slo_of_the_decodes(void)
{
    struct rig r;

    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        bool judges = i == 0;

        rig_init(&r, policies[i]);
        add(&r, ROLE_BOTH, PAIR, 0);
        add(&r, ROLE_PREFILL, PAIR, 0);
        r.request.n_keys = 0;
        r.request.slo_tbt_us = 20000;
        goes_to(&r, judges ? 0 : 1, 0);
        CU_ASSERT_EQUAL(r.decision.candidates[0].spared, !judges);
        CU_ASSERT_EQUAL(pool_decode_accept(r.pool, r.ids[0], 99, 50, 20), 0);
        CU_ASSERT_EQUAL(pool_decode_likely(r.pool, r.ids[0], 99, 20), 0);
        goes_to(&r, judges ? 0 : 1, 0);
        r.request.slo_tbt_us = 2000; /* two of 20 steps are too long */
        goes_to(&r, 1, 0);
        r.request.slo_tbt_us = 0;
        goes_to(&r, 1, 0);
        CU_ASSERT_TRUE(r.decision.candidates[0].spared);
        rig_fini(&r);
    }
}

/* Nobody else prefills, or nobody may. */
RIG_TEST(test_alone)
{
    add(r, ROLE_BOTH, PAIR, 0);
    add(r, ROLE_PREFILL, PAIR, 0);
    add(r, ROLE_PREFILL, PAIR + 1, 0); /* nobody's */
    r->request.whole = UINT32_MAX;
    goes_to(r, 0, 0);
    CU_ASSERT_EQUAL(r->decision.n_candidates, 1);
    r->request.whole = 0;
    r->request.exclude[0] = r->ids[1];
    r->request.n_exclude = 1;
    goes_to(r, 0, 0);
    r->request.n_exclude = 0;
    CU_ASSERT_EQUAL(pool_set_health(r->pool, r->ids[1], HEALTH_DRAINING), 0);
    goes_to(r, 0, 0);
    CU_ASSERT_EQUAL(pool_set_health(r->pool, r->ids[0], HEALTH_DRAINING), 0);
    schedule_decide(r->scheduler, &r->request, &r->decision);
    CU_ASSERT_EQUAL(r->decision.verdict, SCHEDULE_NO_PREFILL_INSTANCE);
}

/* Both of a pair must be eligible, or one that is eligible serves alone. */
RIG_TEST(test_eligible)
{
    uint64_t eligible = 1u << 1 | 1u << 2;

    add(r, ROLE_BOTH, PAIR, 0);
    add(r, ROLE_PREFILL, PAIR, 0);
    add(r, ROLE_BOTH, PAIR, 0);
    r->request.eligible = &eligible;
    goes_to(r, 1, 2);
    CU_ASSERT_EQUAL(r->decision.n_candidates, 2);
    eligible = 1u;
    goes_to(r, 0, 0);
    CU_ASSERT_EQUAL(r->decision.n_candidates, 1);
    eligible = 1u << 1;
    schedule_decide(r->scheduler, &r->request, &r->decision);
    CU_ASSERT_EQUAL(r->decision.verdict, SCHEDULE_NO_PREFILL_INSTANCE);
}

/* Each group for itself; those that cannot serve alone; one token. */
RIG_TEST(test_groups)
{
    add(r, ROLE_PREFILL, PAIR, 0);
    add(r, ROLE_DECODE, PAIR + 1, 0);
    add(r, ROLE_BOTH, 0, 0); /* aggregated */
    goes_to(r, 2, 2);
    CU_ASSERT_EQUAL(r->decision.n_candidates, 1);
    add(r, ROLE_DECODE, PAIR, 0);
    goes_to(r, 2, 2); /* without a push */
    CU_ASSERT_EQUAL(r->decision.n_candidates, 2);
    CU_ASSERT_EQUAL(pool_set_health(r->pool, r->ids[2], HEALTH_DRAINING), 0);
    goes_to(r, 0, 3);
    CU_ASSERT_EQUAL(r->decision.n_decode_candidates, 1);
    r->request.whole = UINT32_MAX;
    schedule_decide(r->scheduler, &r->request, &r->decision);
    CU_ASSERT_EQUAL(r->decision.verdict, SCHEDULE_NO_PREFILL_INSTANCE);
    r->request.whole = 0;
    r->request.max_output_tokens = 1;
    schedule_decide(r->scheduler, &r->request, &r->decision);
    CU_ASSERT_EQUAL(r->decision.verdict, SCHEDULE_ACCEPT);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[0]);
    CU_ASSERT_EQUAL(r->decision.decode, POOL_NO_INSTANCE);
    CU_ASSERT_EQUAL(r->decision.chosen.push_us, 0);
}

/* An SLO that the pair would miss by its push. */
RIG_TEST(test_slo)
{
    add(r, ROLE_PREFILL, PAIR, 0);
    add(r, ROLE_DECODE, PAIR, 0);
    r->request.slo_ttft_us = 13000;
    schedule_decide(r->scheduler, &r->request, &r->decision);
    CU_ASSERT_EQUAL(r->decision.verdict, SCHEDULE_REJECT_TTFT);
    r->request.slo_ttft_us = 13200;
    goes_to(r, 0, 1);
}

static const struct suite_test tests[] = {
    {"no room to decode", test_no_room_to_decode},
    {"held by the decode instance", test_held_by_the_decode_instance},
    {"long", test_long},
    {"skips the prefill leg", test_skips_the_prefill_leg},
    {"long queue", test_long_queue},
    {"SLO of the decodes", test_slo_of_the_decodes},
    {"alone", test_alone},
    {"eligible", test_eligible},
    {"groups", test_groups},
    {"slo", test_slo},
};
SUITE("pairs", tests)
