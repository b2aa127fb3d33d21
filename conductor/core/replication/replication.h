/*
 * Copies of hot blocks, made before requests ask for them, and dropped when
 * they are cold.
 *
 * About once a second a pass looks at the most requested beginnings of prompts
 * (access.h). The holders of each are busy for a share of the time. A request
 * that finds all of them busy waits, or another instance fetches or computes
 * the blocks. The pass wants as many further holders as save more time of
 * requests within REPLICATION_HORIZON_US than their copies take on links, the
 * largest saving per byte first.
 *
 * A copy is made in pieces of REPLICATION_PIECE_US, front to back, no faster
 * than a share of the link and only while no fetch is booked at either end. A
 * link sends one piece at a time, and receives one. An instance that has the
 * first pieces sends them on.
 *
 * Pure: time is an argument; orders are data, which the caller carries out.
 *
 * Invariants (replication_check()): at most one piece is under way from an
 * instance and one to it; the numbers of copies and of jobs have bounds; an
 * order to drop names an instance to which the blocks were copied, and another
 * one has them.
 */
#ifndef CONDUCTOR_CORE_REPLICATION_REPLICATION_H
#define CONDUCTOR_CORE_REPLICATION_REPLICATION_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/dispatch/dispatch.h"
#include "conductor/core/replication/access.h"

#define REPLICATION_PASS_US 1000000
#define REPLICATION_PIECE_US 250000
#define REPLICATION_HORIZON_US 30000000
#define REPLICATION_HALF_US 5000000    /* in which counts of requests halve */
#define REPLICATION_BUSY_US 5000000    /* over which busy_ratio is averaged */
#define REPLICATION_KEEP_US 10000000   /* least age of a copy to drop */
#define REPLICATION_REFUSE_US 10000000 /* pause after a failed copy */
#define REPLICATION_LEAST_PER_S 0.3    /* least rate of a beginning to copy */
#define REPLICATION_COLD_PER_S 0.05    /* a copy below this rate is cold */
#define REPLICATION_FULL 0.9           /* of memory in use: drops may begin */
#define REPLICATION_WORTH 4.0          /* least saving, times link time */
#define REPLICATION_TIPS 16u           /* most tips of a pass */
#define REPLICATION_JOBS 64u
#define REPLICATION_KEPT 256u /* copies remembered, to be dropped later */
#define REPLICATION_SKETCH_BYTES (UINT64_C(2) << 20)

enum replication_kind {
    REPLICATION_NONE,
    REPLICATION_COPY, /* copy blocks from one instance to another */
    REPLICATION_DROP, /* drop blocks */
};

/* Why an order is given. */
struct replication_reason {
    bool told;          /* an operator's command: only holders is set */
    double per_s;       /* requests per second for the blocks */
    double busy_ratio;  /* share of these that find all holders busy */
    double after_ratio; /* the same once all wanted copies are there */
    uint32_t holders;   /* instances that have or will have the blocks now */
    uint32_t wanted;    /* further holders */
    int64_t miss_us;    /* time that a request without these blocks loses */
    int64_t saved_us;   /* saved by all further holders in the horizon */
    int64_t copy_bytes; /* of all further holders */
};

struct replication_action {
    enum replication_kind kind;
    uint64_t id;   /* of a copy, for replication_ended() */
    uint32_t from; /* pool id; POOL_NO_INSTANCE for a drop */
    uint32_t to;
    /* (end_block): a chain from a prompt's first block on, borrowed until the
     * next call; NULL for a drop, which removes `key` and all its parents. */
    const uint64_t *keys;
    uint64_t key; /* of block end_block - 1 */
    uint64_t tag; /* of a copy: the tag given to replication_asked() */
    uint32_t first_block;
    uint32_t end_block;
    double bytes_per_s; /* upper limit */
    struct replication_reason reason;
};

struct replication_counts {
    uint64_t passes;
    uint64_t wanted; /* further holders wanted by passes */
    uint64_t pieces;
    uint64_t blocks;  /* blocks copied */
    uint64_t failed;  /* pieces that copied no block */
    uint64_t dropped; /* orders to drop */
};

struct replication;

/*
 * Makes a replication.
 *   d          borrowed; may get its scheduler later.
 *   instances  slots of the pool.
 *   slowdown   factor on all times; 0 = 1.
 *   seed       of the hash.
 * Returns it, owned, or NULL: no memory.
 */
[[nodiscard]] struct replication *replication_new(struct dispatch *d,
                                                  uint32_t instances,
                                                  int64_t slowdown,
                                                  uint64_t seed);

/* Frees a replication; NULL is a no-op. */
void replication_free(struct replication *r);

/* Returns whether the policy's option `replicate` is on. If not, all other
 * calls do nothing. */
bool replication_on(const struct replication *r);

/*
 * Counts a request for a prompt. Call it once for each request.
 *   tag  the caller's, of all prompts with these keys; orders to copy have
 *        it.
 * Cost: access_add(), and O(instances).
 */
void replication_asked(struct replication *r,
                       const struct schedule_request *request, uint64_t tag,
                       int64_t now_us);

/*
 * Makes a pass, if one is due. Returns whether there was one.
 * Cost: O(places of the sketch), and for each of REPLICATION_TIPS a match and
 * O(instances^2).
 */
bool replication_pass(struct replication *r, int64_t now_us);

/* Returns when the next pass is due, absolute. */
int64_t replication_due_us(const struct replication *r);

/*
 * Gives the next order, after a pass or when a piece has ended.
 *   action  written.
 * Returns whether there is one: a copy counts as under way until
 * replication_ended() or replication_lost(). Cost: for each job a match and
 * O(instances).
 */
bool replication_next(struct replication *r, int64_t now_us,
                      struct replication_action *action);

/* Ends a piece, of which the first `blocks` blocks came. An unknown id changes
 * nothing. */
void replication_ended(struct replication *r, uint64_t id, uint32_t blocks,
                       int64_t now_us);

/* Ends all pieces from and to an instance that has left the pool. */
void replication_lost(struct replication *r, uint32_t instance);

/* Returns the counts so far. Borrowed. */
const struct replication_counts *
replication_counts(const struct replication *r);

/* Returns whether the invariants hold. For tests. */
bool replication_check(const struct replication *r);

#endif
