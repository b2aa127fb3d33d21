/*
 * Several conductors in front of the same nodes: what each knows and when, by
 * hand; that news without delay makes them decide as one; that nothing is lost
 * or counted for ever whatever the delay; and the queue of news against a slow
 * one.
 */
#include "sim/views/news.h"
#include "tests/unit/sim_rig.h"
#include "traces/random.h"

enum { REQUESTS = 400, ITEMS = 1000 };

static struct rig *rig_new(void)
{
    struct rig *r = rig_of(simple_cluster(), "plan");

    r->cluster.prefill_nodes = 2;
    r->cluster.tiers[TIER_DEVICE].capacity_tokens = 30 * BLOCK;
    return r;
}

#define RIG_TEST(test) \
    SUITE_TEST_OF(test, struct rig, r, rig_new(), rig_free(r))

/* Two conductors, two nodes. What one decided the other one knows 5 ms later,
 * as it knows what nodes have done. */
RIG_TEST(test_by_hand)
{
    r->cluster.decode_nodes = 0;
    r->config.policy = "least_loaded";
    r->config.conductors = 2;
    r->config.state_delay_us = 5000;
    ask(r, 0, 1000, 1, 1);     /* the first: node 0 until 10 ms */
    ask(r, 4999, 1000, 1, 10); /* the second does not know: node 0 */
    ask(r, 5000, 1000, 1, 20); /* the first knows its own alone: node 1 */
    ask(r, 5001, 1000, 1, 30); /* the second knows of both on node 0: node 1 */
    run(r);
    CU_ASSERT_EQUAL(r->records[0].prefill_node, 0);
    CU_ASSERT_EQUAL(r->records[1].prefill_node, 0);
    CU_ASSERT_EQUAL(r->records[1].predicted_ttft_us, 10000);
    CU_ASSERT_EQUAL(r->records[1].first_token_us, 20000);
    CU_ASSERT_EQUAL(r->records[2].prefill_node, 1);
    CU_ASSERT_EQUAL(r->records[3].prefill_node, 1);

    /* Never: the second one has node 0, then node 1. */
    r->config.nothing_shared = true;
    run(r);
    CU_ASSERT_EQUAL(r->records[1].prefill_node, 0);
    CU_ASSERT_EQUAL(r->records[3].prefill_node, 1);
    CU_ASSERT_EQUAL(r->records[3].predicted_ttft_us, 10000);
}

/* Blocks are known to all at once: workers tell everybody. */
RIG_TEST(test_blocks_are_known)
{
    r->cluster.decode_nodes = 0;
    r->config.conductors = 2;
    r->config.nothing_shared = true;
    ask(r, 0, 8 * BLOCK, 1, 1);
    ask(r, 200000, 9 * BLOCK, 1, 1);
    run(r);
    CU_ASSERT_EQUAL(r->records[1].prefill_node, r->records[0].prefill_node);
    CU_ASSERT_EQUAL(r->records[1].local_tokens, 8 * BLOCK);
}

/* A request that waits at one conductor for room that a decode of another one
 * takes gets it when that is heard of. */
RIG_TEST(test_room_is_heard_of)
{
    r->cluster.prefill_nodes = 1;
    r->cluster.decode_max_batch = 1;
    r->config.policy = "local_cache";
    r->config.conductors = 2;
    r->config.state_delay_us = 700;
    ask(r, 0, 1000, 4, 1);    /* ends at 11,000 + 3,603 us */
    ask(r, 5000, 100, 4, 10); /* waits until 700 us later */
    run(r);
    CU_ASSERT_EQUAL(r->records[0].end_us, 14601);
    CU_ASSERT_EQUAL(r->records[1].first_token_us, 14601 + 700 + 1000);
    CU_ASSERT_EQUAL(r->summary.max_waiting_for_room, 1);
}

/* Of a decode of another conductor each knows how many tokens it has by now. */
RIG_TEST(test_steps_are_known)
{
    const struct policy_setting links = {"links", 0};

    r->cluster.prefill_nodes = 1;
    r->cluster.cost.decode[2] = 10;
    r->config.settings = &links;
    r->config.n_settings = 1;
    r->config.conductors = 2;
    r->config.state_delay_us = 12000;
    /* KV there at 11 ms. Steps of 1,100 + 10 n us, n from 1,001 tokens on: they
     * end at 22,110 and 33,230. The second conductor hears at 23 ms that it has
     * begun, and knows of 1,002 tokens then. Its request has 100, and comes
     * into the third step. */
    ask(r, 0, 1000, 4, 1);
    ask(r, 24000, 100, 2, 10);
    run(r);
    CU_ASSERT_EQUAL(r->records[1].predicted_tbt_us,
                    1000 + 2 * 100 + 10 * (1002 + 100));
    CU_ASSERT_EQUAL(r->records[0].end_us,
                    33230 + 1000 + 2 * 100 + 10 * (1003 + 101));
}

static void separate(struct rig *r, struct random_state *random)
{
    r->cluster.prefill_nodes = 1 + random_below(random, 4);
    r->cluster.decode_nodes = 1 + random_below(random, 3);
    r->cluster.step_tokens = 256;
    r->cluster.layerwise = random_below(random, 2) == 0;
    if (random_below(random, 2) == 0)
        r->cluster.tiers[TIER_DISK] = (struct cluster_tier){
            .capacity_tokens = 60 * BLOCK, .read_bytes_per_s = 5e8};
}

static void coupled(struct rig *r, struct random_state *random)
{
    r->cluster.coupled_nodes = 2 + random_below(random, 3);
    r->cluster.prefill_nodes = r->cluster.decode_nodes = 0;
    r->cluster.step_tokens = 256;
    r->cluster.mix_requests = random_below(random, 2) == 0;
}

/* Requests of which some begin alike, none at the time of another one. */
static void crowd(struct rig *r, struct random_state *random, uint32_t gap_us)
{
    int64_t at_us = 0;

    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint32_t tokens = 1 + random_below(random, 8 * BLOCK);
        bool alike = random_below(random, 2) == 0;

        at_us += 1 + random_below(random, 2 * gap_us);
        ask(r, at_us, tokens, 1 + random_below(random, 30),
            alike ? 1 : 1000 + 10 * i);
    }
}

static struct rig *draw(uint64_t of, bool in_pool)
{
    struct random_state random;
    struct rig *r = rig_new();

    random_init(&random, of);
    (in_pool ? coupled : separate)(r, &random);
    crowd(r, &random, 2000 + random_below(&random, 20000));
    r->config.conductors = 2 + random_below(&random, 7);
    r->config.conductors_drawn = random_below(&random, 2) == 0;
    return r;
}

/* A decision may depend on when steps are heard of, if lengths are learnt, and
 * what a view has learnt on which of two prefills that end together it hears of
 * first. A view learns the cost of evictions from its own requests alone. */
static const struct policy_setting plain_settings[] = {
    {"lengths", 0}, {"correction", 0}, {"evict_price", 0}};

/* How sure a view is depends on what came of its own requests. */
static void forget_forecasts(struct sim_record *records)
{
    for (size_t i = 0; i < REQUESTS; i++)
        records[i].predicted_ttft_us = records[i].predicted_p90_us = 0;
}

/* Without delay several decide as one: their views are copies. Unless requests
 * wait, since each has a line of its own; none does here. */
static void test_no_delay(void)
{
    static struct sim_record one[REQUESTS];
    static const char *const policies[] = {"plan", "least_loaded",
                                           "local_cache"};

    printf("\n    seed %llu ", (unsigned long long)seed_or(1));
    for (uint64_t i = 0; i < 40; i++) {
        struct rig *r = draw(seed_or(1) * 1000 + i, i % 2 == 0);

        r->config.policy = policies[i % 3];
        r->config.settings = plain_settings;
        r->config.n_settings = 3;
        r->config.slo_ttft_us = i % 4 == 0 ? 100000 : 0;
        r->cluster.max_waiting = r->cluster.decode_max_batch = REQUESTS;
        r->cluster.decode_kv_tokens = 10000000;
        r->cluster.mix_requests = false;
        uint32_t conductors = r->config.conductors;

        r->config.conductors = 1;
        r->config.state_delay_us = 3000; /* means nothing to one */
        run(r);
        CU_ASSERT_EQUAL(r->summary.max_waiting_for_room, 0);
        memcpy(one, r->records, sizeof(one));
        r->config.conductors = conductors;
        r->config.state_delay_us = 0;
        run(r);
        forget_forecasts(one);
        forget_forecasts(r->records);
        if (memcmp(one, r->records, sizeof(one)) != 0)
            printf("\n    case %llu ", (unsigned long long)i);
        CU_ASSERT_EQUAL(memcmp(one, r->records, sizeof(one)), 0);
        CU_ASSERT_EQUAL(r->summary.crowded, 0);
        rig_free(r);
    }
}

/* What is refused for its price is the same, since all hear of all arrivals. */
static void test_price(void)
{
    static struct sim_record one[REQUESTS];
    uint64_t n_priced = 0;

    for (uint64_t i = 0; i < 6; i++) {
        struct rig *r = draw(seed_or(1) * 1000 + 900 + i, false);

        r->cluster.decode_nodes = 0;
        r->cluster.max_waiting = REQUESTS;
        r->config.settings = plain_settings;
        r->config.n_settings = 3;
        r->cluster.cost.prefill[1] = 2000; /* minutes of too much work */
        r->config.slo_ttft_us = 20000000;
        r->config.speed = 0.04;
        uint32_t conductors = r->config.conductors;

        r->config.conductors = 1;
        run(r);
        memcpy(one, r->records, sizeof(one));
        for (size_t k = 0; k < REQUESTS; k++)
            n_priced +=
                one[k].reason && strcmp(one[k].reason, "reject_price") == 0;
        r->config.conductors = conductors;
        run(r);
        forget_forecasts(one);
        forget_forecasts(r->records);
        CU_ASSERT_EQUAL(memcmp(one, r->records, sizeof(one)), 0);
        rig_free(r);
    }
    CU_ASSERT(n_priced > 100);
}

static void test_always(void)
{
    static struct sim_record first[REQUESTS];
    static const int64_t delays_us[] = {0, 1, 1000, 20000, 100000, 60000000};

    for (uint64_t i = 0; i < 40; i++) {
        struct rig *r = draw(seed_or(1) * 1000 + 500 + i, i % 2 == 0);

        r->config.state_delay_us = delays_us[i % 6];
        r->config.nothing_shared = i % 7 == 0;
        r->config.slo_ttft_us = i % 3 == 0 ? 50000 : 0;
        r->config.slo_tbt_us = i % 3 == 0 ? 20000 : 0;
        r->config.ask_again = i % 5 == 0;
        run(r);
        memcpy(first, r->records, sizeof(first));
        run(r); /* the same again */
        CU_ASSERT_EQUAL(memcmp(first, r->records, sizeof(first)), 0);
        rig_free(r);
    }
}

static void refused(struct rig *r, const char *part)
{
    char err[SIM_ERROR_BYTES] = "";

    CU_ASSERT_EQUAL(run_it(r, err), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, part));
}

RIG_TEST(test_refused)
{
    struct policy_setting copies = {"replicate", 1};

    ask(r, 0, 1000, 1, 1);
    r->config.conductors = SIM_CONDUCTORS_MAX + 1;
    refused(r, "257 conductors");
    r->config.conductors = 2;
    r->config.state_delay_us = -1;
    refused(r, "state delay of -1 us");
    r->config.state_delay_us = SIM_STATE_DELAY_MAX_US + 1;
    refused(r, "state delay of 60000001 us");
    r->config.state_delay_us = 0;
    r->cluster.cache_at = CLUSTER_CACHE_AT_DISPATCH;
    refused(r, "cache_at");
    r->cluster.cache_at = CLUSTER_CACHE_AT_SERVICE;
    r->config.settings = &copies;
    r->config.n_settings = 1;
    refused(r, "replicate");
    r->config.conductors = 1;
    run(r);
}

/* All that was told and has not arrived, in no order. */
struct slow_news {
    struct sim_news_item items[ITEMS];
    size_t n;
};

/* The one that was told first. */
static size_t slow_first(const struct slow_news *slow)
{
    size_t first = 0;

    for (size_t i = 1; i < slow->n; i++)
        if (slow->items[i].request_id < slow->items[first].request_id)
            first = i;
    return first;
}

static void arrives(struct slow_news *slow, struct sim_news *news)
{
    const struct sim_news_item *item = sim_news_first(news);
    size_t first = slow_first(slow);

    CU_ASSERT_PTR_NOT_NULL_FATAL(item);
    CU_ASSERT_EQUAL(item->request_id, slow->items[first].request_id);
    CU_ASSERT_EQUAL(item->due_us, slow->items[first].due_us);
    sim_news_arrived(news);
    slow->items[first] = slow->items[--slow->n];
}

/* What is due has arrived, in the order in which it was told, and nothing else.
 */
static void hear(struct slow_news *slow, struct sim_news *news, int64_t now_us)
{
    const struct sim_news_item *item;
    size_t due = 0;

    while ((item = sim_news_first(news)) && item->due_us <= now_us)
        arrives(slow, news);
    for (size_t i = 0; i < slow->n; i++)
        due += slow->items[i].due_us <= now_us;
    CU_ASSERT_EQUAL(due, 0);
}

static void test_news(void)
{
    static struct slow_news slow;
    struct random_state random;

    random_init(&random, seed_or(1));
    for (int round = 0; round < 20; round++) {
        struct sim_news news = {.delay_us = random_below(&random, 3000)};
        int64_t now_us = 0;

        slow.n = 0;
        for (uint64_t i = 0; i < ITEMS; i++) {
            struct sim_news_item item = {.request_id = i};

            if (random_below(&random, 4) == 0)
                item.sent = malloc(sizeof(*item.sent)); /* freed in time */
            now_us += random_below(&random, 3);
            CU_ASSERT_EQUAL_FATAL(sim_news_tell(&news, &item, now_us), 0);
            item.due_us = now_us + news.delay_us;
            slow.items[slow.n++] = item;
            if (random_below(&random, 3) == 0)
                hear(&slow, &news, now_us);
        }
        if (round % 2 == 0)
            hear(&slow, &news, INT64_MAX);
        sim_news_fini(&news);
        CU_ASSERT_PTR_NULL(sim_news_first(&news));
    }
}

static const struct suite_test tests[] = {
    {"by hand", test_by_hand},
    {"blocks are known", test_blocks_are_known},
    {"room is heard of", test_room_is_heard_of},
    {"steps are known", test_steps_are_known},
    {"no delay", test_no_delay},
    {"price", test_price},
    {"always", test_always},
    {"refused", test_refused},
    {"news", test_news},
};
SUITE("sim_views", tests)
