/* Admission by price: the limit and the price against slow obvious versions,
 * the floor of a class, and what a stranger can do to the table of blocks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/price/asked.h"
#include "conductor/core/price/price.h"
#include "tests/unit/suite.h"
#include "traces/random.h"

enum { BLOCK = 512, ARRIVALS_MAX = 6000, KEYS = 400, SLO_US = 30000000 };

static const struct cost_model cost = {
    .prefill = {2000, 100, 0.001, 0.002},
    .range = {0, 1 << 20, 1 << 20, 64, 1 << 20},
};

static uint64_t below(uint64_t *state, uint64_t bound)
{
    return random_mix(++*state * UINT64_C(0x9e3779b97f4a7c15)) % bound;
}

/* Every arrival ever, and every block ever asked for. */
struct slow {
    struct price_config config;
    struct {
        int64_t at_us, slo_us;
        double x, work_us;
    } arrivals[ARRIVALS_MAX];
    size_t n;
    uint32_t asked[KEYS];
    double limit, tied_share, tied;
    int64_t renewed_us, all_fit_us;
};

static double slow_again(const struct slow *s, uint32_t k)
{
    uint32_t more = 0, n = 0;

    k = k > ASKED_EXPECT_MAX ? ASKED_EXPECT_MAX : k;
    for (uint32_t m = k; m <= ASKED_COUNT_MAX; m++)
        for (uint32_t key = 0; key < KEYS; key++) {
            more += m > k && s->asked[key] >= m;
            n += m == k && s->asked[key] >= m;
        }
    return n > 20 ? (double)more / n : 0.5;
}

/* Block by block, from the time of what comes before and with it. */
static double slow_price(struct slow *s, const struct price_work *w)
{
    double sum = 0.0, all = 0.0, again[KEYS + 1];

    for (size_t b = 0; b < w->n_keys; b++)
        again[b] = slow_again(s, s->asked[w->keys[b]] + 1);
    for (int64_t b = 0; b * BLOCK < w->n_tokens; b++) {
        int64_t from = b * BLOCK, to = from + BLOCK, begin = w->cached;

        if (to > w->n_tokens)
            to = w->n_tokens;
        if (from >= w->from && to <= w->split)
            begin = w->from;
        else if (from < w->cached)
            continue;
        double us =
            (double)cost_model_chunk_us(&cost, to - from, from - begin, begin);
        all += us;
        sum += us / (1.0 + ((size_t)b < w->n_keys ? again[b] : 0.0));
    }
    for (size_t b = 0; b < w->n_keys; b++)
        s->asked[w->keys[b]]++;
    return all > 0.0 ? w->us * sum / all : w->us;
}

/* Whether it is still known at a time: among the last, and not too old. */
static bool in_window(const struct slow *s, size_t i, int64_t now_us)
{
    return i + PRICE_WINDOW_MAX >= s->n &&
           s->arrivals[i].at_us > now_us - s->config.window_us;
}

/* The least SLO whose requests, with those of shorter ones, are more than half
 * of the work. */
static double slow_slo_us(const struct slow *s, int64_t now_us)
{
    double all = 0.0, best = INFINITY;

    for (size_t i = 0; i < s->n; i++)
        if (in_window(s, i, now_us))
            all += s->arrivals[i].work_us + 1.0;
    for (size_t i = 0; i < s->n; i++) {
        double up_to = 0.0, slo_us = (double)s->arrivals[i].slo_us;

        if (!in_window(s, i, now_us))
            continue;
        for (size_t k = 0; k < s->n; k++)
            if (in_window(s, k, now_us) &&
                s->arrivals[k].slo_us <= s->arrivals[i].slo_us)
                up_to += s->arrivals[k].work_us + 1.0;
        if (up_to > all / 2.0 && slo_us < best)
            best = slo_us;
    }
    return best;
}

/* What is aimed at, by the time since all fitted. */
static double slow_aim(const struct slow *s, int64_t now_us)
{
    double windows =
        (double)(now_us - s->all_fit_us) / (double)s->config.window_us;

    if (s->limit == INFINITY || !s->config.eases || windows <= 10.0)
        return s->config.rho;
    return fmax(s->config.rho * (10.0 / windows), fmin(s->config.rho, 0.35));
}

/* Of those at the limit, the share of which the mean one begins within cap. */
static double slow_tied_share(const struct slow *s, double cap, int64_t now_us)
{
    double n = 0.0, tied = 0.0, fit = 0.0;

    for (size_t i = 0; i < s->n; i++) {
        if (!in_window(s, i, now_us))
            continue;
        if (s->arrivals[i].x < s->limit)
            cap -= s->arrivals[i].work_us;
        if (s->arrivals[i].x >= s->limit && s->arrivals[i].x <= s->limit) {
            tied += s->arrivals[i].work_us;
            n += 1.0;
        }
    }
    while (fit < n && fit * tied <= cap * n)
        fit += 1.0;
    return fit / n;
}

/* One after the other is admitted at the limit, as its share says. */
static bool slow_within(struct slow *s, double x)
{
    if (x < s->limit || x > s->limit)
        return x < s->limit;
    s->tied += s->tied_share;
    if (s->tied < 1.0)
        return false;
    s->tied -= 1.0;
    return true;
}

static void slow_renew(struct slow *s, const struct price_load *load,
                       int64_t now_us)
{
    double span = (double)s->config.window_us, all = 0.0, best = 0.0;
    double slo_us = slow_slo_us(s, now_us);

    if (s->n > PRICE_WINDOW_MAX) {
        double since =
            (double)(now_us - s->arrivals[s->n - PRICE_WINDOW_MAX - 1].at_us);

        span = since < span ? fmax(since, 1.0) : span;
    }
    double rho = load->backlog_us / load->n_instances / slo_us;
    double cap = fmax(0.05, 1.0 + 3.0 * (slow_aim(s, now_us) - rho)) *
                 load->speed * span;

    for (size_t i = 0; i < s->n; i++) {
        double smaller = 0.0;

        if (!in_window(s, i, now_us))
            continue;
        all += s->arrivals[i].work_us;
        for (size_t k = 0; k < s->n; k++)
            if (in_window(s, k, now_us) && s->arrivals[k].x < s->arrivals[i].x)
                smaller += s->arrivals[k].work_us;
        if (smaller <= cap && s->arrivals[i].x > best)
            best = s->arrivals[i].x;
    }
    s->limit = all <= cap ? INFINITY : best;
    s->tied_share = slow_tied_share(s, cap, now_us);
    if (s->limit == INFINITY)
        s->all_fit_us = now_us;
    s->renewed_us = now_us;
}

/* Prices are whole here, so that sums do not depend on their order. */
static void compare_limits(uint64_t seed)
{
    static struct slow s;
    uint64_t state = seed << 32;
    struct price_config config = price_config_default;
    int64_t now_us = 1000000000 + (int64_t)below(&state, 1000000000);
    int64_t step_us = 2 << below(&state, 17);
    bool same = true;

    config.rho = (double)below(&state, 1000) / 1000;
    config.window_us = 1000000 << below(&state, 7);
    config.max_blocks = 100;
    config.eases = seed % 4 > 0;
    memset(&s, 0, sizeof(s));
    s.config = config;
    s.limit = INFINITY;
    s.renewed_us = INT64_MIN / 2;
    struct price *p = price_new(&config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    size_t n = 1000 + below(&state, 3000);
    for (size_t i = 0; i < n && same; i++) {
        struct price_arrival a = {
            .x = (double)below(&state, 1 << (4 + seed % 16)),
            .work_us = (double)below(&state, 1 << (4 + seed % 17)),
            .n_tokens = 1,
            .slo_ttft_us = SLO_US / (int64_t)(1 + below(&state, 3)),
            .now_us = now_us,
        };
        struct price_load load = {1 + (uint32_t)below(&state, 20),
                                  (double)(1 + below(&state, 40)),
                                  (double)below(&state, (uint64_t)SLO_US * 10)};
        double limit;
        bool due = now_us - s.renewed_us >= config.renew_us;

        s.arrivals[s.n].at_us = now_us;
        s.arrivals[s.n].slo_us = a.slo_ttft_us;
        s.arrivals[s.n].work_us = a.work_us;
        s.arrivals[s.n++].x = a.x;
        if (due)
            slow_renew(&s, &load, now_us);
        same = price_due(p, now_us) == due &&
               price_arrived(p, &a, &load, &limit) == slow_within(&s, a.x) &&
               (limit >= s.limit && limit <= s.limit);
        now_us += (int64_t)below(&state, (uint64_t)step_us);
        if (below(&state, 500) == 0)
            now_us += config.window_us / 2;
    }
    if (!same)
        fprintf(stderr, "limits differ, seed %llu\n", (unsigned long long)seed);
    CU_ASSERT(same);
    price_free(p);
}

static void test_limit_against_slow(void)
{
    for (uint64_t seed = 1; seed <= 40; seed++)
        compare_limits(seed);
}

static void compare_prices(uint64_t seed)
{
    static struct slow s;
    uint64_t state = seed << 32, keys[20];
    struct price *p = price_new(&price_config_default);
    bool same = true;

    memset(&s, 0, sizeof(s));
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    for (int i = 0; i < 300 && same; i++) {
        size_t n = below(&state, 20);
        int64_t blocks = (int64_t)n, from, split;
        uint64_t first = below(&state, KEYS - 20);

        for (size_t k = 0; k < n; k++)
            keys[k] = first / (1 + seed % 40) + k;
        from = (int64_t)below(&state, n + 1);
        split = from + (int64_t)below(&state, (uint64_t)(blocks - from) + 1);
        struct price_work w = {
            .keys = keys,
            .n_keys = n,
            .block_tokens = BLOCK,
            .n_tokens = blocks * BLOCK + 1 + (int64_t)below(&state, 500),
            .from = from * BLOCK,
            .split = split * BLOCK,
            .us = 1e6,
        };
        w.cached =
            w.split +
            BLOCK * (int64_t)below(&state, (uint64_t)(blocks - split) + 1);
        double expected = slow_price(&s, &w), x = price_ask(p, &w, &cost);

        same = fabs(x - expected) <= 1e-9 * expected && x <= w.us;
    }
    if (!same)
        fprintf(stderr, "prices differ, seed %llu\n", (unsigned long long)seed);
    CU_ASSERT(same);
    price_free(p);
}

/* Both expect by what was asked for before this request. */
static void test_price_against_slow(void)
{
    for (uint64_t seed = 1; seed <= 40; seed++)
        compare_prices(seed);
}

#define PRICE_TEST(test)                                                   \
    SUITE_TEST_OF(test, struct price, p, price_new(&price_config_default), \
                  price_free(p))

/* Small blocks are counted together. */
PRICE_TEST(test_small_blocks)
{
    uint64_t keys[64];
    struct price_work w = {.keys = keys,
                           .n_keys = 64,
                           .block_tokens = 16,
                           .n_tokens = 1024,
                           .us = 300};

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    for (uint64_t k = 0; k < 64; k++)
        keys[k] = k;
    /* Nothing is known: every block counts 1 / 1.5. */
    CU_ASSERT_DOUBLE_EQUAL(price_ask(p, &w, &cost), 200, 1e-9);
    w.n_keys = 0; /* nobody can reuse it */
    CU_ASSERT_DOUBLE_EQUAL(price_ask(p, &w, &cost), 300, 1e-9);
}

static bool arrive(struct price *p, int64_t at_s, int64_t tokens, double x,
                   double backlog_us)
{
    struct price_load load = {1, 1.0, backlog_us};
    double limit;

    return price_arrived(p,
                         &(struct price_arrival){.x = x,
                                                 .work_us = x,
                                                 .n_tokens = tokens,
                                                 .slo_ttft_us = SLO_US,
                                                 .feasible = true,
                                                 .now_us = at_s * 1000000},
                         &load, &limit);
}

/* One instance, whose queue is as long as wanted: 60 s for a minute's work. */
PRICE_TEST(test_limit_by_hand)
{
    const double wanted = 0.7 * SLO_US;

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    for (int64_t t = 1; t <= 25; t++)
        CU_ASSERT(arrive(p, t, 100, 2e6, wanted));
    CU_ASSERT(arrive(p, 26, 100, 8e6, wanted));        /* 50 s are below it */
    CU_ASSERT(arrive(p, 27, 100, 9e6, wanted));        /* 58 s */
    CU_ASSERT_FALSE(arrive(p, 28, 100, 10e6, wanted)); /* 67 s: 9 s limits */
}

/* Twice what an instance can do comes for so many seconds. Returns the aim. */
static double overload(struct price *p, int64_t *now_s, int64_t seconds)
{
    for (int64_t i = 0; i < seconds; i++)
        (void)arrive(p, ++*now_s, 100, 2e6, 0.5 * SLO_US);
    return price_aim(p);
}

static double eased(double rho, bool eases, int64_t seconds)
{
    struct price_config config = price_config_default;
    int64_t now_s = 0;
    struct price *p;
    double aim;

    config.rho = rho;
    config.eases = eases;
    p = price_new(&config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    aim = overload(p, &now_s, seconds);
    price_free(p);
    return aim;
}

/* An overload is no burst any more once it has lasted for ten minutes. The
 * first minute fills the window: after 48 s all do not fit. */
static void test_long_overload(void)
{
    int64_t now_s = 0, queue_us;
    struct price *p = price_new(&price_config_default);

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT_DOUBLE_EQUAL(overload(p, &now_s, 640), 0.7, 0);
    CU_ASSERT_DOUBLE_EQUAL(overload(p, &now_s, 300), 0.7 * 600 / 892, 0.002);
    CU_ASSERT_DOUBLE_EQUAL(overload(p, &now_s, 600), 0.35, 0);
    /* Those who come again are told by the same aim: all 59 others that came
     * are nearly twice what there is time for. */
    CU_ASSERT_DOUBLE_EQUAL((double)price_late_us(p, 2e6, &queue_us) / SLO_US,
                           0.5 - (0.35 - (59.0 / 30 - 1.0) / 3), 0.001);
    /* A pause: all fits, and it begins anew. */
    now_s += 60;
    CU_ASSERT_DOUBLE_EQUAL(overload(p, &now_s, 300), 0.7, 0);
    price_free(p);
    CU_ASSERT_DOUBLE_EQUAL(eased(0.7, false, 2000), 0.7, 0);
    CU_ASSERT_DOUBLE_EQUAL(eased(0.1, true, 2000), 0.1, 0);
}

/* Many small requests with short SLOs, another client's, are no reason to
 * refuse the work of those that are content with a queue. */
PRICE_TEST(test_many_short_slos)
{
    struct price_load load = {1, 1.0, 0.1 * SLO_US};
    struct price_arrival small = {
        .x = 1e3, .work_us = 1e3, .n_tokens = 10, .slo_ttft_us = 2000};
    double limit;

    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    for (int64_t t = 1; t <= 60; t++) {
        small.now_us = t * 1000000;
        for (int k = 0; k < 10; k++)
            (void)price_arrived(p, &small, &load, &limit);
        CU_ASSERT(
            arrive(p, t, 100, (double)(100 + t % 7) * 3e3, load.backlog_us));
    }
}

static void test_floor(void)
{
    struct price_config config = price_config_default;
    struct price *p;
    int admitted = 0;

    config.floor = 0.25;
    p = price_new(&config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    for (int64_t t = 1; t <= 400; t++) {
        CU_ASSERT(arrive(p, t, 100, 5e4, SLO_US));
        admitted += arrive(p, t, 40000, 9e6, SLO_US) && t > 300;
    }
    CU_ASSERT(admitted >= 23 && admitted <= 27);
    price_free(p);
}

/* Who asks for many blocks displaces others in proportion, and what is expected
 * of others' blocks recovers. */
static void test_stranger(void)
{
    struct asked a;
    double again[ASKED_EXPECT_MAX + 1];
    uint32_t kept = 0;

    CU_ASSERT_EQUAL_FATAL(asked_init(&a, 1000, 7), 0);
    for (uint32_t round = 1; round <= 20; round++)
        for (uint64_t key = 0; key < 100; key++)
            CU_ASSERT_EQUAL(asked_count(&a, key), round);
    asked_expect(&a, again);
    CU_ASSERT_DOUBLE_EQUAL(again[1], 19, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(again[20], 0, 1e-9);
    /* Half as many as the table holds, once each. */
    for (uint64_t key = 0; key < 500; key++)
        CU_ASSERT_EQUAL(asked_count(&a, 1000 + key), 1);
    for (uint64_t key = 0; key < 100; key++)
        kept += asked_count(&a, key) == 21;
    CU_ASSERT(kept >= 80);
    /* A flood makes all blocks look new ... */
    for (uint64_t key = 0; key < 100000; key++)
        (void)asked_count(&a, 10000 + key);
    asked_expect(&a, again);
    CU_ASSERT(again[1] < 0.1);
    /* ... until the table has been filled anew. */
    for (uint64_t key = 0; key < 10000; key++)
        for (int n = 0; n < 3; n++)
            (void)asked_count(&a, 1000000 + key);
    asked_expect(&a, again);
    CU_ASSERT(again[1] > 1.9);
    /* One prompt, over and over: it counts for so much and no more. */
    for (uint32_t n = 0; n < 100000; n++)
        CU_ASSERT(asked_count(&a, 5) <= ASKED_COUNT_MAX);
    asked_expect(&a, again);
    CU_ASSERT(again[1] < 2.1);
    asked_fini(&a);
}

static const struct suite_test tests[] = {
    {"test_limit_against_slow", test_limit_against_slow},
    {"test_price_against_slow", test_price_against_slow},
    {"test_small_blocks", test_small_blocks},
    {"test_limit_by_hand", test_limit_by_hand},
    {"test_long_overload", test_long_overload},
    {"test_many_short_slos", test_many_short_slos},
    {"test_floor", test_floor},
    {"test_stranger", test_stranger},
};
SUITE("price", tests)
