/*
 * Ops of the transports whose bytes are moved by threads of this worker: tcp
 * and shm. Ops take turns, part by part, so that a short op does not wait for a
 * long one.
 *
 *   op_path_read() --> turns -- op_next() --> parts in flight
 *                        ^---- more waits -----'    |
 *   done() <-- op_set_heard() <-- set.finished <----' op_part_over()
 *
 * Threads: the loop's thread calls the functions of paths and sets; other
 * threads take parts and move their bytes. set.lock guards all data that both
 * touch, and is never held while bytes move.
 *
 * Invariants:
 *   an op is put into set.finished once no part of it waits or is in flight
 *   memory of an op is touched only for parts in flight
 *   a path is freed when it has no op and no user
 */
#ifndef WORKERS_TRANSFER_ENGINE_OPS_H
#define WORKERS_TRANSFER_ENGINE_OPS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/loop/loop.h"
#include "workers/transfer/engine/transport.h"

/* Most bytes of one part, unless one checksum covers more. */
#define OP_PART_BYTES (512u << 10)

struct op_path;
struct op_set;

struct op {
    TAILQ_ENTRY(op) link; /* in path.live or set.finished */
    TAILQ_ENTRY(op) turn; /* in path.turns, while it waits */
    struct op_path *path;
    uint64_t id;
    uint64_t grant_id;
    bool waits; /* more parts are to be taken */
    int rc;
    uint32_t flying;   /* parts in flight */
    uint32_t slice;    /* the next part begins in this slice, */
    uint64_t at_bytes; /* at this byte */
    uint32_t n;
    struct transport_slice slices[]; /* (n) */
};

TAILQ_HEAD(op_list, op);

/* Bytes that one thread moves at once. */
struct op_part {
    struct op *op;
    uint8_t *local;
    uint32_t region; /* of the peer */
    uint64_t offset; /* offset in the region */
    uint64_t bytes;
    const uint64_t *sums; /* NULL = none */
    uint64_t sum_bytes;
};

/* The first member of a path. */
struct op_path {
    struct transport_path base;
    TAILQ_ENTRY(op_path) link; /* in set.paths */
    struct op_set *set;
    const struct transport_path_ops *ops;
    void *arg;
    struct op_list live;
    struct op_list *turns; /* ops with parts to be taken */
    uint32_t n_users;      /* uses by threads, beside parts */
    atomic_uint_fast64_t moved_bytes;
    int rc;      /* negative = failed */
    bool told;   /* closed() was called */
    bool closed; /* closed by its owner: freed after its last op and user */
};

/* All paths of a transport. */
struct op_set {
    struct loop_bell bell; /* rung when op_set_heard() is due */
    /* Wakes the threads: there are new turns, or ops or a path ended. */
    void (*wake)(struct op_set *s);
    /* Stops opening the path, if it is being opened. May be called again. */
    void (*hang_up)(struct op_path *p);
    void (*free)(struct op_path *p);
    pthread_mutex_t lock; /* guards all below, and members of ops and paths */
    TAILQ_HEAD(, op_path) paths;
    struct op_list finished;
};

/* Initializes all except the three functions. The bell calls heard(arg).
 * Returns 0, or -ENOMEM; op_set_fini() must be called even then. */
[[nodiscard]] int op_set_init(struct op_set *s, struct loop *loop,
                              void (*heard)(void *arg), void *arg);

/* Frees the set's paths, ops and bell. All threads must have ended. */
void op_set_fini(struct op_set *s);

/* Calls back for ops and paths that ended, and frees paths that were closed. */
void op_set_heard(struct op_set *s);

/* Initializes the path `p`, all zeroes, and adds it to the set. `turns` is
 * borrowed. */
void op_path_init(struct op_path *p, struct op_set *s,
                  const struct transport *transport, struct op_list *turns,
                  const struct transport_path_ops *ops, void *arg);

/* Frees the path and its ops, of which no part may be in flight. With the
 * lock. */
void op_path_free(struct op_path *p);

/* Fails the path: all of its ops end with rc. With the lock. */
void op_path_fail(struct op_path *p, int rc);

/* The functions of transport_ops. */
int op_path_read(struct transport_path *p, uint64_t op_id, uint64_t grant_id,
                 const struct transport_slice *slices, uint32_t n);
void op_path_cancel(struct transport_path *p, uint64_t op_id);
uint64_t op_path_moved_bytes(const struct transport_path *p);
void op_path_close(struct transport_path *p);

/* Takes the next part to *part. Returns false if none waits. With the lock. */
bool op_next(struct op_list *turns, struct op_part *part);

/* Notes that a part of `op` is no longer in flight. With the lock. */
void op_part_over(struct op *op, int rc);

#endif
