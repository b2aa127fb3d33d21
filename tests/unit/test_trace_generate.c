/*
 * Generated traces have the statistics of the paper's table, obey the rules of
 * the format, and are the same bytes for the same seed.
 */
#include <CUnit/CUnit.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "traces/generate.h"
#include "traces/id_map.h"
#include "traces/random.h"
#include "traces/stats.h"

/* The rules that the reader checks in a file. */
static bool request_is_legal(const struct trace_request *q, int64_t last_us,
                             struct id_map *before)
{
    bool ok = q->arrival_us >= last_us && q->input_tokens > 0 &&
              q->output_tokens > 0 &&
              q->block_count == (q->input_tokens + TRACE_BLOCK_TOKENS - 1) /
                                    TRACE_BLOCK_TOKENS;
    uint64_t previous = ID_MAP_NONE;

    for (size_t i = 0; i < q->block_count; i++) {
        const uint64_t *known = id_map_get(before, q->hash_ids[i]);

        ok = ok && (!known || *known == previous);
        ok = id_map_put(before, q->hash_ids[i], previous) == 0 && ok;
        previous = q->hash_ids[i];
    }
    return ok;
}

static void check_workload(const struct trace_workload_facts *facts,
                           uint64_t seed)
{
    struct trace_generator *g = NULL;
    struct trace_stats *stats = trace_stats_new(TRACE_BLOCK_TOKENS, true);
    struct id_map *before = id_map_new(SIZE_MAX);
    struct trace_request q = {0};
    int64_t last_us = 0;
    uint64_t illegal = 0;

    CU_ASSERT_EQUAL_FATAL(trace_generator_new(facts->name, seed, 0, &g), 0);
    for (uint64_t i = 0; i < facts->requests; i++) {
        CU_ASSERT_EQUAL_FATAL(trace_generator_next(g, &q), 0);
        CU_ASSERT_EQUAL_FATAL(trace_stats_add(stats, &q), 0);
        illegal += request_is_legal(&q, last_us, before) ? 0 : 1;
        last_us = q.arrival_us;
    }
    const struct trace_totals *t = trace_stats_totals(stats);
    double n = (double)t->requests;
    double in = (double)t->input_tokens / n / facts->input_tokens_mean;
    double out = (double)t->output_tokens / n / facts->output_tokens_mean;
    double hit = trace_totals_hit_ratio(t);
    double rate = n / ((double)t->last_arrival_us / 1e6);
    printf("\n    %s seed %llu: input x%.3f output x%.3f hit %.4f rate %.2f ",
           facts->name, (unsigned long long)seed, in, out, hit, rate);
    CU_ASSERT_EQUAL(illegal, 0);
    CU_ASSERT(fabs(in - 1) < (facts->sessions ? 0.25 : 0.04));
    CU_ASSERT(fabs(out - 1) < (facts->sessions ? 0.05 : 0.04));
    CU_ASSERT(fabs(hit - facts->hit_ratio) < 0.02);
    CU_ASSERT(facts->sessions ? rate < facts->rate * 1.05
                              : fabs(rate / facts->rate - 1) < 0.05);
    trace_request_fini(&q);
    id_map_free(before);
    trace_stats_free(stats);
    trace_generator_free(g);
}

static void test_statistics(void)
{
    const struct trace_workload_facts *facts = NULL;

    for (size_t i = 0; (facts = trace_workload_facts(i)); i++)
        for (uint64_t seed = 1; seed <= 5; seed++)
            check_workload(facts, seed);
}

/* A turn has one that follows: what links to it then has but a prefix. */
#define FOLLOWED UINT64_MAX

/* The turn before each turn, by the last full block of its prompt. */
struct turns {
    struct id_map *at_us, *sizes; /* by that block */
    struct id_map *gaps;          /* by the sizes of both */
    uint64_t last_id;             /* of them */
    uint64_t linked, same, other;
};

/* Links a turn to the one before it; with `known` looks its gap up there. */
static void link_turn(struct turns *t, const struct trace_request *q,
                      const struct turns *known)
{
    size_t full = q->input_tokens / TRACE_BLOCK_TOKENS;
    uint64_t size =
        random_mix((uint64_t)q->input_tokens << 32 | q->output_tokens);
    size_t i = full;

    while (i > 0 && !id_map_get(t->at_us, q->hash_ids[i - 1]))
        i--;
    if (i > 0 && *id_map_get(t->at_us, q->hash_ids[i - 1]) != FOLLOWED) {
        uint64_t id = q->hash_ids[i - 1];
        uint64_t key = random_mix(*id_map_get(t->sizes, id) ^ size) >> 1;
        uint64_t gap_us = (uint64_t)q->arrival_us - *id_map_get(t->at_us, id);
        const uint64_t *gap = known ? id_map_get(known->gaps, key) : NULL;

        CU_ASSERT_EQUAL(id_map_put(t->gaps, key, gap_us), 0);
        CU_ASSERT_EQUAL(id_map_put(t->at_us, id, FOLLOWED), 0);
        t->linked++;
        if (gap && llabs((long long)(*gap - gap_us)) <= 1000)
            t->same++;
        else if (gap)
            t->other++;
    }
    if (full == 0 || q->hash_ids[full - 1] <= t->last_id)
        return; /* a block of others, too */
    t->last_id = q->hash_ids[full - 1];
    CU_ASSERT_EQUAL(
        id_map_put(t->at_us, q->hash_ids[full - 1], (uint64_t)q->arrival_us),
        0);
    CU_ASSERT_EQUAL(id_map_put(t->sizes, q->hash_ids[full - 1], size), 0);
}

static void link_turns(struct turns *t, const char *workload, double rate,
                       const struct turns *known)
{
    struct trace_generator *g = NULL;
    struct trace_request q = {0};

    *t = (struct turns){.at_us = id_map_new(SIZE_MAX),
                        .sizes = id_map_new(SIZE_MAX),
                        .gaps = id_map_new(SIZE_MAX)};
    CU_ASSERT_EQUAL_FATAL(trace_generator_new(workload, 7, rate, &g), 0);
    for (int i = 0; i < 4000; i++) {
        CU_ASSERT_EQUAL_FATAL(trace_generator_next(g, &q), 0);
        link_turn(t, &q, known);
    }
    trace_request_fini(&q);
    trace_generator_free(g);
}

static void turns_fini(struct turns *t)
{
    id_map_free(t->at_us);
    id_map_free(t->sizes);
    id_map_free(t->gaps);
}

/* A rate scales when sessions start: within them the gaps stay. */
static void test_rate_of_sessions(void)
{
    static const char *const names[] = {"agents", "day"};

    for (size_t i = 0; i < 2; i++) {
        struct turns slow, fast;

        link_turns(&slow, names[i], 1, NULL);
        link_turns(&fast, names[i], 20, &slow);
        printf("%s: %llu linked, %llu as before, %llu not ", names[i],
               (unsigned long long)fast.linked, (unsigned long long)fast.same,
               (unsigned long long)fast.other);
        CU_ASSERT(fast.linked > 1000);
        CU_ASSERT(fast.same > 500);
        CU_ASSERT(fast.other * 50 < fast.same);
        turns_fini(&slow);
        turns_fini(&fast);
    }
}

/* Single prompts: nothing but the times is another at another rate. */
static void test_rate_of_singles(void)
{
    struct trace_generator *slow = NULL, *fast = NULL;
    struct trace_request a = {0}, b = {0};

    CU_ASSERT_EQUAL_FATAL(trace_generator_new("singles", 3, 1, &slow), 0);
    CU_ASSERT_EQUAL_FATAL(trace_generator_new("singles", 3, 100, &fast), 0);
    for (int i = 0; i < 2000; i++) {
        CU_ASSERT_EQUAL_FATAL(trace_generator_next(slow, &a), 0);
        CU_ASSERT_EQUAL_FATAL(trace_generator_next(fast, &b), 0);
        CU_ASSERT(a.input_tokens == b.input_tokens &&
                  a.output_tokens == b.output_tokens);
    }
    CU_ASSERT_DOUBLE_EQUAL((double)a.arrival_us / (double)b.arrival_us, 100,
                           0.1);
    trace_request_fini(&a);
    trace_request_fini(&b);
    trace_generator_free(slow);
    trace_generator_free(fast);
}

/* Agents: most of a prompt is the turn before, and prompts reach 120k. */
static void test_agents(void)
{
    struct trace_generator *g = NULL;
    struct trace_request q = {0};
    uint32_t longest = 0;

    CU_ASSERT_EQUAL_FATAL(trace_generator_new("agents", 1, 0, &g), 0);
    for (int i = 0; i < 6000; i++) {
        CU_ASSERT_EQUAL_FATAL(trace_generator_next(g, &q), 0);
        longest = q.input_tokens > longest ? q.input_tokens : longest;
    }
    CU_ASSERT(longest > 118000 && longest <= 122880);
    trace_request_fini(&q);
    trace_generator_free(g);
}

/* The lowest and the highest rate that there are. */
static void test_ends(void)
{
    const struct trace_workload_facts *facts;

    for (size_t i = 0; (facts = trace_workload_facts(i)); i++)
        for (int fast = 0; facts->sessions && fast < 2; fast++) {
            struct trace_generator *g = NULL;
            struct trace_request q = {0};
            int64_t last_us = 0;

            CU_ASSERT_EQUAL_FATAL(
                trace_generator_new(facts->name, 1, fast ? 1e6 : 1e-6, &g), 0);
            for (int k = 0; k < 500; k++) {
                CU_ASSERT_EQUAL_FATAL(trace_generator_next(g, &q), 0);
                CU_ASSERT(q.arrival_us >= last_us);
                last_us = q.arrival_us;
            }
            trace_request_fini(&q);
            trace_generator_free(g);
        }
}

/* The published synthetic trace has 3,993 requests in 1,022 s. */
static void test_published_load(void)
{
    struct trace_generator *g = NULL;
    struct trace_request q = {0};

    CU_ASSERT_EQUAL_FATAL(trace_generator_new("synthetic", 1, 0, &g), 0);
    for (int i = 0; i < 3993; i++)
        CU_ASSERT_EQUAL_FATAL(trace_generator_next(g, &q), 0);
    CU_ASSERT(fabs((double)q.arrival_us / 1e6 / 1022 - 1) < 0.05);
    trace_request_fini(&q);
    trace_generator_free(g);
}

static uint64_t digest(const char *workload, uint64_t seed, size_t requests)
{
    struct trace_generator *g = NULL;
    struct trace_request q = {0};
    uint64_t sum = 0;

    CU_ASSERT_EQUAL_FATAL(trace_generator_new(workload, seed, 0, &g), 0);
    for (size_t i = 0; i < requests; i++) {
        CU_ASSERT_EQUAL_FATAL(trace_generator_next(g, &q), 0);
        sum = random_mix(sum ^ (uint64_t)q.arrival_us);
        sum = random_mix(sum ^ ((uint64_t)q.input_tokens << 32) ^
                         q.output_tokens);
        for (size_t k = 0; k < q.block_count; k++)
            sum = random_mix(sum ^ q.hash_ids[k]);
    }
    trace_request_fini(&q);
    trace_generator_free(g);
    return sum;
}

/* Of one workload of each process: even, in bursts, by the hour. */
static void test_kinds_everywhere(void)
{
    CU_ASSERT_EQUAL(digest("agents", 1, 2000), 0x1039971fa413eddU);
    CU_ASSERT_EQUAL(digest("crowds", 1, 2000), 0xc6b5e84de6bd5a25U);
    CU_ASSERT_EQUAL(digest("nightly", 1, 2000), 0xc064586c65773da9U);
}

/* The literal is the promise that other machines and later versions agree. */
static void test_same_everywhere(void)
{
    CU_ASSERT_EQUAL(digest("toolagent", 1, 1000), 0x6504a5c5936351c8U);
    CU_ASSERT_NOT_EQUAL(digest("toolagent", 2, 1000), 0x6504a5c5936351c8U);
}

static void test_arguments(void)
{
    struct trace_generator *g = NULL;

    CU_ASSERT_EQUAL(trace_generator_new("chat", 1, 0, &g), -ENOENT);
    CU_ASSERT_EQUAL(trace_generator_new("synthetic", 1, -1, &g), -ERANGE);
    CU_ASSERT_EQUAL(trace_generator_new("synthetic", 1, NAN, &g), -ERANGE);
    CU_ASSERT_PTR_NULL(g);
    trace_generator_free(NULL);
}

static void test_exponential(void)
{
    struct random_state r;

    random_init(&r, 3);
    double sum = 0;
    int above_one = 0;
    for (int i = 0; i < 200000; i++) {
        double x = (double)random_exponential_q32(&r) / 4294967296.0;

        sum += x;
        above_one += x > 1.0;
    }
    CU_ASSERT_DOUBLE_EQUAL(sum / 200000, 1.0, 0.01);
    CU_ASSERT_DOUBLE_EQUAL(above_one / 200000.0, exp(-1), 0.005);
}

static const struct suite_test tests[] = {
    {"the paper's statistics", test_statistics},
    {"rate of sessions", test_rate_of_sessions},
    {"rate of singles", test_rate_of_singles},
    {"agents", test_agents},
    {"lowest and highest rate", test_ends},
    {"published load", test_published_load},
    {"same everywhere", test_same_everywhere},
    {"kinds the same everywhere", test_kinds_everywhere},
    {"arguments", test_arguments},
    {"exponential", test_exponential},
};
SUITE("trace_generate", tests)
