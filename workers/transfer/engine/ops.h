/*
 * Ops of paths whose bytes threads of this worker move: those of tcp and shm.
 * They take turns, part by part, so that a short op does not wait for a long
 * one in front of it.
 *
 *   op_path_read() --> turns -- op_next() --> parts in flight
 *                        ^---- more waits -----'    |
 *   done() <-- op_set_heard() <-- set.finished <----' op_part_over()
 *
 * Threads: the loop's calls the functions of paths and sets; those that move
 * bytes take parts. What both touch is guarded by set.lock, which is held for
 * bookkeeping only, never while bytes move.
 *
 * Invariants:
 *   an op is over once nothing of it waits and no part of it is in flight; only
 *     then is it put into set.finished
 *   memory of an op is touched for one of its parts in flight only
 *   a path is freed when it has no op and no user
 */
#ifndef WORKERS_TRANSFER_ENGINE_OPS_H
#define WORKERS_TRANSFER_ENGINE_OPS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "workers/transfer/engine/bell.h"
#include "workers/transfer/engine/transport.h"

/* One part is at most so much, or one checksum's bytes if these are more. */
#define OP_PART_BYTES (512u << 10)

struct op_path;
struct op_set;

struct op {
    TAILQ_ENTRY(op) link; /* in path.live or set.finished */
    TAILQ_ENTRY(op) turn; /* in path.turns, while it waits */
    struct op_path *path;
    uint64_t id;
    uint64_t grant_id;
    bool waits; /* some of it is not in flight yet */
    int rc;
    uint32_t flying; /* parts */
    uint32_t slice;  /* what goes next */
    uint64_t at_bytes;
    uint32_t n;
    struct transport_slice slices[]; /* (n) */
};

TAILQ_HEAD(op_list, op);

/* Bytes that move in one go. */
struct op_part {
    struct op *op;
    uint8_t *local;
    uint32_t region; /* of the peer */
    uint64_t offset; /* in that region */
    uint64_t bytes;
    const uint64_t *sums; /* NULL: none */
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
    struct op_list *turns; /* where its ops wait */
    uint32_t n_users;      /* of a thread, beside parts */
    atomic_uint_fast64_t moved_bytes;
    int rc;      /* negative: it has failed */
    bool told;   /* closed() was called */
    bool closed; /* by its owner: it goes when nobody uses it any more */
};

/* All paths of a transport. */
struct op_set {
    struct bell *bell; /* rung when op_set_heard() is due */
    /* Threads are to look: there are more turns, or ops or a path ended. */
    void (*wake)(struct op_set *s);
    /* The path is not to come to stand any more. More than once. */
    void (*hang_up)(struct op_path *p);
    void (*free)(struct op_path *p);
    pthread_mutex_t lock; /* of all below, and of what ops and paths hold */
    TAILQ_HEAD(, op_path) paths;
    struct op_list finished;
};

/* Make it, but for its three functions; the bell calls heard(arg). 0 or
 * -ENOMEM; op_set_fini() is due in any case. */
[[nodiscard]] int op_set_init(struct op_set *s, struct event_base *base,
                              void (*heard)(void *arg), void *arg);

/* Free what it holds; no thread is left. */
void op_set_fini(struct op_set *s);

/* Calls back what has happened on paths, and frees those that are over. */
void op_set_heard(struct op_set *s);

/* Add a new path, all zeroes, of that transport. `turns` is borrowed. */
void op_path_init(struct op_path *p, struct op_set *s,
                  const struct transport *transport, struct op_list *turns,
                  const struct transport_path_ops *ops, void *arg);

/* Free it with its ops; no thread has one. With the lock. */
void op_path_free(struct op_path *p);

/* The path has failed: its ops end. With the lock. */
void op_path_fail(struct op_path *p, int rc);

/* As transport_ops. */
int op_path_read(struct transport_path *p, uint64_t op_id, uint64_t grant_id,
                 const struct transport_slice *slices, uint32_t n);
void op_path_cancel(struct transport_path *p, uint64_t op_id);
uint64_t op_path_moved_bytes(const struct transport_path *p);
void op_path_close(struct transport_path *p);

/* Fill `part` with what has the next turn. False: nothing waits. With the
 * lock. */
bool op_next(struct op_list *turns, struct op_part *part);

/* A part of `op` is in flight no more. With the lock. */
void op_part_over(struct op *op, int rc);

#endif
