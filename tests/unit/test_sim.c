/*
 * The simulator on small clusters with literal times, against a decode loop
 * that counts token by token, and on random traces for what must always hold.
 */
#include "tests/unit/sim_rig.h"
#include "traces/random.h"

/* The paper's model on two prefill nodes with the reference conventions. */
static struct rig *rig_new(void)
{
    const double us = 1e6 / (8 * 312e12 * 0.5);
    struct cluster c = {.name = "test",
                        .layers = 80,
                        .block_tokens = BLOCK,
                        .kv_bytes_per_token = 327680,
                        .prefill_nodes = 2,
                        .order = "fifo_strict",
                        .max_waiting = 100,
                        .pipeline_stages = 1,
                        .prefix_cache = true,
                        .link_bytes_per_s = 100e9,
                        .cache_at = CLUSTER_CACHE_AT_DISPATCH,
                        .whole_prompt_reuse = true,
                        .kvcache_balancing_threshold = 1.0};

    c.tiers[TIER_DEVICE].capacity_tokens = 3000000;
    c.cost.prefill[1] = 80.0 * 22 * 8192 * 8192 * us;
    c.cost.prefill[2] = 80.0 * 4 * 8192 * us;
    c.cost.prefill[3] = 2 * c.cost.prefill[2];
    c.cost.range =
        (struct cost_model_range){0, 1 << 30, 1 << 30, 1 << 30, 1 << 30};
    return rig_of(c, "global_cache");
}

static int64_t ttft_us(const struct rig *r, size_t i)
{
    return r->records[i].first_token_us - r->records[i].arrival_us;
}

#define RIG_TEST(test) \
    SUITE_TEST_OF(test, struct rig, r, rig_new(), rig_free(r))

/* The unit values that were computed independently. */
RIG_TEST(test_paper_values)
{
    ask(r, 0, 8192, 1, 1000);
    ask(r, 100000000, 131072, 1, 5000); /* ties: node 0, for 48 s */
    ask(r, 100000000, 16384, 1, 1000);  /* node 1 fetches 8192 tokens */
    ask(r, 300000000, 16384, 1, 1000);  /* both have all of it */
    ask(r, 400000000, 16000, 1, 1000);  /* a partial last block: 1031 */
    run(r);
    CU_ASSERT_EQUAL(ttft_us(r, 0), 916260);
    CU_ASSERT_EQUAL(r->records[0].prefill_node, 0);
    CU_ASSERT_EQUAL(ttft_us(r, 1), 48491282);
    CU_ASSERT_EQUAL(r->records[1].prefill_node, 0);
    CU_ASSERT_EQUAL(ttft_us(r, 2), 1225029); /* 26843.55 + 1198185.75 */
    CU_ASSERT_EQUAL(r->records[2].prefill_node, 1);
    CU_ASSERT_EQUAL(r->records[2].fetched_tokens, 8192);
    CU_ASSERT_EQUAL(r->records[2].local_tokens, 0);
    CU_ASSERT_EQUAL(r->records[2].predicted_ttft_us, ttft_us(r, 2));
    CU_ASSERT_EQUAL(ttft_us(r, 3), 0);
    CU_ASSERT_EQUAL(r->records[3].local_tokens, 16384);
    CU_ASSERT_EQUAL(ttft_us(r, 4), 0);
    CU_ASSERT_EQUAL(r->records[4].local_tokens, 16000);
    CU_ASSERT_EQUAL(r->summary.fetches.count, 1);
    CU_ASSERT_EQUAL(r->summary.fetches.bytes, 8192 * 327680ull);
    CU_ASSERT_EQUAL(r->summary.simulated_us, 400000000);

    /* Twice as fast: arrivals at half their time. */
    r->config.speed = 2.0;
    run(r);
    CU_ASSERT_EQUAL(r->records[1].arrival_us, 50000000);
    CU_ASSERT_EQUAL(ttft_us(r, 1), 48491282);
}

/* Costs of whole microseconds: 10 a token, 1000 + 100 n + 0.1 v a step. */
static void make_simple(struct rig *r)
{
    struct cluster *c = &r->cluster;

    memset(&c->cost, 0, sizeof(c->cost));
    c->cost.prefill[1] = 10;
    c->cost.decode[0] = 1000;
    c->cost.decode[1] = 100;
    c->cost.decode[2] = 0.1;
    c->cache_at = CLUSTER_CACHE_AT_SERVICE;
    c->whole_prompt_reuse = false;
    c->prefill_nodes = 1;
    c->decode_nodes = 1;
    c->decode_kv_tokens = 100000;
    c->decode_max_batch = 8;
    c->kv_bytes_per_token = 1000;
    c->link_bytes_per_s = 1e9; /* a token a microsecond */
    c->links_shared = true;
    c->layers = 4;
    r->config.policy = "local_cache";
}

RIG_TEST(test_decode_by_hand)
{
    make_simple(r);
    ask(r, 0, 1000, 4, 1);
    ask(r, 50000, 1000, 1, 7); /* no decode at all */
    run(r);
    /* 1000 tokens of KV: 1 ms behind the prefill. Steps with 1001, 1002 and
     * 1003 tokens. The first interval has the transfer in it. */
    CU_ASSERT_EQUAL(r->records[0].first_token_us, 10000);
    CU_ASSERT_EQUAL(r->records[0].end_us, 11000 + 3600 + 1);
    CU_ASSERT_EQUAL(r->records[0].tbt_us, 2200);
    CU_ASSERT_EQUAL(r->records[0].prefill_node, 0);
    CU_ASSERT_EQUAL(r->records[0].decode_node, 1);
    CU_ASSERT_EQUAL(r->records[0].predicted_tbt_us, 1200);
    CU_ASSERT_EQUAL(r->summary.pushes.count, 1);
    CU_ASSERT_EQUAL(r->summary.pushes.bytes, 1000000);
    CU_ASSERT_EQUAL(r->records[1].end_us, 60000);
    CU_ASSERT_EQUAL(r->records[1].decode_node, SIM_NO_NODE);
    CU_ASSERT_EQUAL(r->records[1].tbt_us, -1);

    /* Layer by layer, only the last quarter is left behind the prefill. */
    r->cluster.layerwise = true;
    run(r);
    CU_ASSERT_EQUAL(r->records[0].first_token_us, 10000);
    CU_ASSERT_EQUAL(r->records[0].end_us, 10250 + 3600 + 1);
    CU_ASSERT_EQUAL(r->summary.pushes.bytes, 1000000);
}

/* The pieces of one request's KV follow each other: while those of a long
 * prompt wait for the link, which takes four times as long as computing, a
 * short one of another node has half of it. */
RIG_TEST(test_pushes_share)
{
    make_simple(r);
    r->cluster.prefill_nodes = 2;
    r->cluster.step_tokens = 100;
    r->cluster.layerwise = true;
    r->cluster.link_bytes_per_s = 1e9 / 40;
    ask(r, 0, 1000, 2, 1);
    ask(r, 9000, 100, 2, 7);
    run(r);
    CU_ASSERT_EQUAL(r->records[1].first_token_us, 10000);
    /* 3/4 of it leaves at 9 ms. A step with 101 tokens of KV. */
    CU_ASSERT_DOUBLE_EQUAL(r->records[1].end_us, 9000 + 2 * 4000 + 1110, 10);
}

/* An idle node begins later by the hand-over; a request for a busy node loses
 * nothing. The pool counts it as waiting until then, and a TTFT that is
 * promised has the hand-over in it. */
static void test_handover(void)
{
    struct rig *r = rig_new();

    make_simple(r);
    r->cluster.prefill_nodes = 2;
    r->cluster.handover_us = 600;
    r->config.policy = "least_loaded";
    ask(r, 0, 1000, 1, 1);      /* node 0, 600 to 10600 */
    ask(r, 5000, 1000, 1, 7);   /* node 1, 5600 to 15600 */
    ask(r, 10300, 1000, 1, 13); /* node 0 is not free yet, but before node 1 */
    ask(r, 20500, 500, 1, 19);  /* node 1; node 0 has 100 us to go */
    run(r);
    CU_ASSERT_EQUAL(ttft_us(r, 0), 10600);
    CU_ASSERT_EQUAL(r->records[0].predicted_ttft_us, 10600);
    CU_ASSERT_EQUAL(r->records[0].queue_us, 0);
    CU_ASSERT_EQUAL(r->records[1].prefill_node, 1);
    CU_ASSERT_EQUAL(r->records[2].prefill_node, 0);
    CU_ASSERT_EQUAL(ttft_us(r, 2), 10600); /* free before it is handed over */
    CU_ASSERT_EQUAL(r->records[3].prefill_node, 1);
    CU_ASSERT_EQUAL(ttft_us(r, 3), 5600);

    /* An SLO that the hand-over breaks. */
    r->config.slo_ttft_us = 10300;
    run(r);
    CU_ASSERT_EQUAL(r->records[0].outcome, SIM_REJECTED);
    CU_ASSERT_EQUAL(r->records[3].outcome, SIM_COMPLETED);

    /* Blocks are fetched when the node knows that it should. */
    rig_free(r);
    r = rig_new();
    make_simple(r);
    r->cluster.prefill_nodes = 2;
    r->cluster.handover_us = 600;
    r->config.policy = "global_cache";
    ask(r, 0, BLOCK * 4, 1, 1);
    ask(r, 50000, BLOCK * 40, 1, 100); /* node 0 for 200 ms */
    ask(r, 60000, BLOCK * 5, 1, 1);    /* node 1 fetches 2 ms, computes 5 */
    run(r);
    CU_ASSERT_EQUAL(r->records[2].prefill_node, 1);
    CU_ASSERT_EQUAL(r->records[2].fetched_tokens, BLOCK * 4);
    CU_ASSERT_EQUAL(ttft_us(r, 2), 600 + BLOCK * 4 + BLOCK * 10);
    rig_free(r);
}

/* Two requests meet on the decode node: the second one joins at the end of the
 * step under way, and steps get longer. */
RIG_TEST(test_decode_joins)
{
    make_simple(r);
    r->cluster.cost.decode[2] = 0;
    ask(r, 0, 1000, 11, 1);  /* KV there at 11000, ten steps of 1100 */
    ask(r, 1000, 500, 3, 7); /* prefill to 15000, there at 15500 */
    run(r);
    /* It joins at 15400 + 1100 = 15500 + ..: steps end at 12100, ..., 15400,
     * 16500; then two steps of 1200 with both. */
    CU_ASSERT_EQUAL(r->records[1].end_us, 16500 + 2400);
    CU_ASSERT_EQUAL(r->records[1].tbt_us, 16500 + 1200 - 15000);
    /* Five steps alone, two together, three alone. */
    CU_ASSERT_EQUAL(r->records[0].end_us, 11000 + 8 * 1100 + 2400);
    CU_ASSERT_EQUAL(r->records[0].tbt_us, 2100);
}

/* A coupled node: decodes first, then as many prompt tokens as the budget of
 * the step leaves. */
static void test_coupled(void)
{
    struct rig *r = rig_new();

    make_simple(r);
    r->cluster.prefill_nodes = r->cluster.decode_nodes = 0;
    r->cluster.coupled_nodes = 1;
    r->cluster.step_tokens = 101;
    r->cluster.mix_requests = true;
    r->cluster.cost.decode[2] = 0;
    ask(r, 0, 101, 5, 1);
    ask(r, 500, 250, 1, 7);
    run(r);
    /* 0: prefill of 101 tokens to 1010. Then steps of one decode (1000 for the
     * weights, 100 for itself) and 100, 100 and 50 prompt tokens (10 each),
     * which read the same weights; then the fourth token alone. */
    CU_ASSERT_EQUAL(r->records[0].first_token_us, 1010);
    CU_ASSERT_EQUAL(r->records[1].first_token_us, 1010 + 3 * 1100);
    CU_ASSERT_EQUAL(r->records[0].end_us, 1010 + 3 * 1100 + 1100);
    CU_ASSERT_EQUAL(r->records[0].tbt_us, 1100);
    CU_ASSERT_EQUAL(r->records[0].decode_node, 0);
    rig_free(r);

    /* Chunks that take longer than the weights' read hide all of it. */
    r = rig_new();
    make_simple(r);
    r->cluster.prefill_nodes = r->cluster.decode_nodes = 0;
    r->cluster.coupled_nodes = 1;
    r->cluster.step_tokens = 201;
    r->cluster.mix_requests = true;
    r->cluster.cost.decode[2] = 0;
    ask(r, 0, 201, 4, 1);
    ask(r, 500, 400, 1, 7);
    run(r);
    CU_ASSERT_EQUAL(r->records[1].first_token_us, 2010 + 2 * (2000 + 100));
    CU_ASSERT_EQUAL(r->records[0].tbt_us, 2100);
    rig_free(r);
}

/* One of a pair prefills, the other one sends the first token, once it has the
 * KV that it did not have. */
RIG_TEST(test_pair)
{
    uint32_t n = 2 * BLOCK + 100;

    make_simple(r);
    r->cluster.prefill_nodes = r->cluster.decode_nodes = 0;
    r->cluster.coupled_nodes = 2;
    r->cluster.pair_prefills = r->cluster.pair_decodes = 1;
    r->cluster.layerwise = false;
    ask(r, 0, n, 3, 1);
    ask(r, 100000, n, 3, 1);
    ask(r, 200000, n, 1, 1); /* no decode */
    run(r);
    for (size_t i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(r->records[i].prefill_node, 0);
        CU_ASSERT_EQUAL(r->records[i].decode_node, 1);
    }
    CU_ASSERT_EQUAL(ttft_us(r, 0), n * 10 + n);
    CU_ASSERT_EQUAL(ttft_us(r, 1), 100 * 10 + 100);
    CU_ASSERT_EQUAL(ttft_us(r, 2), 100 * 10);
    CU_ASSERT_EQUAL(r->summary.pushes.count, 2);
    CU_ASSERT_EQUAL(r->summary.pushes.bytes, (uint64_t)(n + 100) * 1000);
}

/* Two stages: a prompt of four chunks takes five half chunks, and the next
 * one follows two behind. */
static void test_pipeline(void)
{
    struct rig *r = rig_new();

    make_simple(r);
    r->cluster.decode_nodes = 0;
    r->cluster.pipeline_stages = 2;
    r->cluster.step_tokens = 100;
    ask(r, 0, 400, 1, 1);
    ask(r, 0, 100, 1, 7);
    run(r);
    CU_ASSERT_EQUAL(r->records[0].first_token_us, 5 * 500);
    CU_ASSERT_EQUAL(r->records[1].first_token_us, 6 * 500);
    rig_free(r);

    /* What is predicted counts the passage, also after one was observed. */
    r = rig_new();
    make_simple(r);
    r->cluster.decode_nodes = 0;
    r->cluster.pipeline_stages = 4;
    r->cluster.step_tokens = 100;
    for (int i = 0; i < 10; i++)
        ask(r, 10000 * i, 400, 1, 1 + 10 * (uint64_t)i);
    run(r);
    for (int i = 0; i < 10; i++) {
        CU_ASSERT_EQUAL(ttft_us(r, (size_t)i), 7 * 250);
        CU_ASSERT_EQUAL(r->records[i].predicted_ttft_us, 7 * 250);
    }
    r->config.slo_ttft_us = 7 * 250;
    run(r);
    CU_ASSERT_EQUAL(r->records[9].outcome, SIM_COMPLETED);
    r->config.slo_ttft_us--;
    run(r);
    CU_ASSERT_EQUAL(r->records[0].outcome, SIM_REJECTED);
    CU_ASSERT_EQUAL(r->records[0].predicted_ttft_us, 7 * 250);
    rig_free(r);

    /* A short chunk waits for the long one in front of it. */
    r = rig_new();
    make_simple(r);
    r->cluster.decode_nodes = 0;
    r->cluster.pipeline_stages = 2;
    r->cluster.step_tokens = 100;
    ask(r, 0, 150, 1, 1);
    run(r);
    CU_ASSERT_EQUAL(r->records[0].first_token_us, 2 * 500 + 250);
    rig_free(r);
}

/* Blocks that went down to host memory are read back layer by layer. */
RIG_TEST(test_tiers)
{
    make_simple(r);
    r->cluster.decode_nodes = 0;
    r->cluster.tiers[TIER_DEVICE].capacity_tokens = 2 * BLOCK;
    r->cluster.tiers[TIER_HOST].capacity_tokens = 4 * BLOCK;
    r->cluster.tiers[TIER_HOST].read_bytes_per_s = 1e9;
    ask(r, 0, 2 * BLOCK + 10, 1, 1);
    ask(r, 100000, 2 * BLOCK + 10, 1, 51); /* pushes 1 and 2 down */
    ask(r, 200000, 2 * BLOCK + 10, 1, 1);
    ask(r, 300000, 2 * BLOCK + 10, 1, 1);
    run(r);
    CU_ASSERT_EQUAL(ttft_us(r, 0), 10340);
    CU_ASSERT_EQUAL(r->records[2].local_tokens, 1024);
    /* 1024 us to read; 100 us of computing hide 100 of the last three layers'
     * 768. */
    CU_ASSERT_EQUAL(ttft_us(r, 2), 1024);
    CU_ASSERT_EQUAL(ttft_us(r, 3), 100);
}

/* Waiting for its own reads does not make an engine look slow: predictions of
 * what comes later are exact. */
RIG_TEST(test_reads_teach_nothing)
{
    make_simple(r);
    r->cluster.cost.prefill[1] = 10000;
    r->cluster.decode_nodes = 0;
    r->cluster.tiers[TIER_DEVICE].capacity_tokens = 2 * BLOCK;
    r->cluster.tiers[TIER_HOST].capacity_tokens = 4 * BLOCK;
    r->cluster.tiers[TIER_HOST].read_bytes_per_s = 1e5;
    ask(r, 0, 2 * BLOCK + 100, 1, 1);
    ask(r, 50000000, 2 * BLOCK + 100, 1, 51); /* pushes 1 and 2 down */
    ask(r, 100000000, 2 * BLOCK + 100, 1, 1);
    ask(r, 150000000, 2 * BLOCK + 100, 1, 101);
    run(r);
    CU_ASSERT_EQUAL(r->records[2].local_tokens, 2 * BLOCK);
    /* 1 s of computing, 10.24 s of reading: ten times as long as predicted. */
    CU_ASSERT_EQUAL(ttft_us(r, 2), 10240000);
    CU_ASSERT_EQUAL(ttft_us(r, 3), 11240000);
    CU_ASSERT_EQUAL(r->records[3].predicted_ttft_us, ttft_us(r, 3));
}

/* One node, a prompt of 8 blocks of which the last 6 are on its disk; a block
 * is computed and read in 5120 us each. */
static struct rig *plan_rig(void)
{
    struct rig *r = rig_new();

    make_simple(r);
    r->cluster.decode_nodes = 0;
    r->cluster.tiers[TIER_DEVICE].capacity_tokens = 2 * BLOCK;
    r->cluster.tiers[TIER_DISK].capacity_tokens = 40 * BLOCK;
    r->cluster.tiers[TIER_DISK].read_bytes_per_s = 1e8;
    r->config.policy = "plan";
    ask(r, 0, 8 * BLOCK + 10, 1, 1);
    return r;
}

#define PLAN_RIG_TEST(test) \
    SUITE_TEST_OF(test, struct rig, r, plan_rig(), rig_free(r))

/* Three blocks are computed while the three behind them are read. */
PLAN_RIG_TEST(test_plan_both)
{
    ask(r, 100000, 8 * BLOCK + 10, 1, 1);
    run(r);
    CU_ASSERT_EQUAL(ttft_us(r, 0), 41060);
    CU_ASSERT_EQUAL(ttft_us(r, 1), 3 * 5120 + 100);
    CU_ASSERT_EQUAL(r->records[1].predicted_ttft_us, 3 * 5120 + 100);
    CU_ASSERT_EQUAL(r->records[1].local_tokens, 5 * BLOCK);
    CU_ASSERT_EQUAL(r->records[1].computed_tokens, 3 * BLOCK + 10);
    CU_ASSERT_EQUAL(r->summary.loaded_tokens[TIER_DISK], 3 * BLOCK);

    /* In steps of a block and a half it is the same. */
    r->cluster.step_tokens = BLOCK + BLOCK / 2;
    run(r);
    CU_ASSERT_EQUAL(ttft_us(r, 1), 3 * 5120 + 100);
    CU_ASSERT_EQUAL(r->records[1].computed_tokens, 3 * BLOCK + 10);
}

/* A short one waits for those blocks of the one under way that it can use, and
 * passes then: nothing is computed twice. */
RIG_TEST(test_interrupted)
{
    static const struct policy_setting preempt = {"preempt", 1};

    make_simple(r);
    r->cluster.decode_nodes = 0;
    r->cluster.step_tokens = BLOCK;
    r->config.policy = "plan";
    r->config.settings = &preempt;
    r->config.n_settings = 1;
    ask(r, 0, 40 * BLOCK, 1, 1);
    ask(r, 50000, 32 * BLOCK + 10, 1, 1);
    run(r);
    CU_ASSERT_EQUAL(r->records[0].computed_tokens, 40 * BLOCK);
    CU_ASSERT_EQUAL(r->records[1].computed_tokens, 10);
    CU_ASSERT_EQUAL(ttft_us(r, 0), 40 * 5120 + 100);
    CU_ASSERT_EQUAL(ttft_us(r, 1), 32 * 5120 - 50000 + 100);
    CU_ASSERT_EQUAL(r->records[1].predicted_ttft_us, 32 * 5120 - 50000 + 100);
}

/* The next turn of a conversation is short by what the turn before it will
 * leave, and waits behind that one, which waits for another; one that shares
 * nothing passes both. */
RIG_TEST(test_followed)
{
    make_simple(r);
    r->cluster.prefill_nodes = 1;
    r->cluster.decode_nodes = 0;
    r->config.policy = "plan";
    ask(r, 0, 20 * BLOCK, 1, 1000);
    ask(r, 1000, 10 * BLOCK, 1, 1);
    ask(r, 2000, 12 * BLOCK, 1, 1);
    ask(r, 3000, 5 * BLOCK, 1, 2000);
    run(r);
    CU_ASSERT_EQUAL(r->records[1].computed_tokens, 10 * BLOCK);
    CU_ASSERT_EQUAL(r->records[2].computed_tokens, 2 * BLOCK);
    CU_ASSERT(r->records[3].first_token_us < r->records[1].first_token_us);
    CU_ASSERT(r->records[1].first_token_us < r->records[2].first_token_us);
}

/* Prefills share steps: one that could join the last step of another one, whose
 * last block it can use, waits for that block instead of computing it too. */
RIG_TEST(test_followed_begun)
{
    static const struct policy_setting preempt = {"preempt", 0};

    make_simple(r);
    r->cluster.decode_nodes = 0;
    r->cluster.step_tokens = 3 * BLOCK;
    r->cluster.mix_requests = true;
    r->config.policy = "plan";
    r->config.settings = &preempt;
    r->config.n_settings = 1;
    ask(r, 0, 4 * BLOCK, 1, 1);
    ask(r, 1000, 4 * BLOCK + 10, 1, 1);
    run(r);
    CU_ASSERT_EQUAL(r->records[0].computed_tokens, 4 * BLOCK);
    CU_ASSERT_EQUAL(r->records[1].computed_tokens, 10);
    CU_ASSERT_EQUAL(ttft_us(r, 0), 4 * 5120);
    CU_ASSERT_EQUAL(ttft_us(r, 1), 4 * 5120 - 1000 + 100);
}

/* One that counts on blocks which another one's load brings from the disk waits
 * for that one: alone it would read them, and keep the engine meanwhile. */
PLAN_RIG_TEST(test_followed_load)
{
    r->cluster.tiers[TIER_DEVICE].capacity_tokens = 20 * BLOCK;
    r->config.slo_ttft_us = 1000000;
    ask(r, 100000, 20 * BLOCK, 1, 1000); /* pushes the 8 blocks out */
    ask(r, 300000, 8 * BLOCK + 4000, 1, 1);
    ask(r, 300001, 8 * BLOCK + 10, 1, 1);
    run(r);
    CU_ASSERT_EQUAL(ttft_us(r, 2), r->records[2].predicted_ttft_us);
    CU_ASSERT_EQUAL(ttft_us(r, 3), ttft_us(r, 2) - 1 + 100);
    CU_ASSERT_EQUAL(r->summary.loaded_tokens[TIER_DISK], 8 * BLOCK);
}

/* All is read while others compute; what was in memory is on the disk by then
 * and read at its turn, of which 100 us hide behind the rest. */
PLAN_RIG_TEST(test_plan_load)
{
    ask(r, 100000, 5000, 1, 100);
    ask(r, 100001, 8 * BLOCK + 10, 1, 1);
    run(r);
    CU_ASSERT_EQUAL(ttft_us(r, 1), 50000);
    CU_ASSERT_EQUAL(r->records[2].predicted_ttft_us, 49999 + 100);
    CU_ASSERT_EQUAL(ttft_us(r, 2), 49999 + 2 * 5120);
    CU_ASSERT_EQUAL(r->records[2].computed_tokens, 10);
    CU_ASSERT_EQUAL(r->summary.loaded_tokens[TIER_DISK], 6 * BLOCK);
}

/* 40 ms to compute hide all of four layers' loads but the first one's. */
PLAN_RIG_TEST(test_plan_layerwise)
{
    ask(r, 100000, 8 * BLOCK + 4000, 1, 1);
    run(r);
    CU_ASSERT_EQUAL(r->records[1].predicted_ttft_us, 6 * 5120 / 4 + 40000);
    CU_ASSERT_EQUAL(ttft_us(r, 1), 6 * 5120 / 4 + 40000);
    CU_ASSERT_EQUAL(r->records[1].queue_us, 6 * 5120 / 4);
    CU_ASSERT_EQUAL(r->records[1].computed_tokens, 4000);
    CU_ASSERT_EQUAL(r->summary.loaded_tokens[TIER_DISK], 6 * BLOCK);
}

/* Two requests read from one disk: 4 blocks of the first, which computes the
 * other 4 as nobody else is there, then all 8 of the second, since the first
 * one is: layer by layer, so that a quarter of its last tokens is left when all
 * are here. */
PLAN_RIG_TEST(test_plan_shares_disk)
{
    ask(r, 50000, 8 * BLOCK + 10, 1, 51);
    ask(r, 100000, 2 * BLOCK + 10, 1, 91);
    ask(r, 200000, 8 * BLOCK + 10, 1, 1);
    ask(r, 200001, 8 * BLOCK + 10, 1, 51);
    run(r);
    CU_ASSERT_EQUAL(ttft_us(r, 3), 4 * 5120 + 100);
    CU_ASSERT_EQUAL(ttft_us(r, 4), 12 * 5120 - 1 + 25);
    CU_ASSERT_EQUAL(r->records[4].predicted_ttft_us, ttft_us(r, 4));
    CU_ASSERT_EQUAL(r->summary.loaded_tokens[TIER_DISK], 12 * BLOCK);
}

/* At dispatch: a block that was pushed out while its request waits, and placed
 * again by another one, is ready when that one ends, not before. */
RIG_TEST(test_placed_again)
{
    make_simple(r);
    r->cluster.decode_nodes = 0;
    r->cluster.cache_at = CLUSTER_CACHE_AT_DISPATCH;
    r->cluster.prefill_nodes = 2;
    r->cluster.tiers[TIER_DEVICE].capacity_tokens = 2 * BLOCK;
    r->config.policy = "round_robin";
    ask(r, 0, 1024, 1, 1);     /* node 0 until 10240 */
    ask(r, 0, 1024, 1, 90000); /* node 1 */
    ask(r, 0, 1024, 1, 50);    /* node 0: pushes the first two out */
    ask(r, 0, 1024, 1, 90500);
    ask(r, 0, 1024, 1, 1); /* node 0: placed again, until 30720 */
    ask(r, 0, 1024, 1, 90600);
    ask(r, 40000, 10, 1, 3);
    r->config.watch_ids = (const uint64_t[]){1};
    r->config.n_watch = 1;
    r->config.watch_interval_us = 12000;
    run(r);
    CU_ASSERT_EQUAL(r->records[4].first_token_us, 30720);
    CU_ASSERT_EQUAL(r->records[4].local_tokens, 0);
    CU_ASSERT_EQUAL(r->copies_at[1], 0); /* 12000: the first has ended */
    CU_ASSERT_EQUAL(r->copies_at[2], 0);
    CU_ASSERT_EQUAL(r->copies_at[3], 1);
}

RIG_TEST(test_slo)
{
    make_simple(r);
    r->cluster.decode_nodes = 0;
    r->config.slo_ttft_us = 25000;
    for (int i = 0; i < 4; i++)
        ask(r, 0, 1000, 1, (uint64_t)i * 10);
    ask(r, 0, 3200000, 1, 100);
    run(r);
    CU_ASSERT_EQUAL(ttft_us(r, 1), 20000);
    for (int i = 2; i < 4; i++) {
        CU_ASSERT_EQUAL(r->records[i].outcome, SIM_REJECTED);
        CU_ASSERT_STRING_EQUAL(r->records[i].reason, "reject_slo_ttft");
        CU_ASSERT_EQUAL(r->records[i].predicted_ttft_us, 30000);
        CU_ASSERT_EQUAL(r->records[i].first_token_us, -1);
    }
    CU_ASSERT_EQUAL(r->records[4].outcome, SIM_FAILED);
    CU_ASSERT_STRING_EQUAL(r->records[4].reason, "too_long");
    r->config.admission = "none";
    run(r);
    CU_ASSERT_EQUAL(r->records[3].outcome, SIM_COMPLETED);
    CU_ASSERT_EQUAL(ttft_us(r, 3), 40000);
}

/* A request that waits finds the blocks again that it was sent to. */
RIG_TEST(test_kept)
{
    make_simple(r);
    r->cluster.decode_nodes = 0;
    r->cluster.tiers[TIER_DEVICE].capacity_tokens = 6 * BLOCK;
    ask(r, 0, 2 * BLOCK + 10, 1, 1);
    ask(r, 100000, 2 * BLOCK + 10, 1, 51);
    ask(r, 200000, 4 * BLOCK + 10, 1, 101); /* pushes the oldest two out */
    ask(r, 200000, 2 * BLOCK + 10, 1, 1);
    run(r);
    CU_ASSERT_EQUAL(r->records[3].local_tokens, 2 * BLOCK);
    CU_ASSERT_EQUAL(ttft_us(r, 3), r->records[3].predicted_ttft_us);
}

/* Without room on the decode node a request waits outside, in its turn. */
static void test_no_room(void)
{
    struct rig *r = rig_new();

    make_simple(r);
    r->cluster.decode_kv_tokens = 1500;
    ask(r, 0, 1000, 11, 1);
    ask(r, 0, 1000, 11, 7);
    ask(r, 0, 500, 2, 20);
    run(r);
    CU_ASSERT_EQUAL(r->summary.max_waiting_for_room, 2);
    CU_ASSERT_EQUAL(r->records[1].queue_us, 0);
    CU_ASSERT_EQUAL(r->records[1].first_token_us, r->records[0].end_us + 10000);
    CU_ASSERT(r->records[2].first_token_us > r->records[1].first_token_us);
    CU_ASSERT_EQUAL(r->records[2].outcome, SIM_COMPLETED);
    /* With an SLO that the room comes too late for it does not wait. */
    r->config.slo_ttft_us = 15000;
    run(r);
    CU_ASSERT_EQUAL(r->records[1].outcome, SIM_REJECTED);
    CU_ASSERT_STRING_EQUAL(r->records[1].reason, "no_capacity");
    rig_free(r);

    /* What ends at the time of an arrival has ended before it. */
    r = rig_new();
    make_simple(r);
    r->cluster.decode_kv_tokens = 1500;
    r->cluster.cost.decode[2] = 0;
    ask(r, 0, 1000, 11, 1);
    ask(r, 22000, 1000, 11, 7);
    run(r);
    CU_ASSERT_EQUAL(r->records[0].end_us, 22000);
    CU_ASSERT_EQUAL(r->summary.max_waiting_for_room, 0);
    rig_free(r);
}

RIG_TEST(test_watch)
{
    const uint64_t ids[] = {1000, 5000, 77};

    ask(r, 0, 8192, 1, 1000);
    ask(r, 100000000, 131072, 1, 5000);
    ask(r, 100000000, 16384, 1, 1000);
    ask(r, 200000000, 512, 1, 9000);
    r->config.watch_ids = ids;
    r->config.n_watch = 3;
    r->config.watch_interval_us = 30000000;
    run(r);
    CU_ASSERT_EQUAL(r->n_copies, 7); /* at 0, 30, ..., 180 s */
    CU_ASSERT_EQUAL(r->last_copies[0], 2);
    CU_ASSERT_EQUAL(r->last_copies[1], 1);
    CU_ASSERT_EQUAL(r->last_copies[2], 0);
}

RIG_TEST(test_bad_config)
{
    char err[SIM_ERROR_BYTES];

    r->config.policy = "best";
    CU_ASSERT_EQUAL(run_it(r, err), -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "no policy \"best\"");
    r->config.policy = "random";
    r->config.admission = "all";
    CU_ASSERT_EQUAL(run_it(r, err), -EINVAL);
    r->config.admission = NULL;
    r->config.speed = 0;
    CU_ASSERT_EQUAL(run_it(r, err), -EINVAL);
    r->config.speed = 1e-9;
    ask(r, 0, 10, 1, 1);
    ask(r, 10000000000, 10, 1, 1);
    CU_ASSERT_EQUAL(run_it(r, err), -ERANGE);
    r->config.speed = 1;
    r->cluster.prefill_nodes = 0;
    CU_ASSERT_EQUAL(run_it(r, err), -EINVAL);
}

static int fail_next(void *arg, struct trace_request *request)
{
    struct rig *r = arg;

    return r->n_given == 3 ? -EIO : rig_next(arg, request);
}

/* A source that fails ends the run, and nothing is lost (a sanitizer looks). */
static void expect_error(struct rig *r, int want, const char *message)
{
    char err[SIM_ERROR_BYTES] = "";

    int rc = run_it(r, err);

    if (rc != want || strcmp(err, message) != 0) {
        printf("\n    got %d \"%s\"", rc, err);
        CU_FAIL("not as expected");
    }
    rig_free(r);
}

/* What lies beyond all times ends the run, and is not taken for quick. */
static void test_too_long_times(void)
{
    struct rig *r = rig_new();

    /* 500 tokens, 2.5 s each. */
    make_simple(r);
    r->cluster.cost.prefill[1] = 2500000;
    ask(r, 0, 500, 1, 1);
    expect_error(r, -ERANGE,
                 "request 0: a prefill of 500 tokens takes more than 1,000 s");

    r = rig_new();
    make_simple(r);
    r->cluster.cost.decode[0] = 1e300;
    ask(r, 0, 500, 3, 1);
    expect_error(r, -ERANGE, "an event lies over 30 years ahead");

    r = rig_new();
    make_simple(r);
    r->cluster.link_bytes_per_s = 125;
    r->cluster.kv_bytes_per_token = 1 << 30;
    ask(r, 0, 500, 3, 1);
    expect_error(r, -ERANGE, "an event lies over 30 years ahead");
}

RIG_TEST(test_source_fails)
{
    struct sim_io io = {.next = fail_next, .record = rig_take, .arg = r};
    char err[SIM_ERROR_BYTES];

    for (int i = 0; i < 5; i++)
        ask(r, 0, 100000, 1, (uint64_t)i * 1000);
    CU_ASSERT_EQUAL(sim_run(&r->config, &io, &r->summary, err), -EIO);
}

/* Prompts that share beginnings, at random times. */
static void ask_random(struct rig *r, struct random_state *random, size_t n,
                       uint32_t gap_us, uint32_t output_max)
{
    int64_t at_us = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t tokens = 1 + random_below(random, 20 * BLOCK);

        at_us += random_below(random, gap_us);
        ask(r, at_us, tokens, random_below(random, output_max),
            1000 * (1 + (uint64_t)random_below(random, 30)));
    }
}

/* The obvious decode loop: one step after another, one token a request. */
static void decode_slowly(const struct rig *r, size_t n, const int64_t *ready,
                          int64_t *end)
{
    const double *d = r->cluster.cost.decode;
    uint32_t produced[REQUESTS_MAX] = {0};
    bool in[REQUESTS_MAX] = {false};
    double now = 0;
    size_t n_done = 0;

    for (size_t i = 0; i < n; i++)
        n_done += r->requests[i].output_tokens < 2;
    while (n_done < n) {
        double batch = 0, kv = 0, earliest = 1e18;

        for (size_t i = 0; i < n; i++) {
            if (produced[i] == UINT32_MAX || r->requests[i].output_tokens < 2)
                continue;
            if (!in[i] && (double)ready[i] <= now + 1e-6) {
                in[i] = true;
                produced[i] = 1;
            }
            if (!in[i] && (double)ready[i] < earliest)
                earliest = (double)ready[i];
            batch += in[i];
            kv += in[i] ? (double)r->requests[i].input_tokens + produced[i] : 0;
        }
        if (batch == 0) {
            now = earliest;
            continue;
        }
        now += d[0] + d[1] * batch + d[2] * kv;
        for (size_t i = 0; i < n; i++)
            if (in[i] && ++produced[i] == r->requests[i].output_tokens) {
                in[i] = false;
                produced[i] = UINT32_MAX;
                end[i] = (int64_t)(now + 0.5);
                n_done++;
            }
    }
}

RIG_TEST(test_decode_against_loop)
{
    struct random_state random;
    static int64_t ready[REQUESTS_MAX], end[REQUESTS_MAX];

    random_init(&random, seed_or(1));
    make_simple(r);
    r->cluster.decode_max_batch = 1000;
    r->cluster.decode_kv_tokens = 100000000;
    r->cluster.prefix_cache = false;
    r->cluster.kv_bytes_per_token = 1;
    r->cluster.link_bytes_per_s = 1e15; /* KV is there at once */
    r->cluster.layers = 1;
    ask_random(r, &random, 400, 40000, 300);
    run(r);
    for (size_t i = 0; i < r->n_requests; i++)
        ready[i] = r->records[i].first_token_us;
    decode_slowly(r, r->n_requests, ready, end);
    for (size_t i = 0; i < r->n_requests; i++) {
        if (r->requests[i].output_tokens < 2)
            continue;
        int64_t off_us = r->records[i].end_us - end[i];

        if (off_us < -2 || off_us > 2) {
            printf("\n    seed %llu, request %zu: %lld, not %lld",
                   (unsigned long long)seed_or(1), i,
                   (long long)r->records[i].end_us, (long long)end[i]);
            CU_FAIL("ends at another time");
            break;
        }
    }
}

static void check_record(const struct rig *r, const struct sim_record *x)
{
    const struct trace_request *t = &r->requests[x->index];

    CU_ASSERT_EQUAL(x->input_tokens, t->input_tokens);
    if (x->outcome != SIM_COMPLETED) {
        CU_ASSERT_PTR_NOT_NULL(x->reason);
        return;
    }
    CU_ASSERT_EQUAL(x->local_tokens + x->fetched_tokens + x->computed_tokens,
                    x->input_tokens);
    CU_ASSERT(x->queue_us >= 0 && x->prefill_us >= 0);
    CU_ASSERT(x->first_token_us >= x->arrival_us);
    CU_ASSERT(x->end_us >= x->first_token_us);
    CU_ASSERT(x->predicted_ttft_us >= 0);
    if (x->decode_node != SIM_NO_NODE) {
        int64_t whole_us = x->end_us - x->first_token_us;

        CU_ASSERT(t->output_tokens > 1);
        CU_ASSERT(x->tbt_us <= whole_us + 1);
        CU_ASSERT(x->tbt_us * (t->output_tokens - 1) >=
                  whole_us - t->output_tokens);
    }
}

/* Every kind of cluster under every policy: each request has one record that
 * makes sense, in order, and the same again the second time. */
static void check_always(void (*change)(struct cluster *), uint64_t random_seed)
{
    static struct sim_record first[REQUESTS_MAX];

    for (size_t p = 0; sim_policy_name(p); p++) {
        struct rig *r = rig_new();
        struct random_state random;

        random_init(&random, random_seed);
        make_simple(r);
        r->cluster.prefill_nodes = 3;
        r->cluster.decode_nodes = 2;
        r->cluster.layerwise = true;
        r->cluster.tiers[TIER_DEVICE].capacity_tokens = 40 * BLOCK;
        change(&r->cluster);
        ask_random(r, &random, 600, 60000, 60);
        r->config.policy = sim_policy_name(p);
        r->config.seed = random_seed;
        r->config.slo_ttft_us = random_below(&random, 2) * 400000;
        run(r);
        for (size_t i = 0; i < r->n_records; i++)
            check_record(r, &r->records[i]);
        memcpy(first, r->records, sizeof(first));
        run(r);
        CU_ASSERT_EQUAL(
            memcmp(first, r->records, r->n_records * sizeof(first[0])), 0);
        rig_free(r);
    }
}

static void no_change(struct cluster *c)
{
    (void)c;
}

static void tiny_memory(struct cluster *c)
{
    c->tiers[TIER_DEVICE].capacity_tokens = 25 * BLOCK;
    c->tiers[TIER_HOST].capacity_tokens = 3 * BLOCK;
    c->tiers[TIER_HOST].read_bytes_per_s = 1e8;
    c->tiers[TIER_DISK].capacity_tokens = 30 * BLOCK;
    c->tiers[TIER_DISK].read_bytes_per_s = 1e7;
    c->decode_kv_tokens = 25 * BLOCK;
    c->max_waiting = 3;
}

static void slow_links(struct cluster *c)
{
    c->link_bytes_per_s = 1e8;
    c->step_tokens = 700;
    c->mix_requests = true;
    snprintf(c->order, sizeof(c->order), "fifo");
}

static void coupled(struct cluster *c)
{
    c->prefill_nodes = c->decode_nodes = 0;
    c->coupled_nodes = 4;
    c->step_tokens = 300;
    c->mix_requests = true;
    c->decode_kv_tokens = 30 * BLOCK;
}

static void coupled_uncached(struct cluster *c)
{
    coupled(c);
    c->prefix_cache = false;
}

static void paired(struct cluster *c)
{
    coupled(c);
    c->pair_prefills = c->pair_decodes = 1;
    c->pair_decodes_alone = true;
}

static void only_pairs(struct cluster *c)
{
    coupled(c);
    c->pair_prefills = c->pair_decodes = 2;
    c->link_bytes_per_s = 1e8;
}

static void pipelined(struct cluster *c)
{
    c->pipeline_stages = 3;
    c->step_tokens = 512;
}

static void at_dispatch(struct cluster *c)
{
    c->cache_at = CLUSTER_CACHE_AT_DISPATCH;
    c->whole_prompt_reuse = true;
    c->decode_nodes = 0;
    c->tiers[TIER_DEVICE].capacity_tokens = 25 * BLOCK;
}

static void unequal(struct cluster *c)
{
    tiny_memory(c);
    c->n_groups = 2;
    c->groups[0] = (struct cluster_group){
        .first = 1, .nodes = 1, .has_prefill = true, .prefill_us = {9, 900}};
    c->groups[1] = (struct cluster_group){
        .decodes = true, .nodes = 1, .decode_max_batch = 2};
    c->reality = (struct cluster_reality){.prefill_error_sigma = 0.5,
                                          .decode_error_sigma = 0.5,
                                          .node_speed = {2, 1, 0.5},
                                          .n_speeds = 3,
                                          .max_tokens_fixed = 50,
                                          .max_tokens_times = 1.5};
}

/* A document of eight blocks that one in two asks for, behind others' prompts;
 * with a share of links for copies its blocks come to more nodes. */
static void crowd(struct rig *r, uint32_t n)
{
    struct random_state random;
    int64_t at_us = 0;

    random_init(&random, seed_or(1));
    for (uint32_t i = 0; i < n; i++) {
        bool document = random_below(&random, 2) == 0;
        uint32_t tokens = 1 + random_below(&random, 2 * BLOCK);

        at_us += random_below(&random, 400000);
        ask(r, at_us, document ? 8 * BLOCK + 200 : 4 * BLOCK + tokens, 1,
            document ? 1 : 1000 + 10 * i);
        if (document)
            r->requests[r->n_requests - 1].hash_ids[8] = 1000 + 10 * i;
    }
}

RIG_TEST(test_replicate)
{
    static struct sim_record first[REQUESTS_MAX];
    struct policy_setting share = {"replicate", 0};

    r->cluster.prefill_nodes = 4;
    r->cluster.link_bytes_per_s = 3e9;
    r->cluster.cache_at = CLUSTER_CACHE_AT_SERVICE;
    r->cluster.whole_prompt_reuse = false;
    r->cluster.links_shared = true;
    r->config.policy = "plan";
    crowd(r, 300);
    run(r);
    memcpy(first, r->records, sizeof(first));
    CU_ASSERT_EQUAL(r->summary.copies.count, 0);
    r->config.settings = &share;
    r->config.n_settings = 1;
    run(r);
    CU_ASSERT_EQUAL(memcmp(first, r->records, r->n_records * sizeof(first[0])),
                    0);
    share.value = 0.5;
    run(r);
    CU_ASSERT(r->summary.replication.pieces > 0);
    CU_ASSERT_EQUAL(r->summary.replication.pieces, r->summary.copies.count);
    CU_ASSERT(r->summary.replication.blocks >= 8);
    CU_ASSERT_EQUAL(r->summary.copies.bytes,
                    r->summary.replication.blocks * BLOCK * 327680);
    for (size_t i = 0; i < r->n_records; i++)
        check_record(r, &r->records[i]);
    memcpy(first, r->records, sizeof(first));
    run(r);
    CU_ASSERT_EQUAL(memcmp(first, r->records, r->n_records * sizeof(first[0])),
                    0);
}

/* As test_always(), with what is copied ahead. */
static void replicate_always(void (*change)(struct cluster *))
{
    const struct policy_setting share = {"replicate", 1};
    struct rig *r = rig_new();

    make_simple(r);
    r->cluster.prefill_nodes = 3;
    r->cluster.decode_nodes = 2;
    r->cluster.layerwise = true;
    r->cluster.tiers[TIER_DEVICE].capacity_tokens = 40 * BLOCK;
    change(&r->cluster);
    crowd(r, 400);
    r->config.policy = "plan";
    r->config.settings = &share;
    r->config.n_settings = 1;
    run(r);
    for (size_t i = 0; i < r->n_records; i++)
        check_record(r, &r->records[i]);
    rig_free(r);
}

static void test_always(void)
{
    printf("\n    seed %llu ", (unsigned long long)seed_or(1));
    check_always(no_change, seed_or(1));
    check_always(tiny_memory, seed_or(1) + 1);
    check_always(slow_links, seed_or(1) + 2);
    check_always(coupled, seed_or(1) + 3);
    check_always(coupled_uncached, seed_or(1) + 4);
    check_always(pipelined, seed_or(1) + 5);
    check_always(at_dispatch, seed_or(1) + 6);
    check_always(unequal, seed_or(1) + 7);
    check_always(paired, seed_or(1) + 8);
    check_always(only_pairs, seed_or(1) + 9);
    replicate_always(no_change);
    replicate_always(tiny_memory);
    replicate_always(slow_links);
    replicate_always(coupled);
    replicate_always(coupled_uncached);
    replicate_always(at_dispatch);
    replicate_always(unequal);
    replicate_always(paired);
    replicate_always(only_pairs);
}

static const struct suite_test tests[] = {
    {"paper values", test_paper_values},
    {"decode by hand", test_decode_by_hand},
    {"pushes share", test_pushes_share},
    {"hand-over", test_handover},
    {"decode joins", test_decode_joins},
    {"coupled", test_coupled},
    {"pair", test_pair},
    {"pipeline", test_pipeline},
    {"tiers", test_tiers},
    {"reads teach nothing", test_reads_teach_nothing},
    {"plan both", test_plan_both},
    {"interrupted", test_interrupted},
    {"followed", test_followed},
    {"followed begun", test_followed_begun},
    {"followed load", test_followed_load},
    {"plan load", test_plan_load},
    {"plan layerwise", test_plan_layerwise},
    {"plan shares disk", test_plan_shares_disk},
    {"placed again", test_placed_again},
    {"slo", test_slo},
    {"kept", test_kept},
    {"no room", test_no_room},
    {"watch", test_watch},
    {"bad config", test_bad_config},
    {"too long times", test_too_long_times},
    {"source fails", test_source_fails},
    {"decode against loop", test_decode_against_loop},
    {"replicate", test_replicate},
    {"always", test_always},
};
SUITE("sim", tests)
