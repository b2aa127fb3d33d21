/* What the files of the step loop share. Nobody else includes this. */
#ifndef WORKERS_STEP_INTERNAL_H
#define WORKERS_STEP_INTERNAL_H

#include "conductor/core/step/queue.h"
#include "workers/step/batch.h"

struct batch {
    struct batch_config config;
    const struct batch_ops *ops;
    void *arg;
    const struct queue_order *order;

    struct request_list waiting;
    struct request_list prefills;
    struct request_list ready;
    struct request_list decodes;
    struct batch_counts n;
    uint64_t next_seq;

    struct queue_item *items;        /* (max_queue) scratch of pick_next */
    struct request **items_of;       /* (max_queue) */
    struct engine_segment *segments; /* (max_segments) */
    struct request **segment_owners; /* (max_segments) */
    uint32_t n_segments;             /* of the step under way */
    uint32_t max_segments;
};

/* Whether blocks of `r` may still come, so that the engine's time is better
 * spent on others. One that has no blocks yet waits for its turn as others. */
static inline bool batch_is_loading(const struct request *r)
{
    return r->load.job && !r->step.gated && r->blocks.n > 0;
}

/* Take `r` out of the list of its state. */
void batch_unlink(struct batch *b, struct request *r);

/* Start the waiting prefill whose turn it is, if there may be one more under
 * way and it can have its blocks. loading: those count too that are loading.
 * Returns it, or NULL. */
struct request *batch_start_next(struct batch *b, bool loading, int64_t now_us);

#endif
