/*
 * Forming a step of an engine: one token of every decode and, with the rest of
 * the budget, chunks of prefills, in the order of core/step/queue. Worker,
 * simulator and the Cake experiments form their steps with it. Pure.
 *
 *   step_begin()                 decodes take their tokens
 *   while step_next() names one: the caller finds out how many tokens of it
 *     step_take()                there are (blocks, loads), at most `budget`
 *
 * As long as there is budget, a step takes, in this sequence:
 *   1. prefills under way
 *   2. waiting prefills, while fewer than max_prefills are under way
 *   3. and 4. the same for prefills that load their cached prefix, if the order
 *      puts them last: loads go on without the engine (Cake's adaptive order).
 *      Under other orders they are part of 1. and 2.
 * If the order interrupts, 1. is the prefill that began last, unless it yields
 * to the waiting one that the order picks among all (yield.h); and at most
 * max_prefills are in a step.
 */
#ifndef CONDUCTOR_CORE_STEP_STEP_H
#define CONDUCTOR_CORE_STEP_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/step/queue.h"
#include "conductor/core/step/yield.h"

struct step_config {
    const struct queue_order *order;
    uint32_t tokens;       /* budget of a step; 0 = unlimited */
    uint32_t max_prefills; /* most prefills under way; loading ones do not count
                              if the order puts them last */
    uint32_t max_segments; /* decodes and chunks of a step */
    int64_t patience_us;   /* of yield_has_time() */
};

/* A prefill under way. */
struct step_prefill {
    bool held_back; /* no token of it can be computed now */
    bool loading;   /* its cached prefix is loaded while it computes */
    bool in_step;   /* it had its turn in this step, perhaps without tokens */
    /* Only read if the order interrupts. */
    struct queue_item item;   /* as it waited */
    struct yield_begun begun; /* with the item's cost */
};

/* The step being formed. */
struct step {
    struct step_config config;
    uint32_t budget; /* tokens left */
    uint32_t n_segments;
    int64_t taken_us; /* time of its prefills, before the next one */
};

enum step_kind {
    STEP_FORMED,   /* nothing more fits or can be computed */
    STEP_CONTINUE, /* the prefill under way at `index` */
    STEP_START,    /* the waiting prefill at `index` */
};

struct step_choice {
    enum step_kind kind;
    uint32_t index;
};

/* Begins a step. `config` is copied. Returns how many of n_decodes get a token
 * in it. */
uint32_t step_begin(struct step *step, const struct step_config *config,
                    uint32_t n_decodes);

/* Returns whether the step has room for a chunk of one more prefill. O(1). */
bool step_has_room(const struct step *step);

/* Returns whether one more prefill may be started beside `active` (n_active),
 * all prefills under way. O(n_active). */
bool step_may_start(const struct step *step, const struct step_prefill *active,
                    uint32_t n_active);

/* Returns which prefill is next.
 *   active   (n_active), borrowed: prefills under way, in the order in which
 *            they were started; in_step is set if they had their turn
 *   waiting  (n_waiting), borrowed, in any sequence. One that cannot start now
 *            is QUEUE_NOT_READY. If the order interrupts, the array has room
 *            for n_active more, which are written.
 * The caller computes as many tokens of the chosen prefill as there are, at
 * most step->budget, and enters them by step_take(). A started prefill counts
 * as active from then on. O(n_active + n_waiting). */
struct step_choice step_next(const struct step *step,
                             const struct step_prefill *active,
                             uint32_t n_active, struct queue_item *waiting,
                             uint32_t n_waiting, int64_t now_us);

/* Enters n_tokens of the prefill that was chosen last into the step; may be 0.
 *   us  the estimated time of these tokens, step_part_us(). */
void step_take(struct step *step, uint32_t n_tokens, int64_t us);

/* Returns the time (us) of n of a prefill's `all` tokens, out of cost_us. */
static inline int64_t step_part_us(int64_t cost_us, uint32_t n, int64_t all)
{
    return all > 0 ? (int64_t)((double)cost_us * n / (double)all) : 0;
}

#endif
