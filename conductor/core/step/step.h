/*
 * What an engine computes next: one token of every decode and, with the rest of
 * the budget, chunks of prefills, in the order of core/step/queue. Worker,
 * simulator and the Cake experiments form their steps with it. Pure.
 *
 *   step_begin()                 decodes take their tokens
 *   while step_next() names one: the caller finds out how many tokens of it
 *     step_take()                there are (blocks, loads), at most `budget`
 *
 * Within a step come, as long as there is budget:
 *   1. prefills under way
 *   2. prefills that wait, while fewer than max_prefills are under way
 *   3. and 4. the same again of those whose cached prefix is being loaded, if
 *      the order puts them last: what they wait for comes without the engine
 *      (Cake's adaptive order). Under other orders 1. and 2. take them too.
 * If the order interrupts, 1. is the last one that began, unless it yields to
 * the one of 2. that the order would pick among all, see yield.h; and at most
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
    uint32_t tokens;       /* budget of a step; 0: none */
    uint32_t max_prefills; /* under way at once; those that are loading do not
                              count where the order puts them last */
    uint32_t max_segments; /* decodes and chunks of a step */
    int64_t patience_us;   /* of yield_has_time() */
};

/* A prefill under way. */
struct step_prefill {
    bool held_back; /* nothing of it can be computed now */
    bool loading;   /* its cached prefix is on its way while it computes */
    bool in_step;   /* it has had its turn in this step, perhaps with no tokens
                     */
    /* Only read if the order interrupts those that have begun. */
    struct queue_item item;   /* as it waited */
    struct yield_begun begun; /* its cost is the item's */
};

/* The step that is formed. */
struct step {
    struct step_config config;
    uint32_t budget; /* tokens left */
    uint32_t n_segments;
    int64_t taken_us; /* that its prefills take: the next one begins behind */
};

enum step_kind {
    STEP_FORMED,   /* nothing more fits, or nothing more can be computed */
    STEP_CONTINUE, /* the prefill under way at `index` */
    STEP_START,    /* the waiting prefill at `index` */
};

struct step_choice {
    enum step_kind kind;
    uint32_t index;
};

/* Begin a step. `config` is copied. Returns how many of n_decodes are in it, a
 * token each. */
uint32_t step_begin(struct step *step, const struct step_config *config,
                    uint32_t n_decodes);

/* Whether the step could take a chunk of one more prefill. O(1). */
bool step_has_room(const struct step *step);

/* Whether one more prefill may be started beside `active` (n_active), all those
 * that are under way. O(n_active). */
bool step_may_start(const struct step *step, const struct step_prefill *active,
                    uint32_t n_active);

/* Which prefill is next.
 *   active   (n_active), borrowed: prefills under way, in the order in which
 *            they were started; in_step of those that had their turn is set
 *   waiting  (n_waiting), borrowed, in any sequence. One that cannot start now
 *            is not ready. If the order interrupts, there is room for n_active
 *            more behind them, which are written.
 * The caller computes as many tokens of the chosen prefill as there are, at
 * most step->budget, and says so with step_take(). A started prefill counts as
 * active from then on. Returns the choice. O(n_active + n_waiting). */
struct step_choice step_next(const struct step *step,
                             const struct step_prefill *active,
                             uint32_t n_active, struct queue_item *waiting,
                             uint32_t n_waiting, int64_t now_us);

/* n_tokens of the prefill that was chosen last are in the step; may be 0.
 *   us  they take, by the estimate of its cost. */
void step_take(struct step *step, uint32_t n_tokens, int64_t us);

/* What n tokens of a prefill of so many take, by its cost. */
static inline int64_t step_part_us(int64_t cost_us, uint32_t n, int64_t all)
{
    return all > 0 ? (int64_t)((double)cost_us * n / (double)all) : 0;
}

#endif
