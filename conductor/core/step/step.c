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

struct step_choice step_next(const struct step *step,
                             const struct step_prefill *active,
                             uint32_t n_active,
                             const struct queue_item *waiting,
                             uint32_t n_waiting, int64_t now_us)
{
    static const struct step_choice formed = {STEP_FORMED, 0};
    int start = -1;

    if (!step_has_room(step))
        return formed;
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
