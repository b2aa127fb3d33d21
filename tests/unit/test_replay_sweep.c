/* What a sweep draws, the load that it is, and what counts as a loss. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "tools/replay/study/sweep/sweep.h"
#include "tools/replay/study/sweep/work.h"
#include "tools/replay/trace/stream.h"
#include "traces/random.h"

#define HARDWARE                                                             \
    "\"hardware\": [{\"name\": \"h\", \"layers\": 4, "                       \
    "\"kv_bytes_per_token\": 1000, \"prefill_us\": [0, 10, 0, 0], "          \
    "\"decode_us\": [1000, 100, 0], \"kv_tokens\": 20000, \"max_batch\": 8," \
    " \"step_tokens\": 512, \"device\": {\"tokens\": 20000}, \"disk\": "     \
    "{\"tokens\": 90000, \"gbytes_per_s\": 3}}]"
#define TRACES                                                     \
    "\"traces\": [{\"name\": \"c\", \"like\": \"conversation\"}, " \
    "{\"name\": \"f\", \"file\": \"t.jsonl\", \"length_scale\": 8}]"
#define RANGES                                                         \
    "\"balance\": [0.5, 2], \"slow_nodes\": [0.1, 0.5], "              \
    "\"slow_speed\": [0.4, 0.8], \"link_gbps\": [10, 800], \"load\": " \
    "[0.3, 1.5], \"prefill_error_sigma\": [0.1, 0.3], "                \
    "\"decode_error_sigma\": [0, 0.1], \"slo_ttft_s\": [5, 30]"
#define HEAD \
    "\"format\": \"conductor-sweep\", \"version\": 1, \"name\": \"s\", "
#define SHARES(x)                                                   \
    "\"aggregated\": " x ", \"disks\": " x ", \"unequal\": " x ", " \
    "\"errors\": " x ", "
#define SIZES "\"requests\": [100, 300], \"nodes\": [2, 64], "

static int parse(const char *text, struct sweep_description *d, char *err)
{
    err[0] = '\0';
    return sweep_description_parse(text, strlen(text), "d/F", d, err);
}

static void refused(const char *text, const char *message)
{
    struct sweep_description d;
    char err[SWEEP_ERROR_BYTES];

    CU_ASSERT_EQUAL(parse(text, &d, err), -EINVAL);
    if (strcmp(err, message) != 0) {
        printf("\n    got \"%s\"", err);
        CU_FAIL("another message");
    }
}

static void test_parse(void)
{
    struct sweep_description d;
    char err[SWEEP_ERROR_BYTES];

    CU_ASSERT_EQUAL_FATAL(parse("{" HEAD SIZES RANGES ", " SHARES("0.5")
                                    HARDWARE ", " TRACES "}",
                                &d, err),
                          0);
    CU_ASSERT_EQUAL(d.n_hardware, 1);
    CU_ASSERT_EQUAL(d.n_traces, 2);
    CU_ASSERT_STRING_EQUAL(d.traces[1].file, "d/t.jsonl");
    CU_ASSERT_EQUAL(d.traces[1].length_scale, 8);
    CU_ASSERT_EQUAL(d.hardware[0].tiers[TIER_DISK].capacity_tokens, 90000);
    CU_ASSERT_EQUAL(d.load.most, 1.5);
    CU_ASSERT_EQUAL(d.slo_tbt_s.most, 0.0);
    CU_ASSERT_EQUAL(sweep_description_add_file(&d, "/a/b.gz"), 0);
    CU_ASSERT_STRING_EQUAL(d.traces[2].name, "b.gz");
    while (d.n_traces < SWEEP_TRACES_MAX)
        CU_ASSERT_EQUAL(sweep_description_add_file(&d, "b"), 0);
    CU_ASSERT_EQUAL(sweep_description_add_file(&d, "b"), -ENOSPC);
}

static void test_bad(void)
{
    refused("{}", "d/F: format: missing: must be \"conductor-sweep\"");
    refused("{" HEAD "\"requests\": [9, 3]}",
            "d/F: requests: [9,3]: must be [least, most] from 1 to 1e+06");
    refused("{" HEAD "\"requests\": 3}",
            "d/F: requests: 3: must be an array of 2 numbers");
    refused("{" HEAD "\"requests\": [1, 2], \"nodes\": [1, 4]}",
            "d/F: nodes: [1,4]: must be [least, most] from 2 to 512");
    refused("{" HEAD SIZES RANGES ", " SHARES("1.5") HARDWARE ", " TRACES "}",
            "d/F: aggregated: 1.5: must be a number of 0 to 1");
    refused("{" HEAD SIZES RANGES ", " SHARES("1") TRACES ", \"hardware\": []}",
            "d/F: hardware: []: must be an array of 1 to 8 objects");
    refused("{" HEAD SIZES RANGES ", " SHARES("1") HARDWARE
            ", \"traces\": [4]}",
            "d/F: traces[0]: 4: must be an object");
    refused("{" HEAD SIZES RANGES ", " SHARES("1") HARDWARE
            ", \"traces\": [{\"name\": \"n\", \"like\": \"chat\"}]}",
            "d/F: traces[0].like: \"chat\": must be a workload of `generate`");
    refused("{" HEAD SIZES RANGES ", " SHARES("1") HARDWARE
            ", \"traces\": [{\"name\": \"n\", \"like\": \"synthetic\", "
            "\"length_scale\": 3}]}",
            "d/F: traces[0].length_scale: 3: must be a divisor of 512");
    refused("{" HEAD SIZES RANGES ", " SHARES("1") HARDWARE
            ", \"traces\": [{\"name\": \"n\"}], \"more\": 1}",
            "d/F: more: no such field");
}

static bool within(double x, double least, double most)
{
    return x >= least && x <= most;
}

/* A case depends on its number and the seed alone, and a share that changes
 * changes nothing but what it is the share of. */
static void test_draw(void)
{
    struct sweep_description d, never;
    char err[SWEEP_ERROR_BYTES];
    size_t aggregated = 0, slow = 0;

    CU_ASSERT_EQUAL_FATAL(parse("{" HEAD SIZES RANGES ", " SHARES("0.5")
                                    HARDWARE ", " TRACES "}",
                                &d, err),
                          0);
    never = d;
    never.aggregated = never.disks = never.unequal = never.errors = 0;
    for (uint64_t k = 0; k < 1000; k++) {
        struct sweep_draw a, b, c;

        sweep_draw(&d, 7, k, &a);
        sweep_draw(&d, 7, k, &b);
        CU_ASSERT(a.seed == b.seed && a.nodes == b.nodes);
        CU_ASSERT(a.load == b.load && a.hardware == b.hardware);
        CU_ASSERT(a.decode_error_sigma == b.decode_error_sigma);
        sweep_draw(&d, 8, k, &b);
        CU_ASSERT_NOT_EQUAL(a.seed, b.seed);
        sweep_draw(&never, 7, k, &c);
        CU_ASSERT(a.load == c.load && a.link_gbps == c.link_gbps);
        CU_ASSERT(a.nodes == c.nodes && a.requests == c.requests);
        CU_ASSERT_EQUAL(sweep_causes_of(&c) &
                            ~(1u << SWEEP_LINKS | 1u << SWEEP_OVERLOAD),
                        0);
        CU_ASSERT(within((double)a.requests, 100, 300));
        CU_ASSERT(within(a.nodes, 2, 64));
        CU_ASSERT(within(a.link_gbps, 10, 800) && within(a.load, 0.3, 1.5));
        CU_ASSERT(a.slow_nodes == 0 || within(a.slow_nodes, 0.1, 0.5));
        CU_ASSERT(a.prefill_error_sigma == 0 ||
                  within(a.prefill_error_sigma, 0.1, 0.3));
        CU_ASSERT(!(a.aggregated && a.disks));
        aggregated += a.aggregated;
        slow += a.link_gbps < 89.4; /* the middle of the logarithms */
    }
    CU_ASSERT(within((double)aggregated, 400, 600));
    CU_ASSERT(within((double)slow, 400, 600));
}

static struct sweep_trace generated = {
    .name = "g", .like = "conversation", .length_scale = 1};

/* What is drawn becomes a cluster at the load that was drawn. */
static void test_make(void)
{
    struct sweep_description d;
    char err[SWEEP_ERROR_BYTES];
    struct sweep_work work;

    CU_ASSERT_EQUAL_FATAL(parse("{" HEAD SIZES RANGES ", " SHARES("0.5")
                                    HARDWARE ", " TRACES "}",
                                &d, err),
                          0);
    d.traces[1] = generated;
    for (uint64_t k = 0; k < 50; k++) {
        struct sweep_case one;
        struct sweep_draw draw;

        sweep_draw(&d, 1, k, &draw);
        CU_ASSERT_EQUAL_FATAL(sweep_case_make(&draw, &one, err), 0);
        CU_ASSERT_EQUAL(cluster_nodes(&one.cluster), draw.nodes);
        CU_ASSERT_EQUAL(one.cluster.coupled_nodes,
                        draw.aggregated ? draw.nodes : 0);
        CU_ASSERT_EQUAL(one.cluster.tiers[TIER_DISK].capacity_tokens > 0,
                        draw.disks);
        CU_ASSERT(draw.slow_nodes == 0 ||
                  one.cluster.reality.node_speed[0] == draw.slow_speed);
        const struct replay_stream_options source = sweep_source(&draw, 0, 0);
        CU_ASSERT_EQUAL_FATAL(
            sweep_work_read(&source, &one.cluster, &work, err, sizeof(err)), 0);
        CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &one.cluster) *
                                   one.speed / work.span_s,
                               draw.load, 1e-9);
    }
}

/* What a description may leave out is drawn last, so that the rest of a case
 * is as without; nodes of another kind are the last ones of their role. */
static void test_optional(void)
{
    struct sweep_description d, without;
    char err[SWEEP_ERROR_BYTES];
    size_t asks = 0, mixed = 0;

    CU_ASSERT_EQUAL_FATAL(parse("{" HEAD SIZES RANGES ", " SHARES("0.5")
                                    HARDWARE
                                ", \"asks\": 0.5, \"max_tokens\": [512, 4096], "
                                "\"mixed\": 0.5, \"mixed_nodes\": [0.2, 0.6], "
                                "\"mixed_cost\": [0.5, 2], \"mixed_memory\": "
                                "[0.4, 1], " TRACES "}",
                                &d, err),
                          0);
    d.traces[1] = generated;
    without = d;
    without.asks = without.mixed = 0;
    for (uint64_t k = 0; k < 100; k++) {
        struct sweep_draw a, b;
        struct sweep_case one;

        sweep_draw(&d, 7, k, &a);
        sweep_draw(&without, 7, k, &b);
        CU_ASSERT(a.seed == b.seed && a.load == b.load && a.nodes == b.nodes);
        CU_ASSERT(a.decode_error_sigma == b.decode_error_sigma);
        CU_ASSERT(b.max_tokens == 0 && b.mixed_nodes == 0);
        CU_ASSERT(a.max_tokens == 0 || within(a.max_tokens, 512, 4096));
        asks += a.max_tokens > 0;
        mixed += a.mixed_nodes > 0;
        CU_ASSERT_EQUAL_FATAL(sweep_case_make(&a, &one, err), 0);
        const struct cluster *c = &one.cluster;
        CU_ASSERT_EQUAL(c->reality.max_tokens_fixed, a.max_tokens);
        CU_ASSERT_EQUAL(c->n_groups,
                        a.mixed_nodes > 0 ? a.aggregated ? 1 : 2 : 0);
        if (c->n_groups == 0)
            continue;
        struct cluster_node last;
        cluster_node_at(c, c->prefill_nodes + c->coupled_nodes - 1, &last);
        CU_ASSERT_EQUAL(c->groups[0].first + c->groups[0].nodes,
                        c->prefill_nodes + c->coupled_nodes);
        CU_ASSERT(last.tiers[TIER_DEVICE].capacity_tokens <= 20000);
        CU_ASSERT_DOUBLE_EQUAL(c->groups[0].prefill_us[1],
                               c->cost.prefill[1] * a.mixed_cost, 1e-9);
    }
    CU_ASSERT(within((double)asks, 30, 70) && within((double)mixed, 30, 70));
}

/* A list, newest first, beside the ring. */
static void check_lru(uint64_t capacity, uint64_t seed)
{
    struct sweep_lru *lru = sweep_lru_new(capacity, 1000);
    struct random_state random;
    uint64_t list[64], seen = 0, new_blocks = 0;
    size_t n = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(lru);
    random_init(&random, seed);
    for (int k = 0; k < 2000; k++) {
        uint64_t ids[6];
        size_t n_ids = 1 + random_below(&random, 6), leading, hits = 0;

        for (size_t i = 0; i < n_ids; i++) {
            ids[i] = 10 * i + random_below(&random, i < 2 ? 3 : 6);
            seen |= UINT64_C(1) << ids[i];
        }
        for (size_t i = 0, at = 0; i < n_ids && at < n; i++) {
            for (at = 0; at < n && list[at] != ids[i];)
                at++;
            hits += at < n;
        }
        for (size_t i = n_ids; i > 0; i--) {
            size_t at = 0;

            while (at < n && list[at] != ids[i - 1])
                at++;
            if (at == n)
                at = n < capacity ? n++ : n - 1;
            memmove(list + 1, list, at * sizeof(list[0]));
            list[0] = ids[i - 1];
        }
        CU_ASSERT_EQUAL(sweep_lru_use(lru, ids, n_ids, &leading, &new_blocks),
                        0);
        CU_ASSERT_EQUAL(leading, hits);
    }
    CU_ASSERT_EQUAL(new_blocks, (uint64_t)__builtin_popcountll(seen));
    sweep_lru_free(lru);
}

static void test_lru(void)
{
    for (uint64_t capacity = 1; capacity < 40; capacity += 3)
        check_lru(capacity, capacity);
    sweep_lru_free(NULL);
}

/* Little memory; sessions at the rate of the load. */
static void test_small(void)
{
    struct sweep_description d;
    char err[SWEEP_ERROR_BYTES];
    size_t small = 0;

    CU_ASSERT_EQUAL_FATAL(parse("{" HEAD SIZES RANGES ", " SHARES("0.5")
                                    HARDWARE ", \"small_caches\": 0.5, "
                                             "\"cache\": [0.02, 1], " TRACES
                                             "}",
                                &d, err),
                          0);
    d.traces[0] = d.traces[1] = generated;
    snprintf(d.traces[1].like, sizeof(d.traces[1].like), "day");
    for (uint64_t k = 0; k < 40; k++) {
        struct sweep_draw draw;
        struct sweep_case one;
        struct sweep_work work;
        bool sessions;

        sweep_draw(&d, 3, k, &draw);
        CU_ASSERT(draw.cache == 0 || within(draw.cache, 0.02, 1));
        CU_ASSERT_EQUAL_FATAL(sweep_case_make(&draw, &one, err), 0);
        sessions = draw.trace == &d.traces[1];
        CU_ASSERT_EQUAL(one.rate > 0, sessions);
        CU_ASSERT(!sessions || (one.speed >= 1 && one.speed <= 1));
        const struct replay_stream_options source =
            sweep_source(&draw, 0, one.rate);
        CU_ASSERT_EQUAL_FATAL(
            sweep_work_read(&source, &one.cluster, &work, err, sizeof(err)), 0);
        CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &one.cluster) *
                                   one.speed / work.span_s,
                               one.load, 1e-9);
        CU_ASSERT(fabs(one.load / draw.load - 1) < (sessions ? 0.04 : 1e-9));
        if (!(draw.cache > 0))
            continue;
        small++;
        uint32_t nodes = one.cluster.prefill_nodes + one.cluster.coupled_nodes;
        double all =
            (double)one.cluster.tiers[TIER_DEVICE].capacity_tokens * nodes;
        CU_ASSERT_EQUAL(one.cluster.tiers[TIER_DISK].capacity_tokens, 0);
        CU_ASSERT(one.cluster.tiers[TIER_DEVICE].capacity_tokens >=
                  2 * work.longest_tokens);
        CU_ASSERT(all >= draw.cache * (double)work.touched_tokens * 0.8);
    }
    CU_ASSERT(within((double)small, 10, 30));
}

static void test_least(void)
{
    const struct sweep_work work = {
        .prefill_s = 100, .decode_s = 60, .kv_bytes = 4e9, .span_s = 10};
    struct cluster c = {
        .prefill_nodes = 4, .decode_nodes = 2, .link_bytes_per_s = 1e9};

    CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &c), 30, 1e-9);
    c.decode_nodes = 3;
    CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &c), 25, 1e-9);
    c.reality.n_speeds = 2;
    c.reality.node_speed[0] = c.reality.node_speed[1] = 0.5;
    CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &c), 100.0 / 3, 1e-9);
    c.link_bytes_per_s = 1e7;
    CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &c), 400.0 / 3, 1e-9);
    c.link_bytes_per_s = 1e9;
    c.cost.prefill[1] = c.cost.decode[1] = 10;
    c.n_groups = 1; /* the last two take twice as long */
    c.groups[0] = (struct cluster_group){
        .first = 2, .nodes = 2, .has_prefill = true, .prefill_us = {0, 20}};
    CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &c), 50, 1e-9);
    c = (struct cluster){.coupled_nodes = 8};
    CU_ASSERT_DOUBLE_EQUAL(sweep_work_least_s(&work, &c), 20, 1e-9);
}

static void test_losses(void)
{
    static const struct sweep_values v[] = {
        {.at = {1.1, 8.8, 0.6, 0.5}},
        {.at = {1.0, 9.0, 0.8, 0.8}},
        {.at = {(double)NAN, 8.0, 0.9, 0.2}},
        {.at = {2.0, 16.0, 0.1, 0.1}}};
    double loss;

    CU_ASSERT_EQUAL(sweep_worst(SWEEP_TTFT, v, 4, &loss), 1);
    CU_ASSERT_DOUBLE_EQUAL(loss, 0.1, 1e-9);
    CU_ASSERT_EQUAL(sweep_worst(SWEEP_P99, v, 4, &loss), 2);
    CU_ASSERT_DOUBLE_EQUAL(loss, 0.1, 1e-9);
    CU_ASSERT_EQUAL(sweep_worst(SWEEP_EFFECTIVE, v, 4, &loss), 2);
    CU_ASSERT_DOUBLE_EQUAL(loss, 0.3, 1e-9);
    CU_ASSERT_EQUAL(sweep_worst(SWEEP_TOKENS, v, 4, &loss), 1);
    CU_ASSERT_DOUBLE_EQUAL(loss, 0.3, 1e-9);
    CU_ASSERT_EQUAL(sweep_worst(SWEEP_TTFT, v + 3, 1, &loss), 0);
    CU_ASSERT_EQUAL(sweep_worse_by(SWEEP_EFFECTIVE, 0.0, 0.0), 0.0);
}

/* n requests, `together` of which have the same timestamp. */
struct source {
    uint32_t n, given, together;
};

static int next(void *arg, struct trace_request *t)
{
    struct source *s = arg;

    if (s->given == s->n)
        return 0;
    CU_ASSERT_EQUAL_FATAL(trace_request_reserve(t, 1), 0);
    t->arrival_us = s->given / s->together;
    t->input_tokens = s->given;
    t->hash_ids[0] = s->given++;
    t->block_count = 1;
    return 1;
}

static void check_ties(uint32_t n, uint32_t together, uint64_t seed)
{
    struct replay_ties ties = {.n = 0};
    struct source s = {n, 0, together};
    struct trace_request t = {0};
    uint8_t *seen = calloc(n + 1, 1);
    int64_t last_us = 0;
    uint32_t moved = 0, i = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(seen);
    replay_ties_init(&ties, seed);
    for (; replay_ties_next(&ties, next, &s, &t) == 1; i++) {
        CU_ASSERT_FATAL(t.input_tokens < n && !seen[t.input_tokens]);
        CU_ASSERT_EQUAL(t.hash_ids[0], t.input_tokens);
        CU_ASSERT(t.arrival_us >= last_us);
        last_us = t.arrival_us;
        seen[t.input_tokens] = 1;
        moved += t.input_tokens != i;
    }
    CU_ASSERT_EQUAL(i, n);
    CU_ASSERT_EQUAL(replay_ties_next(&ties, next, &s, &t), 0);
    CU_ASSERT(together == 1 ? moved == 0 : n < 100 || moved > n / 2);
    free(seen);
    trace_request_fini(&t);
    replay_ties_fini(&ties);
}

/* All come, once, at their time. */
static void test_ties(void)
{
    check_ties(0, 1, 1);
    check_ties(1, 1, 1);
    check_ties(1000, 1, 2);
    check_ties(1000, 7, 3);
    check_ties(64, 64, 4);
    check_ties(3 * REPLAY_TIES_MAX + 5, 2 * REPLAY_TIES_MAX + 1, 5);
}

/* The file of the repository. */
static void test_default(void)
{
    const char *folder = getenv("CONDUCTOR_CLUSTERS");
    struct sweep_description d;
    char err[SWEEP_ERROR_BYTES], path[1024];

    CU_ASSERT_EQUAL(sweep_description_load("/nonexistent", &d, err), -ENOENT);
    if (!folder)
        return;
    snprintf(path, sizeof(path), "%s/../sweeps/default.json", folder);
    CU_ASSERT_EQUAL(sweep_description_load(path, &d, err), 0);
    CU_ASSERT(d.requests.most <= 12000 && d.nodes.most == 64);
}

static const struct suite_test tests[] = {
    {"parse", test_parse},
    {"bad", test_bad},
    {"draw", test_draw},
    {"make", test_make},
    {"optional", test_optional},
    {"lru", test_lru},
    {"small caches, sessions", test_small},
    {"least", test_least},
    {"losses", test_losses},
    {"ties", test_ties},
    {"default", test_default},
};
SUITE("replay sweep", tests)
