/* What a candidate of the policy plan scores. See plan_score.h. */
#include "conductor/core/schedule/policies/plan_score.h"

const struct policy_option plan_options[PLAN_OPTIONS] = {
    [PLAN_WAIT_PRICE] = {"wait_price", 0, 1e6, false, 1,
                         "seconds that other requests wait for each second of "
                         "engine time, once a prefill waits or runs"},
    [PLAN_QUEUE_PRICE] = {"queue_price", 0, 1e6, false, 0.25,
                          "seconds to add for each prefill in the mean queue"},
    [PLAN_LOAD_MODES] =
        {"load_modes", 1, LOAD_MODE_ALL, true, LOAD_MODE_ALL,
         "sum of the modes that plans may use: 1 compute, 2 load, 4 both, 8 "
         "layer by layer"},
    [PLAN_SESSION] = {"session_ms", 0, 1e6, false, 10,
                      "milliseconds that an instance may end later if it "
                      "served the request's session last"},
};

double plan_engine_price(const struct scheduler *s, size_t n_instances,
                         size_t n_waiting, size_t n_running)
{
    if (n_waiting + n_running == 0)
        return 0.0;
    return s->options[PLAN_WAIT_PRICE] + s->options[PLAN_QUEUE_PRICE] *
                                             (double)n_waiting /
                                             (double)n_instances;
}

bool plan_before(const struct prefill_estimate *a,
                 const struct prefill_estimate *b)
{
    int64_t end_a = a->late ? a->ttft_us : a->score_us;
    int64_t end_b = b->late ? b->ttft_us : b->score_us;

    if (a->late != b->late)
        return b->late;
    if (end_a != end_b)
        return end_a < end_b;
    if (a->queue_us != b->queue_us)
        return a->queue_us < b->queue_us;
    if (a->last_prefill != b->last_prefill)
        return a->last_prefill < b->last_prefill;
    return a->slot < b->slot;
}

void plan_set_score(const struct scheduler *s,
                    const struct schedule_request *request,
                    struct prefill_estimate *e)
{
    const struct plan_state *state = s->state;
    double others_us = state->engine_price * (double)e->prefill_us;

    e->score_us = others_us < (double)(ESTIMATE_NEVER_US - e->ttft_us)
                      ? e->ttft_us + (int64_t)others_us
                      : ESTIMATE_NEVER_US;
    if (e->instance == request->session)
        e->score_us -= (int64_t)(s->options[PLAN_SESSION] * 1e3);
    e->late = request->slo_ttft_us > 0 && e->ttft_us > request->slo_ttft_us;
}
