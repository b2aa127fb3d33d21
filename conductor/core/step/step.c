/* Forming a step. */
#include "conductor/core/step/step.h"

uint32_t step_begin(struct step *step, const struct step_config *config,
                    uint32_t n_decodes)
{
    uint32_t budget = config->tokens > 0 ? config->tokens : UINT32_MAX;
    uint32_t n = n_decodes < budget ? n_decodes : budget;

    if (n > config->max_segments)
        n = config->max_segments;
    *step = (struct step){*config, budget - n, n};
    return n;
}

/* Whether a prefill comes after all that are not loading. */
static bool comes_last(const struct step *step, bool loading)
{
    return loading && step->config.order->loading_last;
}

bool step_has_room(const struct step *step)
{
    return step->budget > 0 && step->n_segments < step->config.max_segments;
}

bool step_may_start(const struct step *step, const struct step_prefill *active,
                    uint32_t n_active)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_active; i++)
        n += !active[i].held_back && !comes_last(step, active[i].loading);
    return n < step->config.max_prefills;
}

/* The first of the active whose turn has not been; n_active: none. */
static uint32_t next_active(const struct step *step,
                            const struct step_prefill *active,
                            uint32_t n_active, bool last)
{
    uint32_t i = 0;

    while (i < n_active && (active[i].in_step || active[i].held_back ||
                            comes_last(step, active[i].loading) != last))
        i++;
    return i;
}

/* The most that one may cost to begin on top of the active ones; below 1: none
 * may. */
static int64_t most_on_top_us(const struct step *step,
                              const struct step_prefill *active, uint32_t n,
                              const struct queue_item *waiting,
                              uint32_t n_waiting)
{
    int64_t spare_us = INT64_MAX, to_do_us = 0;

    for (uint32_t i = 0; i < n_waiting; i++)
        to_do_us += waiting[i].cost_us;
    for (uint32_t i = 0; i < n; i++) {
        spare_us = yield_spare_us(spare_us, &active[i].begun);
        to_do_us += active[i].begun.left_us;
    }
    if (!yield_has_time(to_do_us, step->config.patience_us))
        return 0;
    return yield_most_us(spare_us, active[n - 1].begun.left_us);
}

static bool any_within(const struct queue_item *items, uint32_t n,
                       int64_t most_us, int64_t now_us)
{
    uint32_t i = 0;

    while (i < n &&
           (items[i].cost_us > most_us || items[i].ready_at_us > now_us))
        i++;
    return i < n;
}

/* Which of the waiting ones interrupts the active one at `top`; -1: none. */
static int interrupter(const struct step *step,
                       const struct step_prefill *active, uint32_t top,
                       struct queue_item *waiting, uint32_t n_waiting,
                       int64_t now_us)
{
    int64_t most_us = most_on_top_us(step, active, top + 1, waiting, n_waiting);
    uint32_t n = n_waiting;
    int next;

    if (!any_within(waiting, n_waiting, most_us, now_us))
        return -1;
    for (uint32_t i = 0; i <= top; i++) {
        if (active[i].in_step || active[i].held_back)
            continue;
        waiting[n] = active[i].item;
        waiting[n].cost_us = active[i].begun.left_us;
        waiting[n].ready_at_us = waiting[n].loading_until_us = 0;
        n++;
    }
    next = queue_pick(step->config.order, waiting, n, now_us);
    return next >= 0 && (uint32_t)next < n_waiting &&
                   waiting[next].cost_us <= most_us
               ? next
               : -1;
}

/* step_next() for an order that interrupts. */
static struct step_choice next_on_top(const struct step *step,
                                      const struct step_prefill *active,
                                      uint32_t n_active,
                                      struct queue_item *waiting,
                                      uint32_t n_waiting, int64_t now_us)
{
    uint32_t n_in = 0, top = n_active;
    int start;

    for (uint32_t i = 0; i < n_active; i++) {
        n_in += active[i].in_step && !active[i].held_back;
        if (!active[i].in_step && !active[i].held_back)
            top = i;
    }
    if (n_in >= step->config.max_prefills)
        return (struct step_choice){STEP_FORMED, 0};
    start = top < n_active
                ? interrupter(step, active, top, waiting, n_waiting, now_us)
                : queue_pick(step->config.order, waiting, n_waiting, now_us);
    if (start >= 0)
        return (struct step_choice){STEP_START, (uint32_t)start};
    if (top < n_active)
        return (struct step_choice){STEP_CONTINUE, top};
    return (struct step_choice){STEP_FORMED, 0};
}

struct step_choice step_next(const struct step *step,
                             const struct step_prefill *active,
                             uint32_t n_active, struct queue_item *waiting,
                             uint32_t n_waiting, int64_t now_us)
{
    static const struct step_choice formed = {STEP_FORMED, 0};
    int start = -1;

    if (!step_has_room(step))
        return formed;
    if (step->config.order->preempts)
        return next_on_top(step, active, n_active, waiting, n_waiting, now_us);
    uint32_t i = next_active(step, active, n_active, false);
    if (i < n_active)
        return (struct step_choice){STEP_CONTINUE, i};
    if (n_waiting > 0 && step_may_start(step, active, n_active))
        start = queue_pick(step->config.order, waiting, n_waiting, now_us);
    if (start >= 0 &&
        !comes_last(step, waiting[start].loading_until_us > now_us))
        return (struct step_choice){STEP_START, (uint32_t)start};
    i = next_active(step, active, n_active, true);
    if (i < n_active)
        return (struct step_choice){STEP_CONTINUE, i};
    if (start >= 0)
        return (struct step_choice){STEP_START, (uint32_t)start};
    return formed;
}

void step_take(struct step *step, uint32_t n_tokens)
{
    step->budget -= n_tokens;
    step->n_segments += n_tokens > 0;
}
