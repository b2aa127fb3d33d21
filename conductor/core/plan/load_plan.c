/*
 * The best load plan. See load_plan.h.
 *
 * For a given end of the load, a later split means less loading: a bisection
 * finds the first split behind which all blocks can be loaded while the engine
 * computes up to it. The best split is that one, or the one before it, with a
 * load that takes longer than the computing.
 */
#include "conductor/core/plan/load_plan.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "conductor/core/plan/load_share.h"

struct solver {
    const struct load_plan_request *request;
    uint32_t resident;
    uint32_t usable;
    uint32_t step_blocks;
    int64_t now_us;
    int64_t free_us;
    struct load_senders senders;
};

static const char *const mode_names[LOAD_MODES] = {
    [LOAD_MODE_COMPUTE] = "compute",
    [LOAD_MODE_LOAD] = "load",
    [LOAD_MODE_BOTH] = "both",
    [LOAD_MODE_LAYERWISE] = "layerwise",
};

const char *load_mode_name(enum load_mode mode)
{
    return (unsigned)mode < LOAD_MODES ? mode_names[mode] : "?";
}

static int64_t at_most_never(int64_t us)
{
    return us < LOAD_PLAN_NEVER_US ? us : LOAD_PLAN_NEVER_US;
}

/* Bounds a time of the caller, so that sums of a few cannot overflow. */
static int64_t bounded_us(int64_t us)
{
    return us > -LOAD_PLAN_NEVER_US ? at_most_never(us) : -LOAD_PLAN_NEVER_US;
}

static uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t tokens_of(const struct solver *s, uint32_t blocks)
{
    uint64_t tokens = (uint64_t)blocks * s->request->block_tokens;
    uint64_t n = (uint64_t)s->request->n_tokens;

    return (int64_t)(tokens < n ? tokens : n);
}

/* C(from, to): the time to compute tokens [from, to) behind those in front. */
static int64_t compute_us(const struct solver *s, int64_t from, int64_t to)
{
    int64_t us;

    if (from >= to)
        return 0;
    us = cost_model_prefill_us(s->request->cost, to - from, from, NULL);
    if (s->request->cost_ratio == 1.0) /* saves the rounding */
        return us;
    double corrected_us = (double)us * s->request->cost_ratio;

    return corrected_us < (double)LOAD_PLAN_NEVER_US ? llround(corrected_us)
                                                     : LOAD_PLAN_NEVER_US;
}

/* Returns when the engine has computed everything in front of a block. */
static int64_t front_us(const struct solver *s, uint32_t split)
{
    return at_most_never(s->free_us + compute_us(s, tokens_of(s, s->resident),
                                                 tokens_of(s, split)));
}

static int64_t rest_us(const struct solver *s, uint32_t cached)
{
    return compute_us(s, tokens_of(s, cached), s->request->n_tokens);
}

static uint32_t split_at(const struct solver *s, uint32_t k)
{
    return s->resident + k * s->step_blocks;
}

/* Returns the first k of low .. high - 1 for which the blocks behind split k
 * can be loaded by until_us (NEVER: by when split k is computed); high if none.
 */
static uint32_t first_split(const struct solver *s, uint32_t cached,
                            uint32_t low, uint32_t high, int64_t until_us)
{
    while (low < high) {
        uint32_t k = low + (high - low) / 2;
        struct load load = {.from_block = split_at(s, k), .to_block = cached};
        int64_t by_us = until_us < LOAD_PLAN_NEVER_US
                            ? until_us
                            : front_us(s, load.from_block);

        if (load_can_end(&s->senders, &load, by_us, NULL))
            high = k;
        else
            low = k + 1;
    }
    return low;
}

/* Writes the pieces and shares of the sources. */
static void share_out(const struct solver *s, const struct load *load,
                      int64_t until_us, struct load_plan *plan)
{
    struct load_sharing sharing;

    load_can_end(&s->senders, load, until_us, &sharing);
    plan->n_pieces = sharing.n_pieces;
    memcpy(plan->pieces, sharing.pieces,
           sharing.n_pieces * sizeof(sharing.pieces[0]));
    for (uint32_t p = 0; p < plan->n_pieces; p++)
        plan->of_source[plan->pieces[p].source].n_blocks +=
            plan->pieces[p].to_block - plan->pieces[p].from_block;
    for (size_t i = 0; i < s->senders.n; i++) {
        const struct load_sender *sender = &s->senders.at[i];
        struct load_share *share = &plan->of_source[i];

        if (share->n_blocks == 0)
            continue;
        share->start_us = sender->start_us;
        share->end_us =
            sender->start_us + load_sending_us(sender, share->n_blocks);
        plan->load_end_us = later(plan->load_end_us, share->end_us);
    }
}

/* A candidate plan; pieces are worked out for the best one only. */
struct choice {
    enum load_mode mode;
    uint32_t split;
    uint32_t cached;
    int64_t in_time_us; /* its load is in time at this time */
    int64_t finish_us;
    int64_t computed_tokens;
};

static void take_better(const struct solver *s, struct choice *best,
                        struct choice choice)
{
    choice.computed_tokens =
        s->request->n_tokens - tokens_of(s, choice.cached) +
        tokens_of(s, choice.split) - tokens_of(s, s->resident);
    if (choice.finish_us > best->finish_us)
        return;
    if (choice.finish_us == best->finish_us &&
        (choice.computed_tokens > best->computed_tokens ||
         (choice.computed_tokens == best->computed_tokens &&
          choice.mode >= best->mode)))
        return;
    *best = choice;
}

/* Tries the modes load and both, with this end of the load. */
static void try_splits(const struct solver *s, uint32_t cached,
                       struct choice *best)
{
    bool load_mode = s->request->modes & LOAD_MODE_BIT(LOAD_MODE_LOAD);
    bool both_mode = s->request->modes & LOAD_MODE_BIT(LOAD_MODE_BOTH);
    uint32_t low = load_mode ? 0 : 1;
    uint32_t n_splits = (cached - s->resident - 1) / s->step_blocks + 1;
    uint32_t high = both_mode ? n_splits : lesser(1, n_splits);
    int64_t in_time_us = LOAD_PLAN_NEVER_US;

    if (low >= high)
        return;
    uint32_t k = first_split(s, cached, low, high, LOAD_PLAN_NEVER_US);

    if (k < high) {
        in_time_us = front_us(s, split_at(s, k));
        high = k + 1;
    }
    if (k > low) {
        struct load load = {.from_block = split_at(s, k - 1),
                            .to_block = cached};
        int64_t us = load_first_end_us(
            &s->senders, &load, front_us(s, load.from_block), in_time_us - 1);

        if (us < in_time_us) {
            in_time_us = us;
            high = k;
        }
    }
    if (in_time_us >= LOAD_PLAN_NEVER_US)
        return;
    k = first_split(s, cached, low, high, in_time_us);
    take_better(s, best,
                (struct choice){
                    .mode = k == 0 ? LOAD_MODE_LOAD : LOAD_MODE_BOTH,
                    .split = split_at(s, k),
                    .cached = cached,
                    .in_time_us = in_time_us,
                    .finish_us = at_most_never(in_time_us + rest_us(s, cached)),
                });
}

static struct load load_by_layer(const struct solver *s, uint32_t cached)
{
    uint32_t layers = s->request->layers;
    int64_t us = rest_us(s, cached);

    return (struct load){
        .from_block = s->resident,
        .to_block = cached,
        .by_layer = true,
        .layers = layers,
        .rest_us = us,
        .rest_layer_us = us / layers + (us % layers != 0),
    };
}

static void try_layerwise(const struct solver *s, uint32_t cached,
                          struct choice *best)
{
    struct load load = load_by_layer(s, cached);
    int64_t low_us = s->free_us + load.rest_us;
    int64_t us = LOAD_PLAN_NEVER_US;

    if (low_us < LOAD_PLAN_NEVER_US)
        us = load_first_end_us(&s->senders, &load, low_us,
                               LOAD_PLAN_NEVER_US - 1);
    if (us < LOAD_PLAN_NEVER_US)
        take_better(s, best,
                    (struct choice){
                        .mode = LOAD_MODE_LAYERWISE,
                        .split = s->resident,
                        .cached = cached,
                        .in_time_us = us,
                        .finish_us = us,
                    });
}

static bool source_ok(const struct load_source *source)
{
    return source->bytes_per_s > 0.0 && isfinite(source->bytes_per_s) &&
           source->block_extra_us >= 0 &&
           source->from_block <= source->to_block;
}

static bool request_ok(const struct load_plan_request *r)
{
    if (!(r->cost_ratio > 0.0 && isfinite(r->cost_ratio)) || r->n_tokens < 1 ||
        r->block_tokens < 1 || r->block_bytes < 1 ||
        r->n_sources > LOAD_PLAN_SOURCES_MAX)
        return false;
    for (size_t i = 0; i < r->n_sources; i++)
        if (!source_ok(&r->sources[i]))
            return false;
    return true;
}

static struct load_sender sender_of(const struct solver *s,
                                    const struct load_source *source)
{
    uint32_t from = source->from_block;
    uint32_t to = lesser(source->to_block, s->usable);

    if (from < s->resident)
        from = s->resident;
    return (struct load_sender){
        .from_block = from < to ? from : 0,
        .to_block = from < to ? to : 0,
        .start_us = later(bounded_us(source->free_at_us), s->now_us),
        .block_us =
            (double)s->request->block_bytes * 1e6 / source->bytes_per_s +
            (double)source->block_extra_us,
        .by_layer = source->by_layer,
    };
}

static void prepare(struct solver *s, const struct load_plan_request *r)
{
    uint64_t most = ((uint64_t)r->n_tokens - 1) / r->block_tokens + 1;
    uint64_t step =
        ((uint64_t)r->step_tokens + r->block_tokens - 1) / r->block_tokens;

    s->request = r;
    s->usable = most < r->usable_blocks ? (uint32_t)most : r->usable_blocks;
    s->resident = lesser(r->resident_blocks, s->usable);
    s->step_blocks = step > 0 ? (uint32_t)step : 1;
    s->now_us = bounded_us(r->now_us);
    s->free_us = later(bounded_us(r->compute_free_us), s->now_us);
    s->senders.n = r->n_sources;
    for (size_t i = 0; i < r->n_sources; i++)
        s->senders.at[i] = sender_of(s, &r->sources[i]);
}

/* Returns whether an earlier sender ends at the same block. */
static bool seen_end(const struct solver *s, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (s->senders.at[j].to_block == s->senders.at[i].to_block)
            return true;
    return false;
}

static struct choice choose(const struct solver *s)
{
    struct choice best = {.finish_us = INT64_MAX};

    take_better(
        s, &best,
        (struct choice){
            .mode = LOAD_MODE_COMPUTE,
            .split = s->resident,
            .cached = s->resident,
            .finish_us = at_most_never(s->free_us + rest_us(s, s->resident)),
        });
    for (size_t i = 0; i < s->senders.n; i++) {
        uint32_t cached = s->senders.at[i].to_block;

        if (cached == 0 || seen_end(s, i))
            continue;
        try_splits(s, cached, &best);
        if (s->request->layers > 0 &&
            (s->request->modes & LOAD_MODE_BIT(LOAD_MODE_LAYERWISE)))
            try_layerwise(s, cached, &best);
    }
    return best;
}

int load_plan_make(const struct load_plan_request *request,
                   struct load_plan *plan)
{
    struct solver s;
    struct choice best;
    struct load load;

    if (!request_ok(request))
        return -EINVAL;
    prepare(&s, request);
    best = choose(&s);
    memset(plan, 0, sizeof(*plan)); /* padding too: plans are compared */
    plan->mode = best.mode;
    plan->split_block = best.split;
    plan->cached_blocks = best.cached;
    plan->finish_us = best.finish_us;
    plan->load_end_us = s.now_us;
    plan->compute_us = at_most_never(
        compute_us(&s, tokens_of(&s, s.resident), tokens_of(&s, best.split)) +
        rest_us(&s, best.cached));
    load =
        best.mode == LOAD_MODE_LAYERWISE
            ? load_by_layer(&s, best.cached)
            : (struct load){.from_block = best.split, .to_block = best.cached};
    share_out(&s, &load, best.in_time_us, plan);
    return 0;
}
