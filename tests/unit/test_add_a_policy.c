/* The policy of docs/internals/add-a-policy.md, as the page has it: listed by
 * its line, found by its name, and chosen by in a scheduler and in the
 * simulator. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/schedule/schedule.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/suite.h"
#include "tools/replay/simulate/sim.h"

enum { BLOCK = 100, SLOTS = 8 };

struct rig {
    struct cost_model cost;
    struct pool *pool;
    struct prefix_index *index;
    struct scheduler *scheduler;
    uint32_t ids[SLOTS];
};

static void rig_init(struct rig *r, double choices)
{
    struct pool_config pool = pool_config_default;

    memset(r, 0, sizeof(*r));
    r->cost.prefill[1] = 10;
    r->cost.range = (struct cost_model_range){1, 10000, 10000, 64, 1000000};
    pool.max_instances = SLOTS;
    r->pool = pool_new(&pool);
    r->index = core_index(SLOTS, 1 << 20);
    CORE_SCHEDULER(r, "prefix_hash",
                   (&(struct estimate_model){.cost = &r->cost,
                                             .block_tokens = BLOCK,
                                             .kv_bytes_per_token = 1000}),
                   {"choices", choices}, {"blocks", 1});
    for (uint32_t i = 0; i < SLOTS; i++) {
        r->ids[i] =
            READY(r->pool, .role = ROLE_PREFILL, .kv_capacity_tokens = 9000);
    }
}

static void rig_fini(struct rig *r)
{
    CORE_FREE(r);
}

/* Where a prompt of three blocks goes. */
static uint32_t place(struct rig *r, uint64_t first, uint64_t second)
{
    const uint64_t keys[3] = {first, second, second + 1};
    struct schedule_decision decision;

    schedule_decide(r->scheduler,
                    &(struct schedule_request){.request_id = 1,
                                               .keys = keys,
                                               .n_keys = 3,
                                               .n_tokens = 3 * BLOCK + 5,
                                               .max_output_tokens = 1},
                    &decision);
    return decision.verdict == SCHEDULE_ACCEPT ? decision.prefill
                                               : POOL_NO_INSTANCE;
}

static void test_places(void)
{
    struct rig r;
    uint32_t before[100], served[SLOTS] = {0}, gone;
    uint32_t moved = 0;

    rig_init(&r, 1);
    for (uint64_t k = 0; k < 100; k++) {
        before[k] = place(&r, 1000 + k, 7);
        CU_ASSERT_EQUAL(place(&r, 1000 + k, 8), before[k]);
        CU_ASSERT_NOT_EQUAL_FATAL(before[k], POOL_NO_INSTANCE);
        served[pool_get(r.pool, before[k])->slot]++;
    }
    for (int i = 0; i < SLOTS; i++)
        CU_ASSERT(served[i] >= 4 && served[i] <= 30);
    /* Only what was there moves, and not all of it to one place. */
    gone = before[0];
    CU_ASSERT_EQUAL(pool_set_health(r.pool, gone, HEALTH_SUSPECT), 0);
    memset(served, 0, sizeof(served));
    for (uint64_t k = 0; k < 100; k++) {
        uint32_t now = place(&r, 1000 + k, 7);

        CU_ASSERT(before[k] == gone ? now != gone : now == before[k]);
        moved += now != before[k];
        if (now != before[k])
            served[pool_get(r.pool, now)->slot] = 1;
    }
    CU_ASSERT(moved > 0 && moved < 31);
    moved = 0;
    for (int i = 0; i < SLOTS; i++)
        moved += served[i];
    CU_ASSERT(moved > 1);
    rig_fini(&r);
}

/* Of two places the one with the shorter queue. */
static void test_choices(void)
{
    struct rig r;
    uint32_t first, second;

    rig_init(&r, 2);
    first = place(&r, 5, 7);
    ACCEPTS(r.pool, first, .request_id = 9, .predicted_us = 5000);
    second = place(&r, 5, 7);
    CU_ASSERT_NOT_EQUAL(second, first);
    ACCEPTS(r.pool, second, .request_id = 10, .predicted_us = 9000);
    CU_ASSERT_EQUAL(place(&r, 5, 7), first);
    rig_fini(&r);
}

static double hit_ratio(const char *policy)
{
    struct cluster cluster;
    struct replay_sim_result result;
    char path[512], error[1024];
    double ratio;

    snprintf(path, sizeof(path), "%s/paper-16.json",
             getenv("CONDUCTOR_CLUSTERS"));
    CU_ASSERT_EQUAL_FATAL(cluster_load_file(path, &cluster, error), 0);
    snprintf(path, sizeof(path), "%s/../sample.jsonl",
             getenv("CONDUCTOR_CLUSTERS"));
    CU_ASSERT_EQUAL_FATAL(
        replay_sim_run(
            &(struct replay_sim_params){
                .sim = {.cluster = &cluster, .policy = policy, .speed = 4},
                .source = {.path = path,
                           .block_tokens = 512,
                           .length_scale = 1},
                .slo_ttft_s = 30,
                .slo_tbt_s = 1},
            &result, error, sizeof(error)),
        0);
    ratio = result.report.prefix_hit_ratio;
    CU_ASSERT_EQUAL(result.report.failed, 0);
    replay_sim_result_fini(&result);
    return ratio;
}

static void test_simulated(void)
{
    bool listed = false;

    for (size_t i = 0; sim_policy_name(i); i++)
        listed = listed || strcmp(sim_policy_name(i), "prefix_hash") == 0;
    CU_ASSERT(listed);
    CU_ASSERT(hit_ratio("prefix_hash") > 1.5 * hit_ratio("least_loaded"));
}

static const struct suite_test tests[] = {
    {"places", test_places},
    {"choices", test_choices},
    {"simulated", test_simulated},
};
SUITE("add_a_policy", tests)
