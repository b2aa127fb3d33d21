/* A cached prompt among short ones that are not cached; see process.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "conductor/core/step/step.h"
#include "tools/replay/paper/cake/process.h"

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
