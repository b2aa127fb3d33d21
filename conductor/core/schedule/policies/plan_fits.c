#include "conductor/core/schedule/internal.h"
#include "conductor/core/schedule/policies/plan_score.h"

#define FITS_LOOKS_MAX 16

/* A candidate's TTFT if the same request came `in_us` later, and no other
 * request in between. */
static int64_t ttft_later_us(const struct scheduler *s,
                             const struct schedule_request *request,
                             const struct schedule_site *site,
                             const struct prefill_estimate *candidate,
                             int64_t in_us)
{
    struct prefill_estimate e = *candidate;
    struct schedule_request later = *request;
    struct load_plan plan;

    later.now_us += in_us;
    e.queue_us = e.queue_us > in_us ? e.queue_us - in_us : 0;
    plan_work_out(
        s, &later,
        estimate_usable_blocks(&s->model, UINT32_MAX, request->n_tokens), site,
        plan_load_modes(s), &plan, &e);
    return e.ttft_us;
}

int64_t plan_fits_in_us(const struct scheduler *s,
                        const struct schedule_request *request,
                        const struct prefill_estimate *candidate)
{
    const struct plan_state *state = s->state;
    int64_t in_us = candidate->most_us - request->slo_ttft_us;
    int64_t idle_us = candidate->queue_most_us;
    struct prefill_estimate last = *candidate, idle;
    struct schedule_site site;

    schedule_find_site(
        s, request, pool_get(s->pool, candidate->instance),
        estimate_usable_blocks(&s->model, UINT32_MAX, request->n_tokens),
        &state->peers, &site);
    for (size_t i = 0; i < site.n; i++)
        if (site.loads[i].free_at_us - request->now_us > idle_us)
            idle_us = site.loads[i].free_at_us - request->now_us;
    last.queue_us = last.queue_most_us;
    idle = last;
    idle.beside = (struct beside){0}; /* its decodes have ended, too */
    if (idle_us >= ESTIMATE_NEVER_US ||
        ttft_later_us(s, request, &site, &idle, idle_us) > request->slo_ttft_us)
        return -1;
    if (in_us < 0)
        in_us = 0;
    /* A later request ends no sooner, so the times still missing add up. */
    for (int looks = 1; looks < FITS_LOOKS_MAX && in_us < idle_us; looks++) {
        int64_t late_us = ttft_later_us(s, request, &site, &last, in_us) -
                          request->slo_ttft_us;

        if (late_us <= 0)
            break;
        in_us += late_us;
    }
    return in_us < idle_us ? in_us : idle_us;
}
