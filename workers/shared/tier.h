/* The shared store as a tier of blocks: a thread that reads and a thread that
 * writes, each with its own line, and the state of both lines.
 *
 * The tier is up while both lines are. While it is away, jobs fail at once,
 * and reconnects run in the background after doubling pauses. All functions run
 * on the loop's thread; shared_job.run() runs on a tier thread. */
#ifndef WORKERS_SHARED_TIER_H
#define WORKERS_SHARED_TIER_H

#include "workers/shared/commands.h"
#include "workers/transfer/errands.h"

struct loop;
struct shared_tier;

struct shared_tier_config {
    struct loop *loop;           /* borrowed */
    const struct redis_url *url; /* borrowed for the tier's life */
    struct tls *tls;             /* authorities for TLS; borrowed as well */
    const char *shown;           /* the URL for logs; borrowed as well */
    struct shared_shape shape;
    uint64_t max_blocks; /* most blocks, all workers together */
    uint32_t ttl_s;
    int64_t timeout_us; /* longest wait without progress */
};

struct shared_tier_ops {
    /* Called when the tier came up, went away, or has other contents. */
    void (*turned)(void *arg);
    /* Called when the store has, or may have, blocks[n]. */
    void (*stored)(void *arg, const struct shared_known *blocks, uint32_t n);
    /* The store no longer has keys[n]. */
    void (*gone)(void *arg, const uint64_t *keys, uint32_t n);
};

struct shared_tier_stats {
    uint64_t put_blocks; /* written, or renewed */
    uint64_t put_failed;
    uint64_t read_bytes;
    uint64_t missed_blocks;  /* looked for, not found */
    uint64_t damaged_blocks; /* wrong size or sum */
    uint64_t away;           /* times the tier went away */
};

/* The thread that runs a job. */
enum shared_way { SHARED_READS, SHARED_WRITES };
#define SHARED_WAYS 2

struct shared_job {
    struct errand errand; /* set by the tier, like all up to rc */
    struct shared_tier *tier;
    enum shared_way way;
    char why[SHARED_WHY_MAX];
    bool checks; /* runs with a closed line, which it may open */
    int rc;      /* result of run(); -ENOTCONN = line closed, or not run */
    /* On the thread. */
    int (*run)(struct shared_job *job, struct shared_store *store);
    /* Called on the loop's thread; the job is the caller's again. */
    void (*done)(struct shared_job *job);
};

/* Starts the threads without waiting. `config` is copied, `ops` and `arg` are
 * borrowed. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct shared_tier *
shared_tier_new(const struct shared_tier_config *config,
                const struct shared_tier_ops *ops, void *arg);

/* Stops the threads; waits for running jobs, one time-out at most. Every job
 * gets its done(). NULL is a no-op. */
void shared_tier_free(struct shared_tier *t);

/* Queues a job; done() is called in a later turn of the loop. */
void shared_tier_do(struct shared_tier *t, enum shared_way way,
                    struct shared_job *job);

/* Checks whether the store is there, when due; call it several times a
 * second. */
void shared_tier_tick(struct shared_tier *t);

/* Lists all blocks of the store's index to ops->stored(), piece by piece. A
 * running listing begins again. */
void shared_tier_list(struct shared_tier *t);

bool shared_tier_is_up(const struct shared_tier *t);

/* Returns the contents id; 0 = away. */
uint64_t shared_tier_id(const struct shared_tier *t);

const struct shared_tier_config *
shared_tier_config(const struct shared_tier *t);

/* Returns the counters; callers add to them. */
struct shared_tier_stats *shared_tier_stats(struct shared_tier *t);

/* Report blocks that came or left to ops->stored() and ops->gone(). */
void shared_tier_stored(struct shared_tier *t,
                        const struct shared_known *blocks, uint32_t n);
void shared_tier_gone(struct shared_tier *t, const uint64_t *keys, uint32_t n);

#endif
