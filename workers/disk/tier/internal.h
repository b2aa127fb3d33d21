/* What the files of the disk tier share. Nobody else includes this but
 * disk_tier_check(), of tests/unit.
 *
 * Invariants, which that asserts:
 *   pieces free + under way = DISK_PIECES, and under way <= DISK_DEPTH
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

/* Pieces under way at once, and their size. There are twice as many, so that
 * the next ones are under way while those that came are verified. */
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

struct disk_piece {
    struct disk_op op; /* first: they are the same address */
    struct disk_read *read;
    struct disk_write *write; /* one of the two; none: erases a header */
    uint32_t index;           /* of a read's pieces; of an erasure, the slot */
    bool header;              /* of a write: not data but the slot's header */
    STAILQ_ENTRY(disk_piece) link; /* of those that are free, or came */
};

STAILQ_HEAD(disk_pieces, disk_piece);

/* Its bytes are cut into pieces from its own start. */
struct disk_read {
    TAILQ_ENTRY(disk_read) link; /* of reads, ended or free_reads */
    struct disk_ref ref;
    uint64_t file_offset;
    char *dst;
    uint64_t bytes;
    uint64_t begun_bytes;
    uint32_t under_way;
    uint32_t next_piece; /* all in front of it are there */
    uint32_t layer;      /* all in front of it are verified */
    uint32_t from_layer;
    bool queued; /* in reads */
    int error;
    uint64_t *there; /* bit map of pieces */
    disk_tier_done_fn *done;
    void *arg;
};

struct disk_write {
    TAILQ_ENTRY(disk_write) link; /* of writes or free_writes */
    uint32_t slot;
    uint32_t parent; /* slot, or DISK_SLOT_NONE */
    uint64_t key;
    const uint32_t *tokens;
    const char *data;
    uint64_t begun_bytes;
    uint64_t done_bytes;
    uint32_t under_way;
    uint32_t summed; /* layers */
    bool header_begun;
    bool over;
    int error;
    disk_tier_done_fn *done;
    void *arg;
};

TAILQ_HEAD(disk_reads, disk_read);
TAILQ_HEAD(disk_writes, disk_write);

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

    struct disk_read *read_pool;
    uint64_t *read_maps;
    struct disk_reads reads; /* that have pieces to begin, in order */
    struct disk_reads ended; /* whose callback is due */
    struct disk_reads free_reads;
    uint32_t n_reads;

    struct disk_write *write_pool;
    struct disk_writes writes; /* in order */
    struct disk_writes free_writes;
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

    int64_t busy_since_us; /* reads are under way since; rate not counted yet */
    uint64_t busy_bytes;
    double rate_bytes; /* weighted sums */
    double rate_us;
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

/* --- read.c --- */

/* Memory for reads. 0, or -ENOMEM. */
[[nodiscard]] int disk_reads_init(struct disk_tier *t);

/* Queue a read; as disk_tier_read(), which begins it. */
[[nodiscard]] int disk_reads_add(struct disk_tier *t, struct disk_ref ref,
                                 uint32_t from_layer, uint32_t to_layer,
                                 void *block, disk_tier_done_fn *done,
                                 void *arg, struct disk_read **read);

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

/* Memory for writes. 0, or -ENOMEM. */
[[nodiscard]] int disk_writes_init(struct disk_tier *t);

/* Queue a write; as disk_tier_write(), which begins it. */
[[nodiscard]] int disk_writes_add(struct disk_tier *t, struct disk_ref parent,
                                  uint64_t key, const uint32_t *tokens,
                                  const void *data, disk_tier_done_fn *done,
                                  void *arg, struct disk_ref *ref);

/* Begin the next piece of a write with `p`. False: there is none. */
bool disk_writes_begin(struct disk_tier *t, struct disk_piece *p);

/* A piece of a write is over. */
void disk_writes_piece_over(struct disk_tier *t, struct disk_piece *p);

/* Commit what is on disk and call back, in order. */
void disk_writes_deliver(struct disk_tier *t);

/* Begin no more of any write. */
void disk_writes_cancel_all(struct disk_tier *t);

#endif
