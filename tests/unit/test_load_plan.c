/* Load plans: equal to a search over all splits and assignments, never worse
 * than a single mode, sound for any input. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "conductor/core/plan/load_plan.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"

/* 1 us a token, so that examples can be done by hand. */
static const struct cost_model unit_cost = {.prefill = {0, 1, 0, 0}};

static uint64_t rng_state;

static int64_t pick(int64_t low, int64_t high)
{
    return low + (int64_t)(draw_u64(&rng_state) % (uint64_t)(high - low + 1));
}

/* Each run draws anew; LOAD_PLAN_SEED repeats one. */
static void seed_rng(const char *what)
{
    const char *seed = getenv("LOAD_PLAN_SEED");

    rng_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
    printf("%s: LOAD_PLAN_SEED=%llu ", what, (unsigned long long)rng_state);
}

static int64_t cost_us(const struct load_plan_request *r, int64_t from,
                       int64_t to)
{
    if (from >= to)
        return 0;
    return llround(
        (double)cost_model_prefill_us(r->cost, to - from, from, NULL) *
        r->cost_ratio);
}

static int64_t tokens(const struct load_plan_request *r, uint32_t blocks)
{
    uint64_t t = (uint64_t)blocks * r->block_tokens;

    return t < (uint64_t)r->n_tokens ? (int64_t)t : r->n_tokens;
}

static int64_t send_us(const struct load_plan_request *r, size_t source,
                       uint32_t blocks)
{
    const struct load_source *s = &r->sources[source];

    return (int64_t)((double)blocks *
                         ((double)r->block_bytes * 1e6 / s->bytes_per_s +
                          (double)s->block_extra_us) +
                     0.5);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* When the prompt is done if the sources send so many blocks each. */
static int64_t finish_us(const struct load_plan_request *r, enum load_mode mode,
                         uint32_t split, uint32_t cached, const uint32_t *sent)
{
    int64_t free_us = later(r->compute_free_us, r->now_us);
    int64_t front =
        free_us + cost_us(r, tokens(r, r->resident_blocks), tokens(r, split));
    int64_t rest = cost_us(r, tokens(r, cached), r->n_tokens);
    int64_t layers = r->layers;
    int64_t end = mode == LOAD_MODE_LAYERWISE ? free_us + rest : front;

    for (size_t i = 0; i < r->n_sources; i++) {
        int64_t s = later(r->sources[i].free_at_us, r->now_us);
        int64_t us = send_us(r, i, sent[i]);

        if (sent[i] == 0)
            continue;
        if (mode == LOAD_MODE_LAYERWISE) {
            end = later(end, s + (us + layers - 1) / layers + rest);
            end = later(end, s + us + (rest + layers - 1) / layers);
        } else {
            end = later(end, s + us);
        }
    }
    return mode == LOAD_MODE_LAYERWISE ? end : end + rest;
}

static int64_t computed_tokens(const struct load_plan_request *r,
                               uint32_t split, uint32_t cached)
{
    return tokens(r, split) - tokens(r, r->resident_blocks) + r->n_tokens -
           tokens(r, cached);
}

struct best {
    enum load_mode mode;
    int64_t finish_us;
    int64_t computed;
};

static void offer(struct best *best, struct best other)
{
    if (other.finish_us < best->finish_us ||
        (other.finish_us == best->finish_us &&
         (other.computed < best->computed ||
          (other.computed == best->computed && other.mode < best->mode))))
        *best = other;
}

/* All assignments of the blocks from `block` on. */
static void assign(const struct load_plan_request *r, enum load_mode mode,
                   uint32_t split, uint32_t cached, uint32_t block,
                   uint32_t *sent, struct best *best)
{
    if (block == cached) {
        offer(best, (struct best){mode, finish_us(r, mode, split, cached, sent),
                                  computed_tokens(r, split, cached)});
        return;
    }
    for (size_t i = 0; i < r->n_sources; i++) {
        const struct load_source *s = &r->sources[i];

        if (block < s->from_block || block >= s->to_block ||
            (mode == LOAD_MODE_LAYERWISE && !s->by_layer))
            continue;
        sent[i]++;
        assign(r, mode, split, cached, block + 1, sent, best);
        sent[i]--;
    }
}

static uint32_t usable_of(const struct load_plan_request *r)
{
    uint64_t most = ((uint64_t)r->n_tokens - 1) / r->block_tokens + 1;

    return most < r->usable_blocks ? (uint32_t)most : r->usable_blocks;
}

static struct best brute_force(const struct load_plan_request *r)
{
    uint32_t step = (r->step_tokens + r->block_tokens - 1) / r->block_tokens;
    uint32_t sent[LOAD_PLAN_SOURCES_MAX] = {0};
    struct best best = {LOAD_MODE_COMPUTE,
                        finish_us(r, LOAD_MODE_COMPUTE, r->resident_blocks,
                                  r->resident_blocks, sent),
                        r->n_tokens - tokens(r, r->resident_blocks)};

    if (step == 0)
        step = 1;
    for (size_t i = 0; i < r->n_sources; i++) {
        uint32_t cached = r->sources[i].to_block;

        if (r->sources[i].from_block >= cached)
            continue;
        if (cached > usable_of(r))
            cached = usable_of(r);
        for (uint32_t m = r->resident_blocks; m < cached; m += step) {
            enum load_mode mode =
                m == r->resident_blocks ? LOAD_MODE_LOAD : LOAD_MODE_BOTH;

            if (r->modes & LOAD_MODE_BIT(mode))
                assign(r, mode, m, cached, m, sent, &best);
        }
        if (r->resident_blocks < cached && r->layers > 0 &&
            (r->modes & LOAD_MODE_BIT(LOAD_MODE_LAYERWISE)))
            assign(r, LOAD_MODE_LAYERWISE, r->resident_blocks, cached,
                   r->resident_blocks, sent, &best);
    }
    return best;
}

/* Whether a plan is one: pieces that cover the load, each of a source that
 * has them; shares that add up; the time that follows from it. */
static bool sound(const struct load_plan_request *r, const struct load_plan *p)
{
    uint32_t sent[LOAD_PLAN_SOURCES_MAX] = {0};
    uint32_t block = p->split_block;
    int64_t load_end = p->n_pieces > 0 ? INT64_MIN : r->now_us;

    if (p->split_block > p->cached_blocks || p->n_pieces > LOAD_PLAN_PIECES_MAX)
        return false;
    for (uint32_t i = 0; i < p->n_pieces; i++) {
        const struct load_piece *piece = &p->pieces[i];
        const struct load_source *s = &r->sources[piece->source];

        if (piece->source >= r->n_sources || piece->from_block != block ||
            piece->to_block <= block || piece->from_block < s->from_block ||
            piece->to_block > s->to_block ||
            (p->mode == LOAD_MODE_LAYERWISE && !s->by_layer))
            return false;
        sent[piece->source] += piece->to_block - block;
        block = piece->to_block;
    }
    if (block != p->cached_blocks ||
        (p->n_pieces == 0) != (p->mode == LOAD_MODE_COMPUTE))
        return false;
    for (size_t i = 0; i < r->n_sources; i++) {
        if (p->of_source[i].n_blocks != sent[i])
            return false;
        if (sent[i] > 0)
            load_end = later(load_end, p->of_source[i].end_us);
    }
    return load_end == p->load_end_us && (p->mode == LOAD_MODE_COMPUTE ||
                                          (r->modes & LOAD_MODE_BIT(p->mode)));
}

static bool times_right(const struct load_plan_request *r,
                        const struct load_plan *p)
{
    uint32_t sent[LOAD_PLAN_SOURCES_MAX] = {0};

    for (size_t i = 0; i < r->n_sources; i++) {
        sent[i] = p->of_source[i].n_blocks;
        if (sent[i] > 0 && p->of_source[i].end_us !=
                               later(r->sources[i].free_at_us, r->now_us) +
                                   send_us(r, i, sent[i]))
            return false;
    }
    return p->finish_us ==
           finish_us(r, p->mode, p->split_block, p->cached_blocks, sent);
}

static struct load_plan make(const struct load_plan_request *r)
{
    struct load_plan plan;

    memset(&plan, 0, sizeof(plan));
    CU_ASSERT_EQUAL_FATAL(load_plan_make(r, &plan), 0);
    return plan;
}

static struct cost_model random_cost(void)
{
    return (struct cost_model){
        .prefill = {(double)pick(0, 30), (double)pick(1, 200) / 10,
                    (double)pick(0, 20) / 1000, (double)pick(0, 40) / 1000},
    };
}

/* A case of up to n_blocks blocks and n_sources sources. */
static struct load_plan_request random_case(struct cost_model *cost,
                                            struct load_source *sources,
                                            uint32_t n_blocks, size_t n_sources)
{
    struct load_plan_request r = {
        .cost = cost,
        .cost_ratio = pick(0, 2) ? 1.0 : (double)pick(30, 300) / 100,
        .block_tokens = (uint32_t)pick(1, 20),
        .block_bytes = pick(1, 1000),
        .layers = (uint32_t)pick(0, 5),
        .resident_blocks = (uint32_t)pick(0, n_blocks / 3),
        .step_tokens = (uint32_t)(pick(0, 1) ? 0 : pick(0, 50)),
        .now_us = pick(0, 1000),
        .sources = sources,
        .n_sources = (size_t)pick(0, (int64_t)n_sources),
        .modes = (unsigned)(pick(0, 2) ? LOAD_MODE_ALL : pick(0, 15)),
    };
    int64_t block_us = 20 * r.block_tokens;

    *cost = random_cost();
    r.n_tokens = pick(1, (int64_t)n_blocks * r.block_tokens);
    r.usable_blocks = pick(0, 1) ? (uint32_t)((r.n_tokens - 1) / r.block_tokens)
                                 : (uint32_t)pick(0, n_blocks);
    if (r.resident_blocks > usable_of(&r))
        r.resident_blocks = usable_of(&r);
    r.compute_free_us = r.now_us + (pick(0, 1) ? 0 : pick(-100, 5 * block_us));
    for (size_t i = 0; i < r.n_sources; i++) {
        uint32_t to = (uint32_t)pick(0, n_blocks);

        sources[i] = (struct load_source){
            .id = (uint32_t)i,
            .from_block = (uint32_t)(pick(0, 1) ? 0 : pick(0, to)),
            .to_block = to,
            .bytes_per_s =
                (double)r.block_bytes * 1e6 / (double)pick(1, block_us) * 1.01,
            .free_at_us = r.now_us + (pick(0, 1) ? 0 : pick(-99, 5 * block_us)),
            .block_extra_us = pick(0, 3) ? 0 : pick(0, block_us / 4),
            .by_layer = pick(0, 3) > 0,
        };
    }
    return r;
}

static void test_brute_force(void)
{
    struct load_source sources[3];
    struct cost_model cost;
    unsigned modes[LOAD_MODES] = {0};
    int bad = 0;

    seed_rng("brute force");
    for (int i = 0; i < 20000 && bad < 3; i++) {
        uint64_t at = rng_state;
        struct load_plan_request r = random_case(&cost, sources, 8, 3);
        struct load_plan plan = make(&r);
        struct best best = brute_force(&r);

        modes[plan.mode]++;
        if (sound(&r, &plan) && times_right(&r, &plan) &&
            plan.finish_us == best.finish_us && plan.mode == best.mode &&
            computed_tokens(&r, plan.split_block, plan.cached_blocks) ==
                best.computed)
            continue;
        printf("\nLOAD_PLAN_SEED=%llu: %s %lld, should be %s %lld\n",
               (unsigned long long)at, load_mode_name(plan.mode),
               (long long)plan.finish_us, load_mode_name(best.mode),
               (long long)best.finish_us);
        bad++;
    }
    CU_ASSERT_EQUAL(bad, 0);
    for (int m = 0; m < LOAD_MODES; m++)
        CU_ASSERT(modes[m] > 100); /* all of them are met */
}

/* At sizes of the real thing. */
static void test_never_worse(void)
{
    struct load_source sources[LOAD_PLAN_SOURCES_MAX];
    struct cost_model cost;

    seed_rng("never worse");
    for (int i = 0; i < 20000; i++) {
        struct load_plan_request r =
            random_case(&cost, sources, 2000, LOAD_PLAN_SOURCES_MAX);
        struct load_plan best;

        r.modes = LOAD_MODE_ALL;
        best = make(&r);
        CU_ASSERT_FATAL(sound(&r, &best) && times_right(&r, &best));
        for (int m = 0; m < LOAD_MODES; m++) {
            r.modes = LOAD_MODE_BIT(m);
            struct load_plan single = make(&r);

            CU_ASSERT_FATAL(sound(&r, &single) && times_right(&r, &single));
            CU_ASSERT_FATAL(best.finish_us <= single.finish_us);
        }
        r.modes = LOAD_MODE_ALL;
        if (r.n_sources > 0) {
            r.n_sources--;
            CU_ASSERT_FATAL(best.finish_us <= make(&r).finish_us);
        }
    }
}

static int64_t any_size(void)
{
    static const int64_t sizes[] = {0,
                                    1,
                                    255,
                                    UINT32_MAX,
                                    COST_MODEL_MAX_US,
                                    LOAD_PLAN_NEVER_US - 1,
                                    LOAD_PLAN_NEVER_US,
                                    INT64_MAX - 1,
                                    INT64_MAX};

    return sizes[pick(0, 8)];
}

static double any_rate(void)
{
    static const double rates[] = {1e-300, 1e-9, 1, 3e9, 1e300};

    return rates[pick(0, 4)];
}

static void test_overflow(void)
{
    struct load_source sources[LOAD_PLAN_SOURCES_MAX];

    seed_rng("overflow");
    for (int i = 0; i < 50000; i++) {
        struct cost_model cost = random_cost();
        struct load_plan_request r = {
            .cost = &cost,
            .cost_ratio = any_rate(),
            .n_tokens = later(any_size(), 1),
            .block_tokens = (uint32_t)later(any_size() & UINT32_MAX, 1),
            .block_bytes = later(any_size(), 1),
            .layers = (uint32_t)any_size(),
            .resident_blocks = (uint32_t)any_size(),
            .usable_blocks = (uint32_t)any_size(),
            .step_tokens = (uint32_t)any_size(),
            .now_us = pick(0, 1) ? any_size() : -any_size(),
            .compute_free_us = pick(0, 1) ? any_size() : -any_size(),
            .sources = sources,
            .n_sources = (size_t)pick(0, LOAD_PLAN_SOURCES_MAX),
            .modes = (unsigned)pick(0, 31),
        };

        for (size_t s = 0; s < r.n_sources; s++) {
            uint32_t to = (uint32_t)any_size();

            sources[s] = (struct load_source){
                .from_block = (uint32_t)pick(0, to),
                .to_block = to,
                .bytes_per_s = any_rate(),
                .free_at_us = pick(0, 1) ? any_size() : -any_size(),
                .block_extra_us = any_size(),
                .by_layer = pick(0, 1),
            };
        }
        struct load_plan plan = make(&r);

        CU_ASSERT_FATAL(plan.mode == LOAD_MODE_COMPUTE || sound(&r, &plan));
        CU_ASSERT_FATAL(plan.finish_us <= LOAD_PLAN_NEVER_US);
        CU_ASSERT_FATAL(plan.load_end_us <= LOAD_PLAN_NEVER_US);
    }
}

/* 100 tokens in blocks of 10, 9 of them cached at 10 us a block. */
static void test_by_hand(void)
{
    struct load_source source[2] = {
        {.to_block = 9, .bytes_per_s = 1e6, .by_layer = true},
        {.from_block = 5, .to_block = 7, .bytes_per_s = 1e6},
    };
    struct load_plan_request r = {
        .cost = &unit_cost,
        .cost_ratio = 1.0,
        .n_tokens = 100,
        .block_tokens = 10,
        .block_bytes = 10,
        .layers = 2,
        .usable_blocks = 9,
        .now_us = 1000,
        .compute_free_us = 1000,
        .sources = source,
        .n_sources = 1,
        .modes = LOAD_MODE_ALL,
    };
    struct load_plan plan = make(&r);

    /* Both: 4 blocks computed, 5 loaded in 50 us, then the last 10 tokens. */
    CU_ASSERT_EQUAL(plan.mode, LOAD_MODE_BOTH);
    CU_ASSERT_EQUAL(plan.split_block, 4);
    CU_ASSERT_EQUAL(plan.cached_blocks, 9);
    CU_ASSERT_EQUAL(plan.load_end_us, 1050);
    CU_ASSERT_EQUAL(plan.finish_us, 1060);
    CU_ASSERT_EQUAL(plan.compute_us, 50);

    r.modes = LOAD_MODE_BIT(LOAD_MODE_LOAD);
    CU_ASSERT_EQUAL(make(&r).finish_us, 1100);
    r.modes = LOAD_MODE_BIT(LOAD_MODE_LAYERWISE);
    CU_ASSERT_EQUAL(make(&r).finish_us, 1095); /* one layer of 5 us at last */
    r.modes = 0;
    CU_ASSERT_EQUAL(make(&r).finish_us, 1100);

    /* A run inside of another's is taken out of its middle: 3 blocks are
     * computed in 30 us, 4 and 2 loaded in 40. */
    r.modes = LOAD_MODE_ALL;
    r.n_sources = 2;
    plan = make(&r);
    CU_ASSERT_EQUAL(plan.finish_us, 1050);
    CU_ASSERT_EQUAL(plan.split_block, 3);
    CU_ASSERT_EQUAL_FATAL(plan.n_pieces, 3);
    CU_ASSERT_EQUAL(plan.pieces[1].source, 1);
    CU_ASSERT_EQUAL(plan.pieces[1].from_block, 5);
    CU_ASSERT_EQUAL(plan.pieces[1].to_block, 7);
    CU_ASSERT_EQUAL(plan.of_source[0].n_blocks, 4);

    /* Splits at whole steps only: 3 blocks of 30 tokens. */
    r.n_sources = 1;
    r.step_tokens = 25;
    plan = make(&r);
    CU_ASSERT_EQUAL(plan.split_block, 3);
    CU_ASSERT_EQUAL(plan.finish_us, 1070);
    /* A busy engine leaves time to load all. */
    r.compute_free_us = 1090;
    plan = make(&r);
    CU_ASSERT_EQUAL(plan.mode, LOAD_MODE_LOAD);
    CU_ASSERT_EQUAL(plan.finish_us, 1100);
}

static void test_refused(void)
{
    struct load_source source = {.to_block = 9, .bytes_per_s = 1e6};
    const struct load_plan_request good = {
        .cost = &unit_cost,
        .cost_ratio = 1.0,
        .n_tokens = 100,
        .block_tokens = 10,
        .block_bytes = 10,
        .usable_blocks = 9,
        .sources = &source,
        .n_sources = 1,
    };
    struct load_plan_request bad[] = {good, good, good, good, good, good};
    struct load_plan plan = {.finish_us = 77};

    bad[0].n_tokens = 0;
    bad[1].block_tokens = 0;
    bad[2].block_bytes = 0;
    bad[3].cost_ratio = NAN;
    bad[4].n_sources = LOAD_PLAN_SOURCES_MAX + 1;
    bad[5].cost_ratio = 0;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CU_ASSERT_EQUAL(load_plan_make(&bad[i], &plan), -EINVAL);
    source.bytes_per_s = 0;
    CU_ASSERT_EQUAL(load_plan_make(&good, &plan), -EINVAL);
    source =
        (struct load_source){.from_block = 2, .to_block = 1, .bytes_per_s = 1};
    CU_ASSERT_EQUAL(load_plan_make(&good, &plan), -EINVAL);
    CU_ASSERT_EQUAL(plan.finish_us, 77);
    CU_ASSERT_STRING_EQUAL(load_mode_name(LOAD_MODE_BOTH), "both");
    CU_ASSERT_STRING_EQUAL(load_mode_name((enum load_mode)9), "?");
}

static const struct suite_test tests[] = {
    {"by hand", test_by_hand},         {"brute force", test_brute_force},
    {"never worse", test_never_worse}, {"overflow", test_overflow},
    {"refused", test_refused},
};
SUITE("load_plan", tests)
