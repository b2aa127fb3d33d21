/* Shared by the files of the disk tier and disk_tier_check() in tests/unit;
 * private to them.
 *
 * Invariants, which disk_tier_check() asserts:
 *   pieces free + under way = DISK_PIECES, and under way <= DISK_DEPTH
 *   a piece is as many layers as fit into DISK_PIECE_BYTES, at least one, so
 *     that each can be verified by itself
 *   a read is in `reads` while it has pieces to begin, and in `ended` when its
 *     callback is due; in between, its last pieces are under way
 *   a write has a private slot of the index and one pin on its parent's slot
 *   the header of a write is begun when its data is on disk and all earlier
 *     writes are over, so that commits are in order
 *   a slot is pinned until its header is erased, so that nothing is written
 *     there before */
#ifndef WORKERS_DISK_TIER_INTERNAL_H
#define WORKERS_DISK_TIER_INTERNAL_H

#include "workers/disk/io/io.h"
#include "workers/disk/tier/tier.h"

/* Most pieces under way, and their size, unless one layer is larger. Twice as
 * many pieces exist, so that the disk has work while others are verified. */
#define DISK_DEPTH 32u
#define DISK_PIECES (2 * DISK_DEPTH)
#define DISK_PIECE_BYTES (1u << 20)

/* Pieces of writes under way: without reads, and beside reads. One write
 * continues even then, so that blocks pinned for writing are released. */
#define DISK_WRITE_DEPTH 8u
#define DISK_WRITE_DEPTH_READING 1u
/* Writes, from the oldest on, whose data may be under way at once. */
#define DISK_WRITE_WINDOW 4u

/* Fields of a slot in the index, beside key, tokens and parent. */
struct slot_meta {
    uint64_t number; /* of the write, as in the slot header */
    uint64_t order;
    uint32_t next_erase; /* next slot in the queue of headers to erase;
                            DISK_SLOT_NONE = last */
    uint64_t sums[];     /* (layers) */
};

/* Whole layers of a block, or a header. */
struct disk_piece {
    struct disk_op op;             /* must be first: it is cast to the piece */
    struct disk_job *job;          /* NULL = erases a header */
    uint32_t slot;                 /* without a job: its header is erased */
    uint32_t layer;                /* first layer */
    uint32_t n_layers;             /* 0 = a header */
    STAILQ_ENTRY(disk_piece) link; /* in free_pieces, or in a reaped list */
};

STAILQ_HEAD(disk_pieces, disk_piece);

/* A read or a write. */
struct disk_job {
    TAILQ_ENTRY(disk_job) link; /* in reads, ended or writes */
    bool write;
    struct disk_ref ref;
    char *block;         /* the caller's memory; a write does not change it */
    uint32_t next_layer; /* all earlier layers are begun */
    uint32_t to_layer;
    uint32_t under_way; /* pieces */
    int error;
    disk_tier_done_fn *done;
    void *arg;

    /* Of writes only: */
    uint32_t parent; /* slot, or DISK_SLOT_NONE */
    uint64_t key;
    const uint32_t *tokens;
    bool header_begun;
};

TAILQ_HEAD(disk_jobs, disk_job);

struct disk_tier {
    struct disk_tier_config config;
    struct disk_slab slab;
    struct disk_io *io;
    struct kv_store *index;
    char *path; /* for logs */
    uint64_t layer_bytes;
    bool in_poll;
    bool closing;

    struct disk_piece pieces[DISK_PIECES];
    struct disk_pieces free_pieces;
    uint32_t n_under_way;
    uint32_t n_write_pieces; /* under way: of writes and erasing */

    struct disk_jobs reads; /* with pieces to begin, oldest first */
    struct disk_jobs ended; /* reads whose callback is due */
    uint32_t n_reads;
    struct disk_jobs writes; /* oldest first */
    uint32_t n_writes;
    uint32_t first_erase; /* slot, or DISK_SLOT_NONE */
    uint32_t last_erase;
    struct wire_buf scratch;
    void *page;                /* the header being written */
    void *blank;               /* a page of zeroes */
    uint64_t number_base;      /* random, so runs do not share numbers */
    uint64_t next_order;       /* from 1 on */
    int64_t write_again_at_us; /* no writes before, after a failure */
    int64_t say_again_at_us;   /* next time to log a dropped block */
    uint64_t unsaid;           /* blocks dropped since the last log line */
    struct disk_tier_stats stats;
};

static inline int64_t disk_now_us(const struct disk_tier *t)
{
    return t->config.now_us(t->config.loop);
}

/* --- block.c --- */

/* Returns the fields of `slot` in the index, borrowed. */
struct slot_meta *disk_slot_meta(const struct disk_tier *t, uint32_t slot);

/* Returns the XXH3-64 of `layer` of the block at `block`. */
uint64_t disk_layer_sum(const struct disk_tier *t, const char *block,
                        uint32_t layer);

/* --- restore.c --- */

/* Fills the index from the slab, and logs damage. Returns 0, or -ENOMEM. */
[[nodiscard]] int disk_tier_restore(struct disk_tier *t);

/* --- block.c, jobs --- */

/* Makes `p` the next piece of `j`. */
void disk_job_begin(struct disk_tier *t, struct disk_job *j,
                    struct disk_piece *p);

/* Returns whether all layers of `j` are begun. */
bool disk_job_begun(const struct disk_job *j);

/* --- read.c --- */

/* Makes `p` the next piece of a read. Returns false if there is none. */
bool disk_reads_begin(struct disk_tier *t, struct disk_piece *p);

/* Takes in a read's piece that is over: verify its layers. */
void disk_reads_piece_over(struct disk_tier *t, struct disk_piece *p);

/* Calls back for reads that have ended. */
void disk_reads_deliver(struct disk_tier *t);

/* Cancels all reads with pieces to begin. */
void disk_reads_cancel_all(struct disk_tier *t);

/* --- erase.c --- */

/* Queues the header of `slot` for erasing. Takes over one of the caller's pins;
 * erasing releases it. */
void disk_erases_add(struct disk_tier *t, uint32_t slot);

/* Makes `p` erase the next header. Returns false if there is none. */
bool disk_erases_begin(struct disk_tier *t, struct disk_piece *p);

/* Takes in a piece that erased a header. */
void disk_erases_piece_over(struct disk_tier *t, struct disk_piece *p);

/* Erases all queued headers now. Waits for the disk. */
void disk_erases_finish(struct disk_tier *t);

/* Drops a block that cannot be read, and all blocks behind it. Logs `why`. */
void disk_tier_condemn(struct disk_tier *t, struct disk_ref ref,
                       const char *why);

/* --- write.c --- */

/* Makes `p` the next piece of a write. Returns false if there is none. */
bool disk_writes_begin(struct disk_tier *t, struct disk_piece *p);

/* Accounts for a finished piece of a write. */
void disk_writes_piece_over(struct disk_tier *t, struct disk_piece *p);

/* Commits writes whose header is on disk, and calls back, in order. */
void disk_writes_deliver(struct disk_tier *t);

/* Cancels all writes whose header is not begun. */
void disk_writes_cancel_all(struct disk_tier *t);

#endif
