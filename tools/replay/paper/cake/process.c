/* See process.h: a prompt computed, loaded, or both as planned; then one among
 * short ones that are not cached. */
#include "tools/replay/paper/cake/process.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "conductor/core/step/step.h"

#define MICROSECONDS 1e6

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

static double compute_s(const struct cake_engine *engine, int64_t tokens)
{
    return (double)cost_model_prefill_us(&engine->cost, tokens, 0, NULL) /
           MICROSECONDS;
}

/* Returns the time to load whole pieces, the fixed part excluded. */
static double load_s(const struct cake_engine *engine, int64_t tokens)
{
    int64_t pieces = (tokens + engine->piece_tokens - 1) / engine->piece_tokens;

    return (double)pieces * engine->piece_s;
}

/* Plans the whole prompt, in the largest blocks that divide both a step and a
 * piece. *split_tokens: the computed part. */
static int plan_split(const struct cake_engine *engine, int64_t *split_tokens)
{
    int64_t block =
        greatest_common_divisor(engine->step_tokens, engine->piece_tokens);
    int64_t n_blocks = (engine->n_tokens + block - 1) / block;
    const struct load_source source = {
        .to_block = (uint32_t)n_blocks,
        .bytes_per_s = engine->piece_bytes / engine->piece_s,
    };
    const struct load_plan_request request = {
        .cost = &engine->cost,
        .cost_ratio = 1,
        .n_tokens = n_blocks * block, /* the last block is loaded whole */
        .block_tokens = (uint32_t)block,
        .block_bytes = llround(engine->piece_bytes * (double)block /
                               (double)engine->piece_tokens),
        .usable_blocks = (uint32_t)n_blocks,
        .step_tokens = (uint32_t)engine->step_tokens,
        .sources = &source,
        .n_sources = 1,
        .modes = LOAD_MODE_BIT(LOAD_MODE_BOTH),
    };
    struct load_plan plan;
    int rc = load_plan_make(&request, &plan);
    if (rc == 0) {
        *split_tokens = plan.mode == LOAD_MODE_COMPUTE
                            ? engine->n_tokens
                            : plan.split_block * block;
    }
    return rc;
}

int cake_engine_predict(const struct cake_engine *engine,
                        struct cake_prediction *prediction)
{
    struct cake_prediction p = {.best = LOAD_MODE_BOTH};
    int64_t n = engine->n_tokens;
    int64_t split = 0;
    int rc = plan_split(engine, &split);

    if (rc == 0 && compute_s(engine, n) * MICROSECONDS >= COST_MODEL_MAX_US)
        rc = -EINVAL;
    if (rc != 0)
        return rc;
    /* Where the plan would wait for the load, the engine computes on. */
    while (split < n && load_s(engine, n - split) > compute_s(engine, split))
        split += engine->step_tokens;
    p.split_tokens = split < n ? split : n;
    p.cake_s = compute_s(engine, p.split_tokens) + engine->final_step_s;
    p.compute_s = compute_s(engine, n);
    p.load_s = load_s(engine, n) + engine->load_fixed_s;
    if (fmin(p.compute_s, p.load_s) < p.cake_s)
        p.best = p.compute_s < p.load_s ? LOAD_MODE_COMPUTE : LOAD_MODE_LOAD;
    *prediction = p;
    return 0;
}

/* Request 0 is the cached prompt. */
#define CACHED 0

/* State of serving. */
struct server {
    const struct cake_mix *mix;
    const struct queue_order *order;
    struct queue_item *items; /* (n_items), waiting */
    int64_t *left_tokens;     /* (n_short + 1) by arrival_seq, to compute */
    size_t n_items;
    double at_s;
    double short_sum_s; /* sum over finished short prompts */
    double cached_s;
};

static int64_t tokens_of(const struct server *s, uint64_t seq)
{
    return seq == CACHED ? s->mix->engine->n_tokens
                         : s->mix->short_tokens[seq - 1];
}

/* Returns the cached prompt's tokens loaded by now, in whole pieces. */
static int64_t loaded_tokens(const struct server *s)
{
    const struct cake_engine *e = s->mix->engine;
    double tokens =
        floor(s->at_s / e->piece_s + 1e-9) * (double)e->piece_tokens;

    return tokens < (double)e->n_tokens ? (int64_t)tokens : e->n_tokens;
}

/* Computes up to `budget` tokens of the item. Returns how many, and adds their
 * cost to *takes_s. An item with nothing left for this step becomes not ready.
 */
static int64_t compute(struct server *s, struct queue_item *item,
                       int64_t budget, double *takes_s)
{
    uint64_t seq = item->arrival_seq;
    int64_t before = tokens_of(s, seq) - s->left_tokens[seq];
    int64_t wanted =
        s->left_tokens[seq] - (seq == CACHED ? loaded_tokens(s) : 0);
    int64_t tokens = wanted < budget ? wanted : budget;

    *takes_s += (double)cost_model_prefill_us(&s->mix->engine->cost, tokens,
                                              before, NULL) *
                1e-6;
    s->left_tokens[seq] -= tokens;
    if (tokens == wanted)
        item->ready_at_us = QUEUE_NOT_READY;
    return tokens;
}

/* Removes the prompts that the step ended. */
static void sweep(struct server *s)
{
    double ended_s = s->at_s;
    int64_t loaded = loaded_tokens(s);

    for (size_t i = s->n_items; i-- > 0;) {
        uint64_t seq = s->items[i].arrival_seq;

        s->items[i].ready_at_us = 0;
        if (s->left_tokens[seq] > (seq == CACHED ? loaded : 0))
            continue;
        if (seq == CACHED) { /* its own last step */
            s->at_s += s->mix->engine->final_step_s;
            s->cached_s = s->at_s;
        } else {
            s->short_sum_s += ended_s;
        }
        s->items[i] = s->items[--s->n_items];
    }
}

static void serve_step(struct server *s)
{
    struct step step;
    struct step_choice next;
    double takes_s = 0;

    step_begin(
        &step,
        &(struct step_config){.order = s->order,
                              .tokens = (uint32_t)s->mix->engine->step_tokens,
                              .max_prefills = UINT32_MAX,
                              .max_segments = UINT32_MAX},
        0);
    while ((next = step_next(&step, NULL, 0, s->items, (uint32_t)s->n_items, 0))
               .kind == STEP_START)
        step_take(
            &step,
            (uint32_t)compute(s, &s->items[next.index], step.budget, &takes_s),
            0);
    s->at_s += takes_s;
    sweep(s);
}

int cake_mix_run(const struct cake_mix *mix, struct cake_mixed *mixed)
{
    size_t n = mix->n_short + 1;
    struct server s = {
        .mix = mix, .order = queue_order_by_name(mix->order), .n_items = n};
    int rc = -EINVAL;
    double tokens = 0;

    if (!s.order || mix->n_short > CAKE_SHORT_MAX)
        return rc;
    rc = -ENOMEM;
    s.items = calloc(n, sizeof s.items[0]);
    s.left_tokens = calloc(n, sizeof s.left_tokens[0]);
    if (!s.items || !s.left_tokens)
        goto free_items;
    for (size_t i = 0; i < n; i++) {
        s.items[i].arrival_seq = i;
        s.items[i].loading_until_us = i == CACHED ? QUEUE_NOT_READY : 0;
        s.left_tokens[i] = tokens_of(&s, i);
        tokens += (double)s.left_tokens[i];
    }
    while (s.n_items > 0)
        serve_step(&s);
    *mixed = (struct cake_mixed){
        .done_s = s.at_s,
        .cached_s = s.cached_s,
        .short_mean_s =
            mix->n_short > 0 ? s.short_sum_s / (double)mix->n_short : 0,
        .computed_tokens =
            (double)(mix->engine->n_tokens - s.left_tokens[CACHED]),
        .tokens_per_s = tokens / s.at_s,
    };
    rc = 0;
free_items:
    free(s.left_tokens);
    free(s.items);
    return rc;
}
