/* The shared store as a tier of blocks: two threads that ask it, one that reads
 * and one that writes, each with a line of its own, and what is known of it.
 *
 * The tier is up while both lines are. What is asked of it while it is away
 * fails at once; it is looked for again after a pause that doubles, and nobody
 * waits for that. On the loop's thread, but for what shared_job.run does. */
#ifndef WORKERS_SHARED_TIER_H
#define WORKERS_SHARED_TIER_H

#include "workers/shared/commands.h"
#include "workers/transfer/errands.h"

struct shared_tier;

struct shared_tier_config {
    struct event_base *base;     /* borrowed */
    const struct redis_url *url; /* borrowed for the tier's life */
    struct tls *tls;             /* whom a URL with TLS trusts; likewise */
    const char *shown;           /* the URL as logs may show it; likewise */
    struct shared_shape shape;
    uint64_t max_blocks; /* of all workers together */
    uint32_t ttl_s;
    int64_t timeout_us; /* without progress */
};

struct shared_tier_ops {
    /* It came up, went away, or has other contents. */
    void (*turned)(void *arg);
    /* These are there, or may be: (n). */
    void (*stored)(void *arg, const struct shared_known *blocks, uint32_t n);
    /* These are not there any more: (n). */
    void (*gone)(void *arg, const uint64_t *keys, uint32_t n);
};

struct shared_tier_stats {
    uint64_t put_blocks; /* written, or renewed */
    uint64_t put_failed;
    uint64_t read_bytes;
    uint64_t missed_blocks;  /* that were looked for and not there */
    uint64_t damaged_blocks; /* wrong size or sum */
    uint64_t away;           /* times that it went away */
};

/* What a thread does. */
enum shared_way { SHARED_READS, SHARED_WRITES };
#define SHARED_WAYS 2

struct shared_job {
    struct errand errand; /* the tier's, as what follows up to rc */
    struct shared_tier *tier;
    enum shared_way way;
    char why[SHARED_WHY_MAX];
    bool checks; /* it may open the line */
    int rc;      /* of run(), or -ENOTCONN: it was not run */
    /* On the thread. */
    int (*run)(struct shared_job *job, struct shared_store *store);
    /* On the loop's thread; the job is the caller's again. */
    void (*done)(struct shared_job *job);
};

/* Start the threads; nothing is waited for. `config` is copied, `ops` and `arg`
 * are borrowed. Returns it owned, or NULL. */
[[nodiscard]] struct shared_tier *
shared_tier_new(const struct shared_tier_config *config,
                const struct shared_tier_ops *ops, void *arg);

/* Stop them: waits for what is under way, a time-out at most; all jobs are
 * done then. NULL is a no-op. */
void shared_tier_free(struct shared_tier *t);

/* Have a job run; done() comes from a later turn of the loop. */
void shared_tier_do(struct shared_tier *t, enum shared_way way,
                    struct shared_job *job);

/* Look whether the store is there, if it is time to; some times a second. */
void shared_tier_tick(struct shared_tier *t);

/* Tell ops->stored() of all that the index of the store names, piece after
 * piece. One that is under way begins again. */
void shared_tier_list(struct shared_tier *t);

bool shared_tier_is_up(const struct shared_tier *t);

/* Which contents it has; 0: it is away. */
uint64_t shared_tier_id(const struct shared_tier *t);

const struct shared_tier_config *
shared_tier_config(const struct shared_tier *t);

/* To count in. */
struct shared_tier_stats *shared_tier_stats(struct shared_tier *t);

/* Tell ops of blocks that came or went. */
void shared_tier_stored(struct shared_tier *t,
                        const struct shared_known *blocks, uint32_t n);
void shared_tier_gone(struct shared_tier *t, const uint64_t *keys, uint32_t n);

#endif
