/* The scheduler: what each policy chooses, what is rejected and why, and that
 * the same inputs give the same decision. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/schedule/schedule.h"
#include "tests/unit/busy.h"
#include "tests/unit/core_rig.h"
#include "tests/unit/pool_check.h"
#include "tests/unit/suite.h"

enum { BLOCK = 100, N_KEYS = 20 };

/* prefill_us = 10 u; decode_step_us = 100 batch + kv / 10. A block takes 1000
 * us to compute and 100 us to send. */
struct rig {
    struct cost_model cost;
    struct pool *pool;
    struct prefix_index *index;
    struct scheduler *scheduler;
    uint64_t keys[N_KEYS];
    struct schedule_request request;
    struct schedule_decision decision;
    uint32_t ids[8];
};

static void rig_init(struct rig *r, const char *policy, double threshold)
{
    struct pool_config pool = pool_config_default;
    const struct schedule_policy *by = schedule_policy_by_name(policy);
    double options[POLICY_OPTIONS_MAX];

    CU_ASSERT_PTR_NOT_NULL_FATAL(by);
    policy_options_init(by, options);
    (void)!policy_options_set(by, options, "kvcache_balancing_threshold",
                              threshold);
    memset(r, 0, sizeof(*r));
    r->cost.prefill[1] = 10;
    r->cost.decode[1] = 100;
    r->cost.decode[2] = 0.1;
    r->cost.range = (struct cost_model_range){1, 10000, 10000, 64, 1000000};
    pool.max_instances = 8;
    pool.max_waiting = 4;
    r->pool = pool_new(&pool);
    r->index = core_index(8, 1 << 15);
    struct schedule_config config = {.policy = by, .options = options};
    struct estimate_model model = {
        .cost = &r->cost, .block_tokens = BLOCK, .kv_bytes_per_token = 1000};
    r->scheduler = scheduler_new(&config, &model, r->pool, r->index);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->scheduler);
    for (uint64_t k = 0; k < N_KEYS; k++)
        r->keys[k] = 1000 + k;
    r->request = (struct schedule_request){.request_id = 1,
                                           .keys = r->keys,
                                           .n_keys = 10,
                                           .n_tokens = 10 * BLOCK + 50,
                                           .max_output_tokens = 1,
                                           .now_us = 1000000};
}

static void rig_fini(struct rig *r)
{
    CORE_FREE(r);
}

static void add(struct rig *r, unsigned role, uint32_t held_blocks,
                int64_t queue_us)
{
    uint32_t slot = pool_slots(r->pool);
    struct pool_prefill_request work = {.request_id = 900,
                                        .predicted_us = queue_us};

    r->ids[slot] = READY(r->pool, .role = role, .kv_capacity_tokens = 5000,
                         .link_bytes_per_s = 1e9);
    CU_ASSERT_EQUAL(
        prefix_index_stored(r->index, slot, TIER_HOST, 0, r->keys, held_blocks),
        0);
    if (queue_us > 0)
        CU_ASSERT_EQUAL(pool_prefill_accept(r->pool, r->ids[slot], &work), 0);
}

static enum schedule_verdict decide(struct rig *r)
{
    schedule_decide(r->scheduler, &r->request, &r->decision);
    return r->decision.verdict;
}

#define DECIDE_ACCEPT(r) CU_ASSERT_EQUAL(decide(r), SCHEDULE_ACCEPT)

/* Algorithm 1 by hand. 1050 tokens, 10 blocks; holders of 8 and 2 blocks. */
static void test_global_cache(void)
{
    struct rig r;

    rig_init(&r, "global_cache", 1.0);
    add(&r, ROLE_PREFILL, 8, 5000); /* 0 + 5000 + 2500 */
    add(&r, ROLE_PREFILL, 2, 0);    /* 600 + 0 + 2500: fetches 2..7 */
    add(&r, ROLE_PREFILL, 0, 0);    /* 800 + 0 + 2500: fetches 0..7 */
    DECIDE_ACCEPT(&r);
    CU_ASSERT_EQUAL(r.decision.prefill, r.ids[1]);
    CU_ASSERT_EQUAL(r.decision.decode, POOL_NO_INSTANCE);
    CU_ASSERT_EQUAL(r.decision.chosen.fetch_from, r.ids[0]);
    CU_ASSERT_EQUAL(r.decision.chosen.local_blocks, 2);
    CU_ASSERT_EQUAL(r.decision.chosen.used_blocks, 8);
    CU_ASSERT_EQUAL(r.decision.n_candidates, 3);
    CU_ASSERT_EQUAL(r.decision.candidates[0].score_us, 7500);
    CU_ASSERT_EQUAL(r.decision.candidates[1].score_us, 3100);
    CU_ASSERT_EQUAL(r.decision.candidates[2].score_us, 3300);
    CU_ASSERT_EQUAL(r.decision.candidates[0].fetch_from, POOL_NO_INSTANCE);
    rig_fini(&r);

    /* 8 / 2 is not above 4: it uses its own two. The one without any is above
     * every threshold and fetches. */
    rig_init(&r, "global_cache", 4.0);
    add(&r, ROLE_PREFILL, 8, 9000);
    add(&r, ROLE_PREFILL, 2, 0);
    add(&r, ROLE_PREFILL, 0, 0);
    DECIDE_ACCEPT(&r);
    CU_ASSERT_EQUAL(r.decision.candidates[1].score_us, 8500);
    CU_ASSERT_EQUAL(r.decision.candidates[2].score_us, 3300);
    CU_ASSERT_EQUAL(r.decision.prefill, r.ids[2]);
    rig_fini(&r);
}

#define RIG_TEST(test, ...) \
    SUITE_TEST(test, struct rig, r, rig_init(r, __VA_ARGS__), rig_fini(r))

/* An engine with blocks of several of the index's reuses whole ones, of what is
 * stored and of what is expected. 1050 tokens: 10 blocks may be reused. */
RIG_TEST(test_reuse_in_steps, "least_loaded", 1.0)
{
    add(r, ROLE_PREFILL, 7, 0);
    add(r, ROLE_PREFILL, 7, 0);
    add(r, ROLE_PREFILL, 10, 0);
    add(r, ROLE_PREFILL, 1, 0);
    CU_ASSERT(!pool_reuses_in_steps(r->pool));
    for (uint32_t i = 1; i < 4; i++)
        CU_ASSERT_EQUAL(pool_set_reuse(r->pool, r->ids[i], 4), 0);
    CU_ASSERT(pool_reuses_in_steps(r->pool));
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.candidates[0].local_blocks, 7);
    CU_ASSERT_EQUAL(r->decision.candidates[1].local_blocks, 4);
    CU_ASSERT_EQUAL(r->decision.candidates[1].cached_tokens, 400);
    CU_ASSERT_EQUAL(r->decision.candidates[2].local_blocks, 8);
    CU_ASSERT_EQUAL(r->decision.candidates[3].local_blocks, 0);

    /* The last token is computed, and with it all of its engine's block. */
    r->request.n_tokens = 800;
    r->request.n_keys = 8;
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.candidates[2].local_blocks, 4);

    CU_ASSERT_EQUAL(pool_expect(r->pool, r->ids[3], r->keys, 5), 0);
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.candidates[3].local_blocks, 4);
    pool_unexpect(r->pool, r->ids[3], r->keys, 5);
    CU_ASSERT_EQUAL(pool_set_reuse(r->pool, 77777, 4), -ESTALE);
}

/* The last token is always computed, so one block of ten is not reused. */
RIG_TEST(test_whole_prompt_cached, "global_cache", 1.0)
{
    r->request.n_tokens = 10 * BLOCK;
    add(r, ROLE_PREFILL, 10, 0);
    add(r, ROLE_PREFILL, 0, 0);
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[0]);
    CU_ASSERT_EQUAL(r->decision.chosen.used_blocks, 9);
    CU_ASSERT_EQUAL(r->decision.chosen.prefill_us, 1000);
    CU_ASSERT_EQUAL(r->decision.candidates[1].used_blocks, 9);
}

RIG_TEST(test_sender, "global_cache", 1.0)
{
    add(r, ROLE_PREFILL, 8, 90000);
    add(r, ROLE_PREFILL, 8, 90000);
    add(r, ROLE_PREFILL, 0, 0);
    /* Equal matches: the lower slot, unless its link is busy for longer. */
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[2]);
    CU_ASSERT_EQUAL(r->decision.chosen.fetch_from, r->ids[0]);
    CU_ASSERT_EQUAL(busy_link(r->pool, r->ids[0], 1000500), 0);
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.chosen.fetch_from, r->ids[1]);
    /* A draining instance still sends; one that is suspect does not, nor one
     * that the caller excludes. */
    CU_ASSERT_EQUAL(pool_set_health(r->pool, r->ids[1], HEALTH_DRAINING), 0);
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.n_candidates, 2);
    CU_ASSERT_EQUAL(r->decision.chosen.fetch_from, r->ids[1]);
    CU_ASSERT_EQUAL(pool_set_health(r->pool, r->ids[1], HEALTH_SUSPECT), 0);
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.chosen.fetch_from, r->ids[0]);
    CU_ASSERT_EQUAL(r->decision.chosen.transfer_us, 1300);
    r->request.exclude[0] = r->ids[0];
    r->request.n_exclude = 1;
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.chosen.fetch_from, POOL_NO_INSTANCE);
    CU_ASSERT_EQUAL(r->decision.n_candidates, 1);
}

/* A request that some instances alone may take: nobody else is a candidate, is
 * fetched from or decides how long a prompt may be. */
RIG_TEST(test_eligible, "global_cache", 1.0)
{
    uint64_t eligible = 1u << 1 | 1u << 4;

    add(r, ROLE_PREFILL, 8, 0);
    add(r, ROLE_PREFILL, 0, 5000);
    add(r, ROLE_PREFILL, 2, 0);
    add(r, ROLE_DECODE, 0, 0);
    add(r, ROLE_DECODE, 0, 0);
    r->request.max_output_tokens = 2;
    r->request.eligible = &eligible;
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[1]);
    CU_ASSERT_EQUAL(r->decision.decode, r->ids[4]);
    CU_ASSERT_EQUAL(r->decision.n_candidates, 1);
    CU_ASSERT_EQUAL(r->decision.n_decode_candidates, 1);
    CU_ASSERT_EQUAL(r->decision.chosen.fetch_from, POOL_NO_INSTANCE);
    eligible |= 1u; /* it changes while a request waits */
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[0]);
    eligible = 1u;
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_NO_DECODE_INSTANCE);
    eligible = 0;
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_NO_PREFILL_INSTANCE);
}

/* Accepted prefills will leave their blocks: local matches see them, others
 * cannot fetch them yet. */
RIG_TEST(test_pending, "global_cache", 1.0)
{
    struct schedule_decision first;

    add(r, ROLE_PREFILL, 0, 0);
    add(r, ROLE_PREFILL, 0, 0);
    DECIDE_ACCEPT(r);
    first = r->decision;
    CU_ASSERT_EQUAL(first.prefill, r->ids[0]);
    CU_ASSERT_EQUAL(schedule_commit(r->scheduler, &r->request, &first), 0);
    CU_ASSERT_EQUAL(schedule_commit(r->scheduler, &r->request, &first),
                    -EEXIST);
    r->request.request_id = 2;
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.candidates[0].local_blocks, 10);
    CU_ASSERT_EQUAL(r->decision.candidates[0].score_us, 10500 + 500);
    CU_ASSERT_EQUAL(r->decision.candidates[1].used_blocks, 0);
    CU_ASSERT_EQUAL(r->decision.candidates[1].score_us, 10500);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[1]);
    CU_ASSERT(pool_check(r->pool));
}

static void test_other_policies(void)
{
    struct rig r;
    uint32_t seen[3] = {0};

    rig_init(&r, "local_cache", 1.0);
    add(&r, ROLE_PREFILL, 8, 5000); /* 5000 + 2500 */
    add(&r, ROLE_PREFILL, 2, 0);    /* 8500 */
    add(&r, ROLE_PREFILL, 0, 0);    /* 10500 */
    DECIDE_ACCEPT(&r);
    CU_ASSERT_EQUAL(r.decision.prefill, r.ids[0]);
    CU_ASSERT_EQUAL(r.decision.chosen.fetch_from, POOL_NO_INSTANCE);
    rig_fini(&r);

    rig_init(&r, "least_loaded", 1.0);
    add(&r, ROLE_PREFILL, 8, 5000);
    add(&r, ROLE_PREFILL, 2, 700);
    add(&r, ROLE_PREFILL, 0, 700);
    DECIDE_ACCEPT(&r);
    CU_ASSERT_EQUAL(r.decision.prefill, r.ids[1]);
    CU_ASSERT_EQUAL(r.decision.chosen.used_blocks, 2); /* reused all the same */
    rig_fini(&r);

    rig_init(&r, "round_robin", 1.0);
    add(&r, ROLE_PREFILL, 8, 0);
    add(&r, ROLE_PREFILL, 0, 0);
    add(&r, ROLE_PREFILL, 0, 0);
    for (uint32_t turn = 0; turn < 7; turn++) {
        DECIDE_ACCEPT(&r);
        CU_ASSERT_EQUAL(r.decision.prefill, r.ids[turn % 3]);
    }
    CU_ASSERT_EQUAL(pool_set_health(r.pool, r.ids[1], HEALTH_DRAINING), 0);
    DECIDE_ACCEPT(&r);
    CU_ASSERT_EQUAL(r.decision.prefill, r.ids[2]);
    rig_fini(&r);

    rig_init(&r, "random", 1.0);
    add(&r, ROLE_PREFILL, 8, 0);
    add(&r, ROLE_PREFILL, 0, 0);
    add(&r, ROLE_PREFILL, 0, 0);
    for (int i = 0; i < 3000; i++) {
        DECIDE_ACCEPT(&r);
        seen[r.decision.chosen.slot]++;
    }
    for (int i = 0; i < 3; i++)
        CU_ASSERT(seen[i] > 900 && seen[i] < 1100);
    rig_fini(&r);
}

RIG_TEST(test_ties_go_low, "global_cache", 1.0)
{
    add(r, ROLE_DECODE, 0, 0);
    add(r, ROLE_PREFILL, 3, 0);
    add(r, ROLE_PREFILL, 3, 0);
    add(r, ROLE_DECODE, 0, 0);
    r->request.max_output_tokens = 10;
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[1]);
    CU_ASSERT_EQUAL(r->decision.decode, r->ids[0]);
}

RIG_TEST(test_decode_choice, "global_cache", 1.0)
{
    add(r, ROLE_BOTH, 0, 0);
    add(r, ROLE_DECODE, 0, 0);
    add(r, ROLE_DECODE, 0, 0);
    r->request.max_output_tokens = 10;
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->ids[0], 77, 2000, 10), 0);
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->ids[1], 78, 1000, 10), 0);
    /* The shortest step has no room left: the next one is taken. */
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->ids[2], 79, 10, 4000), 0);
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.decode, r->ids[1]);
    CU_ASSERT_EQUAL(r->decision.tbt_us, 2 * 100 + (1000 + 1050) / 10);
    CU_ASSERT_EQUAL(r->decision.n_decode_candidates, 3);
    CU_ASSERT(r->decision.decode_candidates[2].no_room);
    /* The commit reserves, here on the instance that prefills too. */
    r->request.exclude[0] = r->ids[1];
    r->request.n_exclude = 1;
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.decode, r->decision.prefill);
    COMMIT(r, decision);
    CU_ASSERT_EQUAL(pool_get(r->pool, r->ids[0])->decode_reserved_tokens,
                    2009 + 1059);
    CU_ASSERT_EQUAL(pool_get(r->pool, r->ids[0])->n_waiting, 1);
    /* One token needs no decode. */
    r->request.max_output_tokens = 1;
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.decode, POOL_NO_INSTANCE);
    CU_ASSERT_EQUAL(r->decision.n_decode_candidates, 0);
}

/* Nothing is rejected that another candidate serves in time. */
RIG_TEST(test_in_time, "least_loaded", 1.0)
{
    add(r, ROLE_PREFILL, 0, 0);    /* 10500: the shortest queue */
    add(r, ROLE_PREFILL, 8, 2000); /* 2000 + 2500 */
    add(r, ROLE_PREFILL, 8, 1000); /* 1000 + 2500 */
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[0]);
    r->request.slo_ttft_us = 10500;
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[0]);
    r->request.slo_ttft_us = 10499;
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[2]);
    CU_ASSERT_EQUAL(r->decision.chosen.ttft_us, 3500);
    r->request.slo_ttft_us = 3499;
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_REJECT_TTFT);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[0]);
}

/* global_cache: the sum by which it chose is held against the SLO, and nobody
 * takes the place of a late choice. With `rescue`, the transfer may overlap the
 * queue. */
static void test_to_the_letter(void)
{
    struct rig r;

    for (int rescue = 0; rescue < 2; rescue++) {
        rig_init(&r, "global_cache", 1.0);
        scheduler_free(r.scheduler);
        CORE_SCHEDULER(&r, "global_cache",
                       (&(struct estimate_model){.cost = &r.cost,
                                                 .block_tokens = BLOCK,
                                                 .kv_bytes_per_token = 1000}),
                       {"rescue", rescue});
        add(&r, ROLE_PREFILL, 8, 90000);
        add(&r, ROLE_PREFILL, 0, 1000); /* 800 + 1000 + 2500 */
        r.request.slo_ttft_us = 4300;
        DECIDE_ACCEPT(&r);
        CU_ASSERT_EQUAL(r.decision.prefill, r.ids[1]);
        CU_ASSERT_EQUAL(r.decision.chosen.ttft_us, 3500);
        r.request.slo_ttft_us = 3500;
        CU_ASSERT_EQUAL(decide(&r),
                        rescue ? SCHEDULE_ACCEPT : SCHEDULE_REJECT_TTFT);
        CU_ASSERT_EQUAL(r.decision.retry_after_us, rescue ? 0 : 800);
        /* The sender sends to others for 5 ms. That passes, with the queue. */
        CU_ASSERT_EQUAL(busy_link(r.pool, r.ids[0], 1005000), 0);
        r.request.slo_ttft_us = 4000;
        CU_ASSERT_EQUAL(decide(&r), SCHEDULE_REJECT_TTFT);
        CU_ASSERT_EQUAL(r.decision.chosen.transfer_us, 5800);
        CU_ASSERT_EQUAL(r.decision.retry_after_us, 4300);
        r.request.slo_ttft_us = 2499; /* not even when all are idle */
        CU_ASSERT_EQUAL(decide(&r), SCHEDULE_REJECT_TTFT);
        CU_ASSERT_EQUAL(r.decision.retry_after_us, -1);
        rig_fini(&r);
    }
}

RIG_TEST(test_slo, "global_cache", 1.0)
{
    add(r, ROLE_PREFILL, 0, 4000);
    add(r, ROLE_DECODE, 0, 0);
    r->request.max_output_tokens = 10;
    r->request.slo_ttft_us = 14500; /* 4000 + 10500 exactly */
    r->request.slo_tbt_us = 205;    /* 100 + 105 exactly */
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.retry_after_us, 0);
    r->request.slo_ttft_us = 14499;
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_REJECT_TTFT);
    CU_ASSERT_EQUAL(r->decision.retry_after_us, 1);
    CU_ASSERT_EQUAL(r->decision.prefill, r->ids[0]); /* with its estimate */
    CU_ASSERT_EQUAL(r->decision.chosen.ttft_us, 14500);
    CU_ASSERT_EQUAL(schedule_commit(r->scheduler, &r->request, &r->decision),
                    -EINVAL);
    r->request.slo_ttft_us = 10499; /* not even when idle */
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_REJECT_TTFT);
    CU_ASSERT_EQUAL(r->decision.retry_after_us, -1);
    r->request.slo_ttft_us = 0;
    r->request.slo_tbt_us = 204;
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_REJECT_TBT);
    CU_ASSERT_EQUAL(r->decision.retry_after_us, -1);
    /* With another decode there: its 30 tokens at 200 us a step. */
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->ids[1], 5, 1000, 30), 0);
    r->request.slo_tbt_us = 205;
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_REJECT_TBT);
    CU_ASSERT_EQUAL(r->decision.retry_after_us, 30 * 200);
}

RIG_TEST(test_nowhere, "global_cache", 1.0)
{
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_NO_PREFILL_INSTANCE);
    CU_ASSERT_EQUAL(r->decision.retry_after_us, -1);
    add(r, ROLE_DECODE, 10, 0);
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_NO_PREFILL_INSTANCE);
    add(r, ROLE_PREFILL, 0, 0);
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.chosen.fetch_from, r->ids[0]);
    CU_ASSERT_EQUAL(pool_set_health(r->pool, r->ids[0], HEALTH_SUSPECT), 0);
    r->request.max_output_tokens = 2;
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_NO_DECODE_INSTANCE);
    CU_ASSERT_EQUAL(pool_set_health(r->pool, r->ids[0], HEALTH_READY), 0);
    DECIDE_ACCEPT(r);

    /* Longer than any KV, for the prompt or with its output. */
    r->request.n_tokens = 5001;
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_TOO_LONG);
    r->request.n_tokens = 5000;
    r->request.max_output_tokens = 1;
    DECIDE_ACCEPT(r);
    r->request.max_output_tokens = 2;
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_TOO_LONG);

    /* No room for now. */
    r->request.n_tokens = 1050;
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->ids[0], 5, 4000, 20), 0);
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_DECODE_FULL);
    CU_ASSERT_EQUAL(r->decision.retry_after_us, 20 * 500);

    /* Full queues; the place comes when the running one ends. */
    r->request.max_output_tokens = 1;
    for (r->request.request_id = 10; r->request.request_id < 15;
         r->request.request_id++) {
        DECIDE_ACCEPT(r);
        COMMIT(r, decision);
        if (r->request.request_id == 10)
            CU_ASSERT_EQUAL(
                pool_prefill_started(r->pool, r->ids[1], 10, 1000000), 0);
    }
    r->request.now_us += 100;
    CU_ASSERT_EQUAL(decide(r), SCHEDULE_QUEUE_FULL);
    CU_ASSERT_EQUAL(r->decision.retry_after_us, 400);
}

/* A commit that fails leaves nothing behind, and books nothing twice. */
RIG_TEST(test_commit, "global_cache", 1.0)
{
    add(r, ROLE_PREFILL, 8, 90000);
    add(r, ROLE_PREFILL, 0, 0);
    add(r, ROLE_DECODE, 0, 0);
    r->request.max_output_tokens = 10;
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(r->decision.chosen.fetch_from, r->ids[0]);
    CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->ids[2], 1, 10, 10), 0);
    CU_ASSERT_EQUAL(schedule_commit(r->scheduler, &r->request, &r->decision),
                    -EEXIST);
    CU_ASSERT_EQUAL(pool_get(r->pool, r->ids[1])->n_waiting, 0);
    CU_ASSERT_EQUAL(pool_get(r->pool, r->ids[0])->egress_free_us, 0);
    CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->ids[2], 1), 0);
    COMMIT(r, decision);
    CU_ASSERT_EQUAL(pool_get(r->pool, r->ids[1])->n_waiting, 1);
    CU_ASSERT_EQUAL(pool_get(r->pool, r->ids[1])->waiting[0].item.ready_at_us,
                    1000800);
    CU_ASSERT_EQUAL(pool_get(r->pool, r->ids[0])->egress_free_us, 1000800);
    r->request.request_id = 2;
    DECIDE_ACCEPT(r);
    CU_ASSERT_EQUAL(pool_remove(r->pool, r->decision.prefill, 0), 0);
    CU_ASSERT_EQUAL(schedule_commit(r->scheduler, &r->request, &r->decision),
                    -ESTALE);
    CU_ASSERT(pool_check(r->pool));
}

/* Five fetches of 12 s each are decided and cancelled: the link is free. */
RIG_TEST(test_cancelled_fetches, "global_cache", 1.0)
{
    add(r, ROLE_PREFILL, 8, 900000000);
    add(r, ROLE_PREFILL, 0, 0);
    r->cost.prefill[1] = 10000;
    (void)pool_link_observed(r->pool, r->ids[0], 800000, 12000000);
    for (uint64_t i = 0; i < 200; i++) /* 800 kB in 12 s */
        (void)pool_link_observed(r->pool, r->ids[0], 800000, 12000000);
    for (uint64_t i = 1; i <= 5; i++) {
        r->request.request_id = i;
        schedule_decide(r->scheduler, &r->request, &r->decision);
        if (r->decision.chosen.fetch_from == POOL_NO_INSTANCE)
            break;
        COMMIT(r, decision);
        CU_ASSERT(pool_get(r->pool, r->ids[0])->egress_free_us > 10000000);
        CU_ASSERT_EQUAL(pool_prefill_cancel(r->pool, r->decision.prefill, i,
                                            r->request.now_us),
                        0);
        CU_ASSERT_EQUAL(pool_get(r->pool, r->ids[0])->egress_free_us,
                        r->request.now_us);
    }
    CU_ASSERT_EQUAL(r->request.request_id, 5);
}

/* Not even whose turn it is, nor what is learnt of an idle instance. */
RIG_TEST(test_commit_fails_without_trace, "plan", 1.0)
{
    struct pool_instance before[4];

    for (int i = 0; i < 3; i++)
        add(r, ROLE_PREFILL, 0, 0);
    add(r, ROLE_DECODE, 0, 0);
    r->request.max_output_tokens = 10;
    for (uint64_t i = 0; i < 30; i++) { /* of an idle instance one fades */
        struct pool_prefill_request slow = {.request_id = 100 + i,
                                            .predicted_us = 100000000};

        CU_ASSERT_EQUAL(pool_prefill_accept(r->pool, r->ids[2], &slow), 0);
        CU_ASSERT_EQUAL(
            pool_prefill_done(r->pool, r->ids[2], 100 + i, 300000000, 0), 0);
    }
    for (uint64_t i = 0; i < 8; i++) {
        DECIDE_ACCEPT(r);
        CU_ASSERT_EQUAL(pool_decode_accept(r->pool, r->ids[3], 1, 10, 10), 0);
        for (uint32_t slot = 0; slot < 4; slot++)
            before[slot] = *pool_at(r->pool, slot);
        CU_ASSERT_EQUAL(
            schedule_commit(r->scheduler, &r->request, &r->decision), -EEXIST);
        for (uint32_t slot = 0; slot < 4; slot++)
            CU_ASSERT_EQUAL(memcmp(&before[slot], pool_at(r->pool, slot),
                                   sizeof(before[slot])),
                            0);
        CU_ASSERT_EQUAL(pool_decode_done(r->pool, r->ids[3], 1), 0);
    }
}

RIG_TEST(test_config, "global_cache", 1.0)
{
    struct schedule_config config = {.admission = "none"};
    struct estimate_model model;

    model = (struct estimate_model){
        .cost = &r->cost, .block_tokens = BLOCK, .kv_bytes_per_token = 1000};
    CU_ASSERT_PTR_NULL(schedule_policy_by_name("nearest"));
    CU_ASSERT_PTR_NULL(scheduler_new(&config, &model, r->pool, r->index));
    config.policy = schedule_policy_at(0);
    config.admission = "generous";
    CU_ASSERT_PTR_NULL(scheduler_new(&config, &model, r->pool, r->index));
    for (size_t i = 0; schedule_policy_name(i); i++) {
        config.policy = schedule_policy_by_name(schedule_policy_name(i));
        CU_ASSERT_PTR_EQUAL(config.policy, schedule_policy_at(i));
        config.admission = "none";
        struct scheduler *s = scheduler_new(&config, &model, r->pool, r->index);
        CU_ASSERT_PTR_NOT_NULL(s);
        scheduler_free(s);
    }
    for (int v = 0; v < SCHEDULE_VERDICTS; v++)
        CU_ASSERT_STRING_NOT_EQUAL(
            schedule_verdict_name((enum schedule_verdict)v), "?");
    scheduler_free(NULL);
}

/* A rig whose scheduler has this model; the usual numbers are filled in. */
static void rig_init_model(struct rig *r, const char *policy,
                           struct estimate_model model)
{
    struct schedule_config config = {.policy = schedule_policy_by_name(policy)};

    model.cost = &r->cost;
    model.block_tokens = BLOCK;
    model.kv_bytes_per_token = 1000;
    rig_init(r, policy, 1.0);
    scheduler_free(r->scheduler);
    r->scheduler = scheduler_new(&config, &model, r->pool, r->index);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->scheduler);
}

static void test_coupled(void)
{
    struct rig r;

    rig_init_model(&r, "local_cache", (struct estimate_model){.coupled = true});
    r.request.max_output_tokens = 20;
    add(&r, ROLE_BOTH, 0, 100);
    add(&r, ROLE_BOTH, 0, 0);
    add(&r, ROLE_DECODE, 0, 0);
    /* The other two would decode it as fast, or faster. */
    CU_ASSERT_EQUAL(pool_decode_accept(r.pool, r.ids[1], 77, 10, 10), 0);
    DECIDE_ACCEPT(&r);
    CU_ASSERT_EQUAL(r.decision.prefill, r.ids[1]);
    CU_ASSERT_EQUAL(r.decision.decode, r.ids[1]);
    CU_ASSERT_EQUAL(r.decision.n_decode_candidates, 1);
    rig_fini(&r);
}

/* Everybody has what anybody stored, and nothing is sent. */
static void test_pooled_cache(void)
{
    struct rig r;

    rig_init_model(
        &r, "local_cache",
        (struct estimate_model){.simulated = {.pooled_cache = true}});
    add(&r, ROLE_PREFILL, 8, 5000);
    add(&r, ROLE_PREFILL, 2, 0);
    DECIDE_ACCEPT(&r);
    CU_ASSERT_EQUAL(r.decision.prefill, r.ids[1]);
    CU_ASSERT_EQUAL(r.decision.chosen.local_blocks, 8);
    CU_ASSERT_EQUAL(r.decision.chosen.fetch_from, POOL_NO_INSTANCE);
    CU_ASSERT_EQUAL(r.decision.chosen.ttft_us, 2500);
    rig_fini(&r);
}

/* An index of expected blocks takes the place of the pool's: they count where
 * they are expected, and nowhere else. */
static void test_expected(void)
{
    struct rig r;
    struct prefix_index_config config = {.max_instances = 8,
                                         .max_bytes = 1 << 15};
    struct prefix_index_config small = {.max_instances = 7,
                                        .max_bytes = 1 << 15};
    struct prefix_index *expected = prefix_index_new(&config);
    struct prefix_index *few = prefix_index_new(&small);

    rig_init_model(
        &r, "global_cache",
        (struct estimate_model){.simulated = {.expected = expected}});
    struct estimate_model model = {.cost = &r.cost,
                                   .block_tokens = BLOCK,
                                   .kv_bytes_per_token = 1000,
                                   .simulated.expected = few};
    struct schedule_config config_any = {.policy = schedule_policy_at(0)};
    CU_ASSERT_PTR_NULL(scheduler_new(&config_any, &model, r.pool, r.index));
    add(&r, ROLE_PREFILL, 0, 0);
    add(&r, ROLE_PREFILL, 3, 0);
    CU_ASSERT_EQUAL(prefix_index_stored(expected, 0, TIER_DEVICE, 0, r.keys, 9),
                    0);
    DECIDE_ACCEPT(&r);
    CU_ASSERT_EQUAL(r.decision.prefill, r.ids[0]);
    CU_ASSERT_EQUAL(r.decision.chosen.local_blocks, 9);
    CU_ASSERT_EQUAL(r.decision.candidates[1].used_blocks, 3);
    COMMIT(&r, decision);
    CU_ASSERT_EQUAL(pool_get(r.pool, r.ids[0])->waiting[0].n_keys, 0);
    rig_fini(&r);
    prefix_index_free(expected);
    prefix_index_free(few);
}

/* A policy of its own, which looks at the prompt: the first block's key says
 * where it goes, its option by how many instances it is off. */
static const struct policy_option by_key_options[] = {
    {"shift", NULL, 0, 7, true, 0, "instances to the right"},
};

struct by_key_state {
    uint64_t asked;
};

static size_t choose_by_key(const struct policy_choice *choice)
{
    const struct schedule_request *request = choice->request;
    struct by_key_state *state = choice->state;
    size_t at;

    state->asked++;
    if (choice->n == 0 || request->n_keys == 0)
        return choice->n;
    at = (size_t)(request->keys[0] + (uint64_t)choice->options[0]) % choice->n;
    return policy_may_take(&choice->candidates[at]) ? at : choice->n;
}

static const struct schedule_policy by_key = {
    .name = "by_key",
    .options = by_key_options,
    .n_options = 1,
    .state_bytes = sizeof(struct by_key_state),
    .choose = choose_by_key,
};

static void test_policy_sees_keys(void)
{
    struct rig r;
    double options[POLICY_OPTIONS_MAX];
    struct schedule_config config = {.policy = &by_key, .options = options};
    struct estimate_model model = {
        .cost = &r.cost, .block_tokens = BLOCK, .kv_bytes_per_token = 1000};

    policy_options_init(&by_key, options);
    rig_init(&r, "plan", 1.0);
    for (int shift = 0; shift < 2; shift++) {
        CU_ASSERT_EQUAL(policy_options_set(&by_key, options, "shift", shift),
                        0);
        scheduler_free(r.scheduler);
        r.scheduler = scheduler_new(&config, &model, r.pool, r.index);
        CU_ASSERT_PTR_NOT_NULL_FATAL(r.scheduler);
        if (shift == 0)
            for (int i = 0; i < 3; i++)
                add(&r, ROLE_PREFILL, i == 0 ? 8 : 0, i == 0 ? 0 : 5000);
        for (uint64_t k = 0; k < 6; k++) {
            r.request.keys = &r.keys[k]; /* 1000 + k */
            r.request.n_keys = 4;
            DECIDE_ACCEPT(&r);
            CU_ASSERT_EQUAL(r.decision.prefill,
                            r.ids[(1000 + k + (uint64_t)shift) % 3]);
        }
    }
    r.request.n_keys = 0; /* it finds none */
    CU_ASSERT_EQUAL(decide(&r), SCHEDULE_NO_PREFILL_INSTANCE);
    rig_fini(&r);
}

static void test_policy_options(void)
{
    const struct schedule_policy *p = schedule_policy_by_name("global_cache");
    double values[POLICY_OPTIONS_MAX];

    policy_options_init(p, values);
    CU_ASSERT_EQUAL(values[0], 1);
    CU_ASSERT_EQUAL(policy_options_set(p, values, "seed", 1), -ENOENT);
    CU_ASSERT_EQUAL(
        policy_options_set(p, values, "kvcache_balancing_threshold", 0.5),
        -ERANGE);
    CU_ASSERT_EQUAL(
        policy_options_set(p, values, "kvcache_balancing_threshold", 2.5), 0);
    CU_ASSERT_EQUAL(values[0], 2.5);
    p = schedule_policy_by_name("random");
    policy_options_init(p, values);
    CU_ASSERT_EQUAL(policy_options_set(p, values, "seed", 1.5), -ERANGE);
    for (size_t i = 0; (p = schedule_policy_at(i)); i++) {
        CU_ASSERT(p->n_options <= POLICY_OPTIONS_MAX);
        CU_ASSERT_PTR_NOT_NULL(p->help);
        for (size_t o = 0; o < p->n_options; o++) {
            policy_options_init(p, values);
            CU_ASSERT_EQUAL(policy_options_set(p, values, p->options[o].name,
                                               p->options[o].initial),
                            0);
        }
    }
}

/* Two rigs fed alike decide alike, byte for byte. */
static void test_deterministic(void)
{
    for (size_t p = 0; schedule_policy_name(p); p++) {
        struct rig r[2];
        bool same = true;

        for (int k = 0; k < 2; k++) {
            rig_init(&r[k], schedule_policy_name(p), 1.0);
            add(&r[k], ROLE_BOTH, 5, 100);
            add(&r[k], ROLE_PREFILL, 2, 0);
            add(&r[k], ROLE_BOTH, 0, 3000);
        }
        for (uint64_t id = 1; id <= 40 && same; id++) {
            for (int k = 0; k < 2; k++) {
                /* What the stack held before must not show. */
                memset(&r[k].decision, k == 0 ? 0xaa : 0x55,
                       sizeof(r[k].decision));
                r[k].request.request_id = id;
                r[k].request.n_keys = 1 + id % 10;
                r[k].request.n_tokens = 1050;
                r[k].request.max_output_tokens = (int64_t)(id % 3) * 5 + 1;
                r[k].request.now_us += 500;
                if (decide(&r[k]) == SCHEDULE_ACCEPT)
                    CU_ASSERT_EQUAL(schedule_commit(r[k].scheduler,
                                                    &r[k].request,
                                                    &r[k].decision),
                                    0);
            }
            const struct schedule_decision *a = &r[0].decision;
            const struct schedule_decision *b = &r[1].decision;

            same = memcmp(a->candidates, b->candidates,
                          a->n_candidates * sizeof(*a->candidates)) == 0 &&
                   (a->n_decode_candidates == 0 ||
                    memcmp(a->decode_candidates, b->decode_candidates,
                           a->n_decode_candidates *
                               sizeof(*a->decode_candidates)) == 0);
            r[0].decision.candidates = r[1].decision.candidates;
            r[0].decision.decode_candidates = r[1].decision.decode_candidates;
            same = same && memcmp(a, b, sizeof(*a)) == 0;
        }
        CU_ASSERT(same);
        rig_fini(&r[0]);
        rig_fini(&r[1]);
    }
}

static const struct suite_test tests[] = {
    {"global cache", test_global_cache},
    {"reuse in steps", test_reuse_in_steps},
    {"whole prompt cached", test_whole_prompt_cached},
    {"sender", test_sender},
    {"eligible", test_eligible},
    {"pending", test_pending},
    {"other policies", test_other_policies},
    {"ties go low", test_ties_go_low},
    {"decode choice", test_decode_choice},
    {"to the letter", test_to_the_letter},
    {"slo", test_slo},
    {"in time", test_in_time},
    {"nowhere", test_nowhere},
    {"commit", test_commit},
    {"cancelled fetches", test_cancelled_fetches},
    {"commit fails without trace", test_commit_fails_without_trace},
    {"config", test_config},
    {"coupled", test_coupled},
    {"pooled cache", test_pooled_cache},
    {"expected", test_expected},
    {"policy sees keys", test_policy_sees_keys},
    {"policy options", test_policy_options},
    {"deterministic", test_deterministic},
};
SUITE("schedule", tests)
