/* Shared by the files of the spread; private to them. */
#ifndef WORKERS_TRANSFER_ENGINE_RDMA_SPREAD_INTERNAL_H
#define WORKERS_TRANSFER_ENGINE_RDMA_SPREAD_INTERNAL_H

#include <sys/queue.h>

#include "workers/transfer/engine/rdma/spread.h"

/* An op: in `ready` while slices can be cut off it, then or while held in
 * `others`, and in `ended` after its end. */
struct spread_op {
    TAILQ_ENTRY(spread_op) link;
    uint64_t id;
    uint64_t grant;
    bool held;      /* its GRANT has not come */
    bool over;      /* in `ended` */
    int rc;         /* not 0 = it sends nothing more */
    uint32_t slots; /* slices under way, or to be sent again */
    uint32_t n;
    uint32_t next; /* first transport_slice not cut completely */
    uint64_t at;   /* bytes of this one cut so far */
    struct transport_slice slices[]; /* (n) */
};

struct rail {
    enum spread_rail_state state;
    uint32_t rail_class;
    uint32_t n_slices; /* under way */
    uint64_t n_bytes;  /* under way */
    int64_t retry_us;  /* if AWAY: when it may be tried */
    int64_t wait_us;   /* its last pause; 0 = none yet */
    double bytes_per_s;
    bool measured;        /* bytes_per_s was */
    int64_t since_us;     /* begin of the measurement; negative = none */
    uint64_t since_bytes; /* bytes moved since then */
};

TAILQ_HEAD(op_list, spread_op);

struct spread {
    struct spread_config config;
    uint32_t n_rails;
    struct rail rails[SPREAD_RAILS_MAX];
    uint32_t n_slots;
    struct spread_slice *slots; /* (n_slots) */
    struct spread_slice *free;
    struct spread_slice *again, **again_tail;
    uint32_t n_again;
    struct op_list ready, others, ended;
    uint32_t n_ops; /* not ended */
    int64_t progress_us;
};

/* Returns whether no more slices are to be cut off the op. */
static inline bool spread_is_cut(const struct spread_op *op)
{
    return op->rc != 0 || op->next == op->n;
}

/* Returns whether a slice waits to be sent. */
bool spread_has_unsent(const struct spread *s);

/* Returns the rail for the next slice, or SPREAD_NONE: it must wait. */
uint32_t spread_pick(const struct spread *s);

/* Counts the slice as under way on slice->rail. */
void spread_rail_begin(struct spread *s, struct spread_slice *slice,
                       int64_t now_us);

/* Counts it as moved, or if now_us is INT64_MIN as lost. */
void spread_rail_end(struct spread *s, struct spread_slice *slice,
                     int64_t now_us);

/* Stops measuring rates: rails run out of slices. */
void spread_unmeasured(struct spread *s);

#endif
