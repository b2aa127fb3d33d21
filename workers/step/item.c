/* The queue order's view of a request. Pure. */
#include "predictor/cost_model.h"
#include "workers/step/internal.h"

struct queue_item batch_item(const struct request *r)
{
    const struct request_turn *t = &r->turn;
    int64_t cost_us = t->cost_us > 0 ? t->cost_us : r->prompt.n_tokens;

    /* A conductor may send any value, but orders add and multiply it. */
    if (cost_us > COST_MODEL_MAX_US)
        cost_us = COST_MODEL_MAX_US;
    return (struct queue_item){
        .arrival_seq = t->seq,
        .ready_at_us = r->load.held_back ? QUEUE_NOT_READY : 0,
        .expected_us = t->expected_us,
        .cost_us = cost_us,
        .arrived_us = t->arrival_us,
        .deadline_us = t->deadline_us,
        .has_slo = t->has_slo,
        .slo_us = t->deadline_us - t->arrival_us,
        .loading_until_us = batch_is_loading(r) ? QUEUE_NOT_READY : 0,
    };
}
