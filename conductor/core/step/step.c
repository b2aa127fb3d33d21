/* Forming a step. */
#include "conductor/core/step/step.h"

uint32_t step_begin(struct step *step, const struct step_config *config,
                    uint32_t n_decodes)
{
    uint32_t budget = config->tokens > 0 ? config->tokens : UINT32_MAX;
    uint32_t n = n_decodes < budget ? n_decodes : budget;

    if (n > config->max_segments)
        n = config->max_segments;
    *step = (struct step){*config, budget - n, n, 0};
    return n;
}

/* Returns whether a prefill comes after all prefills that are not loading. */
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

/* Returns the first active prefill without a turn so far; n_active = none. */
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

/* Returns the largest cost (us) of a prefill that may begin on top of the
 * active ones; below 1 = none may. */
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

/* Returns when the first waiting prefill with an SLO must begin, counting only
 * prefills that can be in time behind the begun ones; INT64_MAX = none. */
static int64_t begin_by_us(const struct queue_item *waiting, uint32_t n,
                           int64_t begun_end_us)
{
    int64_t by_us = INT64_MAX;

    for (uint32_t i = 0; i < n; i++) {
        int64_t begin_us = waiting[i].deadline_us - waiting[i].cost_us;

        if (waiting[i].has_slo && begin_us >= begun_end_us && begin_us < by_us)
            by_us = begin_us;
    }
    return by_us;
}

/* Adds the begun prefills to the n waiting items. Interrupting one delays all
 * that come after it, so each gets a due time early enough for waiting items
 * with an SLO and for the prefills below it. Returns the number of items. */
static uint32_t add_begun(const struct step_prefill *active, uint32_t n_active,
                          struct queue_item *items, uint32_t n, int64_t now_us)
{
    int64_t end_us = now_us, by_us;

    for (uint32_t i = 0; i < n_active; i++)
        end_us += active[i].begun.left_us;
    by_us = begin_by_us(items, n, end_us);
    for (uint32_t i = 0; i < n_active; i++) {
        struct queue_item *item = &items[n];
        int64_t own_end_us = end_us;

        end_us -= active[i].begun.left_us;
        if (active[i].in_step || active[i].held_back)
            continue;
        *item = active[i].item;
        item->cost_us = active[i].begun.left_us;
        item->ready_at_us = item->loading_until_us = 0;
        if (by_us < INT64_MAX && (!item->has_slo || by_us < item->deadline_us))
            item->deadline_us = by_us;
        item->has_slo |= by_us < INT64_MAX;
        if (item->has_slo && item->deadline_us >= own_end_us)
            by_us = item->deadline_us - item->cost_us;
        n++;
    }
    return n;
}

/* Returns the waiting item that interrupts the last active prefill, or -1. */
static int interrupter(const struct step *step,
                       const struct step_prefill *active, uint32_t n_active,
                       struct queue_item *waiting, uint32_t n, int64_t now_us)
{
    int64_t most_us = most_on_top_us(step, active, n_active, waiting, n);
    uint32_t n_all;
    int next;

    if (!any_within(waiting, n, most_us, now_us))
        return -1;
    n_all = add_begun(active, n_active, waiting, n, now_us);
    next = queue_pick(step->config.order, waiting, n_all, now_us);
    return next >= 0 && (uint32_t)next < n && waiting[next].cost_us <= most_us
               ? next
               : -1;
}

/* Returns when the next prefill of a step begins, for comparison with
 * deadlines; now_us if no waiting item has an SLO. */
static int64_t begins_us(const struct step *step,
                         const struct queue_item *waiting, uint32_t n,
                         int64_t now_us)
{
    for (uint32_t i = 0; i < n; i++)
        if (waiting[i].has_slo)
            return now_us + step->taken_us;
    return now_us;
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
                ? interrupter(step, active, top + 1, waiting, n_waiting, now_us)
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
        start = queue_pick(step->config.order, waiting, n_waiting,
                           begins_us(step, waiting, n_waiting, now_us));
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

void step_take(struct step *step, uint32_t n_tokens, int64_t us)
{
    step->budget -= n_tokens;
    step->taken_us += us;
    step->n_segments += n_tokens > 0;
}
