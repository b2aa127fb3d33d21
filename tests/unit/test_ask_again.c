/*
 * Retry-After: of the rejected that come again after the time that they were
 * told, nine of ten are accepted, at a load that stays as it is. Simulated:
 * four prefill nodes, Poisson arrivals, exponential lengths.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "sim/sim.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

enum { BLOCK = 512, NODES = 4, REQUESTS = 12000, MEAN_TOKENS = 8000 };

struct source {
    uint64_t state, key;
    uint32_t left;
    double at_us, interval_us;
};

static double exponential(struct source *s, double mean)
{
    uint64_t x = random_mix(++s->state * UINT64_C(0x9e3779b97f4a7c15));

    return -mean * log(((double)(x >> 11) + 1.0) / 9007199254740992.0);
}

/* No prompt shares anything with another one. */
static int next(void *arg, struct trace_request *t)
{
    struct source *s = arg;
    size_t n;

    if (s->left-- == 0)
        return 0;
    s->at_us += exponential(s, s->interval_us);
    t->arrival_us = (int64_t)s->at_us;
    t->input_tokens = 64 + (uint32_t)fmin(exponential(s, MEAN_TOKENS), 60000);
    t->output_tokens = 1;
    n = (t->input_tokens + BLOCK - 1) / BLOCK;
    if (trace_request_reserve(t, n) != 0)
        return -ENOMEM;
    t->block_count = n;
    for (size_t i = 0; i < n; i++)
        t->hash_ids[i] = ++s->key;
    return 1;
}

static void take(void *, const struct sim_record *)
{
}

static const struct cluster cluster = {
    .name = "test",
    .layers = 80,
    .block_tokens = BLOCK,
    .kv_bytes_per_token = 1000,
    .prefill_nodes = NODES,
    .order = "fifo",
    .max_waiting = 1000,
    .pipeline_stages = 1,
    .prefix_cache = true,
    .link_bytes_per_s = 1e11,
    .kvcache_balancing_threshold = 1.0,
    .tiers[TIER_DEVICE].capacity_tokens = 3000000,
    .cost.prefill = {0, 100, 0.002, 0.004},
    .cost.range = {0, 1 << 30, 1 << 30, 1 << 30, 1 << 30},
};

/* How many came again, and how many of these were accepted. */
static void run(const char *policy, double rho, double load, double slo_s,
                uint64_t seed, uint64_t sum[2])
{
    const struct policy_setting rho_of = {.name = "rho", .value = rho};
    /* 0.8 s of the tokens, and 0.002 us of their mean square. */
    const double mean_us = 100.0 * MEAN_TOKENS + 0.002 * 2 * 6.4e7;
    struct source source = {.state = seed << 32,
                            .left = cases_of(REQUESTS),
                            .interval_us = mean_us / (NODES * load)};
    struct sim_config config = {.cluster = &cluster,
                                .policy = policy,
                                .settings = &rho_of,
                                .n_settings = 1,
                                .speed = 1.0,
                                .slo_ttft_us = (int64_t)(slo_s * 1e6),
                                .ask_again = true,
                                .seed = seed};
    struct sim_io io = {.next = next, .record = take, .arg = &source};
    struct sim_summary summary;
    char err[SIM_ERROR_BYTES] = "";

    CU_ASSERT_EQUAL_FATAL(sim_run(&config, &io, &summary, err), 0);
    CU_ASSERT(summary.accepted_again <= summary.asked_again);
    sum[0] += summary.asked_again;
    sum[1] += summary.accepted_again;
}

static void check(const char *policy, double rho)
{
    static const double loads[] = {0.6, 0.8, 0.95};
    uint64_t all = 0;

    for (size_t l = 0; l < 3; l++)
        for (double slo_s = 3; slo_s <= 6; slo_s += 3) {
            uint64_t sum[2] = {0, 0};

            for (uint64_t seed = 1; seed <= 3; seed++)
                run(policy, rho, loads[l], slo_s, seed, sum);
            printf("\n    %s rho %g, load %g, SLO %g s, seeds 1 to 3: %u of %u",
                   policy, rho, loads[l], slo_s, (unsigned)sum[1],
                   (unsigned)sum[0]);
            all += sum[0];
            /* Small numbers may lie two standard deviations lower. */
            CU_ASSERT((double)sum[1] >=
                      0.9 * (double)sum[0] - 0.6 * sqrt((double)sum[0]));
        }
    CU_ASSERT(all >= cases_of(100));
}

static void test_plan(void)
{
    check("plan", 0.7);
    check("plan", 0.1);
}

static void test_global_cache(void)
{
    check("global_cache", 0.7);
}

/* At twice what the nodes can do nobody who is refused for the queues is told a
 * time: there is none. */
static void test_overload(void)
{
    uint64_t sum[2] = {0, 0};

    run("global_cache", 0.7, 2.0, 6, 1, sum);
    printf("\n    load 2: %u of %u", (unsigned)sum[1], (unsigned)sum[0]);
    CU_ASSERT(sum[0] <= 20);
}

static const struct suite_test tests[] = {
    {"plan", test_plan},
    {"global_cache", test_global_cache},
    {"overload", test_overload},
};
SUITE("ask again", tests)
