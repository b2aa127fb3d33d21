/* What the files of the spread share. Nobody else includes this. */
#ifndef WORKERS_TRANSFER_ENGINE_RDMA_SPREAD_INTERNAL_H
#define WORKERS_TRANSFER_ENGINE_RDMA_SPREAD_INTERNAL_H

#include <sys/queue.h>

#include "workers/transfer/engine/rdma/spread.h"

/* An op is in `ready` while it has something to cut and may, else in `others`
 * until it ends. */
struct spread_op {
    TAILQ_ENTRY(spread_op) link;
    uint64_t id;
    uint64_t grant;
    bool held;
    bool over;
    int rc;         /* not 0: nothing more of it is sent */
    uint32_t slots; /* of its slices: under way, or to be sent again */
    uint32_t n;
    uint32_t next; /* the first of slices that is not all cut */
    uint64_t at;   /* bytes of that one that are cut */
    struct transport_slice slices[]; /* (n) */
};

struct rail {
    enum spread_rail_state state;
    uint32_t rail_class;
    uint32_t n_slices; /* under way */
    uint64_t n_bytes;  /* of these */
    int64_t retry_us;  /* AWAY: due then */
    int64_t wait_us;   /* how long it was left alone the last time; 0: never */
    double bytes_per_s;
    bool measured;
    int64_t since_us;     /* begin of the measurement; below 0: none */
    uint64_t since_bytes; /* moved in it */
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
    uint32_t n_ops; /* that have not ended */
    int64_t progress_us;
};

/* Nothing of the op is to be cut any more. */
static inline bool spread_is_cut(const struct spread_op *op)
{
    return op->rc != 0 || op->next == op->n;
}

/* Something waits to be sent. */
bool spread_has_unsent(const struct spread *s);

/* The rail for the next slice, or SPREAD_NONE: wait. */
uint32_t spread_pick(const struct spread *s);

/* The slice goes to slice->rail. */
void spread_rail_begin(struct spread *s, struct spread_slice *slice,
                       int64_t now_us);

/* It comes back: moved, or lost (now_us INT64_MIN). */
void spread_rail_end(struct spread *s, struct spread_slice *slice,
                     int64_t now_us);

/* Rails run dry: what they move from here on says nothing of their rates. */
void spread_unmeasured(struct spread *s);

#endif
