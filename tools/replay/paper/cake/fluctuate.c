/* Two pointers under a varying budget and bandwidth; see process.h. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "conductor/core/step/meeting.h"
#include "tools/replay/paper/cake/process.h"
#include "traces/random.h"

#define MOST_S 86400.0

/* The engine, at the end of a step. */
struct front {
    uint64_t n_steps;
    double at_s;
    int64_t tokens;
};

/* The loader, within a period. */
struct back {
    uint64_t n_periods; /* completed */
    double at_s;
    double pieces;
};

enum draw_kind { DRAW_BUDGET = 1, DRAW_BANDWIDTH };

/* Returns the i-th draw of its kind, uniform in [0, 1), in any order of calls.
 */
static double draw(const struct cake_fluctuation *f, enum draw_kind kind,
                   uint64_t i)
{
    uint64_t bits = random_mix(random_mix(f->seed * 4 + kind) + i);

    return (double)(bits >> 11) * 0x1p-53;
}

static void step(const struct cake_fluctuation *f, struct front *front)
{
    const struct cake_engine *e = f->engine;
    int64_t budget = (int64_t)(draw(f, DRAW_BUDGET, front->n_steps) *
                               ((double)f->budget_max_tokens + 1));

    /* Other requests fill the rest of the step. */
    front->at_s += (double)cost_model_prefill_us(&e->cost, e->step_tokens,
                                                 front->tokens, NULL) *
                   1e-6;
    front->tokens += budget;
    front->n_steps++;
}

/* Loads until `until_s`, or until `pieces` pieces are loaded. */
static void load(const struct cake_fluctuation *f, struct back *back,
                 double until_s, double pieces)
{
    while (back->at_s < until_s && back->pieces < pieces) {
        double gbps = f->gbps_max * draw(f, DRAW_BANDWIDTH, back->n_periods);
        double end_s = (double)(back->n_periods + 1) * f->period_s;
        double piece_s = f->engine->piece_bytes * 8 / (gbps * 1e9) +
                         f->engine->piece_extra_s; /* may be infinite */
        double left_s = (pieces - back->pieces) * piece_s;
        double stop_s = fmin(fmin(end_s, until_s), back->at_s + left_s);

        back->pieces =
            stop_s < end_s && stop_s < until_s
                ? pieces
                : fmin(pieces, back->pieces + (stop_s - back->at_s) / piece_s);
        back->at_s = stop_s;
        back->n_periods += stop_s >= end_s;
    }
}

static double pieces_of(const struct cake_engine *e, int64_t tokens)
{
    return ceil((double)tokens / (double)e->piece_tokens);
}

/* Returns the end of the step in which `tokens` tokens are computed. */
static double computed_s(const struct cake_fluctuation *f, int64_t tokens)
{
    struct front front = {0};

    while (front.tokens < tokens && front.at_s < MOST_S)
        step(f, &front);
    return front.at_s;
}

static double loaded_s(const struct cake_fluctuation *f, int64_t tokens)
{
    struct back back = {0};

    load(f, &back, MOST_S, pieces_of(f->engine, tokens));
    return back.at_s;
}

static void note(struct cake_fluctuated *r, const struct front *front,
                 double loaded, int64_t n)
{
    if (r->n_course < CAKE_COURSE_POINTS) {
        size_t i = r->n_course++;

        r->course_s[i] = front->at_s;
        r->computed_tokens[i] = fmin((double)front->tokens, (double)n);
        r->unloaded_tokens[i] = fmax((double)n - loaded, 0);
    }
}

/* Moves the pointers until they meet; checked at the end of each step. */
static void meet(const struct cake_fluctuation *f, struct cake_fluctuated *r)
{
    int64_t n = f->engine->n_tokens;
    double piece_tokens = (double)f->engine->piece_tokens;
    struct front front = {0};
    struct back back = {0};
    double loaded = 0;

    note(r, &front, 0, n);
    while (!meeting_met(front.tokens, n - (int64_t)loaded) &&
           front.at_s < MOST_S) {
        step(f, &front);
        load(f, &back, front.at_s, pieces_of(f->engine, n));
        loaded = floor(back.pieces + 1e-9) * piece_tokens;
        note(r, &front, loaded, n);
    }
    r->met_tokens = front.tokens < n ? front.tokens : n;
    r->cake_s = front.at_s + f->engine->final_step_s;
}

/* As meet(), but tokens and pieces count continuously. */
static double ideal(const struct cake_fluctuation *f)
{
    double n = (double)f->engine->n_tokens;
    double piece_tokens = (double)f->engine->piece_tokens;
    struct front before = {0};
    struct back back_before = {0};

    for (;;) {
        struct front front = before;
        struct back back = back_before;

        step(f, &front);
        load(f, &back, front.at_s, n / piece_tokens);
        if ((double)front.tokens + back.pieces * piece_tokens < n &&
            front.at_s < MOST_S) {
            before = front;
            back_before = back;
            continue;
        }
        double least_s = before.at_s;
        double most_s = front.at_s;
        for (int i = 0; i < 60; i++) {
            double middle_s = (least_s + most_s) / 2;
            double share =
                (middle_s - before.at_s) / (front.at_s - before.at_s);
            struct back at = back_before;

            load(f, &at, middle_s, n / piece_tokens);
            double tokens = (double)before.tokens +
                            share * (double)(front.tokens - before.tokens) +
                            at.pieces * piece_tokens;
            *(tokens < n ? &least_s : &most_s) = middle_s;
        }
        return most_s;
    }
}

int cake_fluctuate(const struct cake_fluctuation *f, struct cake_fluctuated *r)
{
    int64_t n = f->engine->n_tokens;

    memset(r, 0, sizeof *r);
    r->compute_s = computed_s(f, n);
    r->load_s = loaded_s(f, n) + f->engine->load_fixed_s;
    r->split_s =
        fmax(computed_s(f, f->split_tokens), loaded_s(f, n - f->split_tokens)) +
        f->engine->final_step_s;
    meet(f, r);
    r->ideal_s = ideal(f);
    return fmax(r->compute_s, r->load_s) < MOST_S ? 0 : -ERANGE;
}
