/*
 * Computes in the background the prompts that were refused for their time, so
 * that the cache has them when they are sent again or their session goes on.
 *
 * A refused prompt becomes a job on the instance where it is the cheapest to
 * compute. A job is computed in pieces of WARM_PIECE_TOKENS, each a prefill of
 * its own without a decode, and only where nothing else is accepted and while
 * no request waits for room. So a request waits for one piece at most, and
 * estimates of queues count only the piece under way. No piece begins within
 * WARM_BEGIN_US after a request without a TTFT SLO came.
 *
 * A job is dropped if it has not begun WARM_BEGIN_US after it was refused, if
 * some instance has or will have all of its blocks, if its instance takes no
 * more work, or if a piece added no block for lack of room. Two jobs of which
 * one's prompt begins the other's become one.
 *
 * Pure: time is an argument; jobs belong to the caller, who carries pieces out.
 *
 * Invariants: at most WARM_JOBS are kept, and WARM_OF_INSTANCE of an instance;
 * an instance computes one piece at a time.
 */
#ifndef CONDUCTOR_CORE_WARM_WARM_H
#define CONDUCTOR_CORE_WARM_WARM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "conductor/core/dispatch/dispatch.h"

#define WARM_PIECE_TOKENS 512 /* or one block, if that is longer */
#define WARM_BEGIN_US 60000000
#define WARM_JOBS 128u
#define WARM_OF_INSTANCE 16u

/* A refused prompt. The caller fills in the first part, and keeps the job from
 * warm_add() until warm_next() hands it back. */
struct warm_job {
    void *owner;          /* the shell's */
    const uint64_t *keys; /* (n_keys), of its full blocks */
    size_t n_keys;        /* at least 1 */
    int64_t n_tokens;     /* of the prompt */
    uint64_t tenant;      /* of the request; place in the shares */
    uint32_t place;

    TAILQ_ENTRY(warm_job) entry;
    uint32_t instance; /* pool id */
    uint32_t blocks;   /* its leading blocks when the last piece began */
    int64_t refused_us;
    int64_t cost_us; /* of the rest of the job */
    bool begun;
    bool computes; /* a piece is under way */
    bool over;     /* handed back once no piece is under way */
};

TAILQ_HEAD(warm_list, warm_job);

/* Numbers of refused prompts. Each kept job ends in one of the last three. */
struct warm_counts {
    uint64_t jobs;    /* kept */
    uint64_t joined;  /* refused prompts that another job covers */
    uint64_t crowded; /* not kept: too many jobs, or no cache has room */
    uint64_t begun;
    uint64_t pieces;
    uint64_t tokens;  /* computed by pieces */
    uint64_t done;    /* jobs whose blocks an instance has */
    uint64_t late;    /* dropped before they began */
    uint64_t dropped; /* dropped for other reasons */
};

struct warm {
    struct dispatch *dispatch; /* borrowed */
    struct warm_list jobs;     /* the oldest first */
    uint32_t n_jobs;
    int64_t begin_us;
    struct warm_counts counts;
};

/* A part of a job to compute now: a prefill of the prompt's first `tokens`
 * tokens, of which the blocks up to from_block are there. */
struct warm_piece {
    uint32_t instance; /* pool id */
    uint32_t slot;     /* and slot */
    uint32_t from_block;
    uint32_t end_block;
    int64_t cached_tokens;
    int64_t tokens;
    int64_t predicted_us; /* by the cost model */
};

/* warm_init(w, d, slowdown): starts empty. slowdown: factor on times; 0 = 1. */
void warm_init(struct warm *w, struct dispatch *d, int64_t slowdown);

/* Returns whether a refused request is warmed: the policy's option is on, and
 * it missed an SLO or was too dear; not if refused for its tenant's share, for
 * its size or for lack of an instance. */
bool warm_wants(const struct warm *w, const struct dispatch_request *request,
                const struct dispatch_order *order);

/*
 * Keeps a refused prompt.
 *   job  borrowed, if it is kept.
 * Returns false if no instance can compute it or has room for WARM_OF_INSTANCE
 * such prompts, if another job computes it, or if there are WARM_JOBS already.
 * Cost: a match, O(instances + jobs).
 */
[[nodiscard]] bool warm_add(struct warm *w, struct warm_job *job,
                            int64_t now_us);

/*
 * Finds the next thing to do.
 *   piece  written if there is one to compute: then warm_begin() or
 *          warm_end() follows.
 * Returns a job; with piece->tokens 0 it is over, and the caller's again. NULL
 * = nothing to do now. Cost: O(jobs), and a match for each idle instance.
 */
struct warm_job *warm_next(struct warm *w, int64_t now_us,
                           struct warm_piece *piece);

/* Enters a piece into the pool and charges its work to the job's tenant.
 * Returns 0 or an error of pool_prefill_accept(). */
[[nodiscard]] int warm_begin(struct warm *w, struct warm_job *job,
                             const struct warm_piece *piece,
                             uint64_t request_id, int64_t now_us);

/* warm_end(w, job, failed): reports that a piece has ended and left the pool.
 * If it failed, the job is over. */
void warm_end(struct warm *w, struct warm_job *job, bool failed);

/* warm_forget(w, job): drops a job, also while a piece is under way. */
void warm_forget(struct warm *w, struct warm_job *job);

#endif
