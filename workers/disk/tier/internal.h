/* What the files of the disk tier share. Nobody else includes this but
 * disk_tier_check(), of tests/unit.
 *
 * Invariants, which that asserts:
 *   pieces free + under way = DISK_PIECES, and under way <= DISK_DEPTH
 *   a piece is as many layers as fit into DISK_PIECE_BYTES, at least one, so
 *     that each can be verified by itself
 *   a read is in `reads` while it has pieces to begin, in `ended` when only its
 *     callback is missing; else all its pieces are under way
 *   a write has a private slot of the index and one pin on its parent's slot
 *   the header of a write is begun when its data is on disk and all writes in
 *     front of it are over, so that commits are in order
 *   a slot whose header is to be erased has a pin until it is, so that nothing
 *     is written there meanwhile
 */
#ifndef WORKERS_DISK_TIER_INTERNAL_H
#define WORKERS_DISK_TIER_INTERNAL_H

#include "workers/disk/io/io.h"
#include "workers/disk/tier/tier.h"

/* Pieces under way at once, and about their size. There are twice as many, so
 * that the next ones are under way while those that came are verified. */
#define DISK_DEPTH 32u
#define DISK_PIECES (2 * DISK_DEPTH)
#define DISK_PIECE_BYTES (1u << 20)

/* Pieces of writes under way: without reads, and beside them. One always goes
 * on, so that the memory of blocks that wait comes free. */
#define DISK_WRITE_DEPTH 8u
#define DISK_WRITE_DEPTH_READING 1u
/* Writes whose data may be under way while the first one waits for its end. */
#define DISK_WRITE_WINDOW 4u

/* What the index keeps of a slot beside key, tokens and parent. */
struct slot_meta {
    uint64_t number; /* in the file */
    uint64_t order;
    uint32_t next_erase; /* the slot whose header is erased after this one's;
                            DISK_SLOT_NONE: the last */
    uint64_t sums[];     /* (layers) */
};

/* Whole layers of a block, or a header. */
struct disk_piece {
    struct disk_op op;             /* first: they are the same address */
    struct disk_job *job;          /* NULL: erases a header */
    uint32_t slot;                 /* of that */
    uint32_t layer;                /* the first */
    uint32_t n_layers;             /* 0: a header */
    STAILQ_ENTRY(disk_piece) link; /* of those that are free, or came */
};

STAILQ_HEAD(disk_pieces, disk_piece);

/* A read or a write. */
struct disk_job {
    TAILQ_ENTRY(disk_job) link; /* of reads, ended or writes */
    bool write;
    struct disk_ref ref;
    char *block;         /* its memory; of a write it is only read */
    uint32_t next_layer; /* all in front of it are begun */
    uint32_t to_layer;
    uint32_t under_way; /* pieces */
    int error;
    disk_tier_done_fn *done;
    void *arg;

    uint32_t parent; /* of a write, as all below: slot, or DISK_SLOT_NONE */
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
    uint32_t n_write_pieces; /* of these */

    struct disk_jobs reads; /* that have pieces to begin, in order */
    struct disk_jobs ended; /* whose callback is due */
    uint32_t n_reads;
    struct disk_jobs writes; /* in order */
    uint32_t n_writes;
    uint32_t first_erase; /* slot, or DISK_SLOT_NONE */
    uint32_t last_erase;
    struct wire_buf scratch;
    void *page;                /* of the header under way */
    void *blank;               /* a page of zeroes */
    uint64_t number_base;      /* random: no number of another run again */
    uint64_t next_order;       /* 1 .. */
    int64_t write_again_at_us; /* after a failure */
    int64_t say_again_at_us;   /* that a block was dropped */
    uint64_t unsaid; /* dropped blocks that the log does not know of */
    struct disk_tier_stats stats;
};

/* --- block.c --- */

/* What the index keeps of `slot`. */
struct slot_meta *disk_slot_meta(const struct disk_tier *t, uint32_t slot);

/* The XXH3-64 of `layer` of a block in memory. */
uint64_t disk_layer_sum(const struct disk_tier *t, const char *block,
                        uint32_t layer);

/* --- restore.c --- */

/* Fill the index from the slab. 0, or -ENOMEM. Logs what is lost. */
[[nodiscard]] int disk_tier_restore(struct disk_tier *t);

/* Begin the next piece of `j` with `p`. */
void disk_job_begin(struct disk_tier *t, struct disk_job *j,
                    struct disk_piece *p);

/* Whether all of its layers are begun. */
bool disk_job_begun(const struct disk_job *j);

/* --- read.c --- */

/* Begin the next piece of a read with `p`. False: there is none. */
bool disk_reads_begin(struct disk_tier *t, struct disk_piece *p);

/* A piece of a read is over. */
void disk_reads_piece_over(struct disk_tier *t, struct disk_piece *p);

/* Call back for what has ended. */
void disk_reads_deliver(struct disk_tier *t);

/* End all that is not begun. */
void disk_reads_cancel_all(struct disk_tier *t);

/* --- erase.c --- */

/* Make the header of `slot` empty as soon as it may be, and release the slot
 * then: takes over one pin. */
void disk_erases_add(struct disk_tier *t, uint32_t slot);

/* Begin the next one with `p`. False: there is none. */
bool disk_erases_begin(struct disk_tier *t, struct disk_piece *p);

/* One is over. */
void disk_erases_piece_over(struct disk_tier *t, struct disk_piece *p);

/* Do what is left, now. Blocks. */
void disk_erases_finish(struct disk_tier *t);

/* Drop a block that cannot be read, and all behind it; `why` is logged. */
void disk_tier_condemn(struct disk_tier *t, struct disk_ref ref,
                       const char *why);

/* --- write.c --- */

/* Begin the next piece of a write with `p`. False: there is none. */
bool disk_writes_begin(struct disk_tier *t, struct disk_piece *p);

/* A piece of a write is over. */
void disk_writes_piece_over(struct disk_tier *t, struct disk_piece *p);

/* Commit what is on disk and call back, in order. */
void disk_writes_deliver(struct disk_tier *t);

/* Begin no more of any write. */
void disk_writes_cancel_all(struct disk_tier *t);

#endif
