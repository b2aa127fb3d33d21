/* Commands to the shared store: each function sends its commands over its
 * thread's line and waits for the answers. All return 0 or
 *   -ENOTCONN  the line is closed: shared_line_why()
 *   -EPROTO    the store refused: store->why
 * or an error named at the function. */
#ifndef WORKERS_SHARED_COMMANDS_H
#define WORKERS_SHARED_COMMANDS_H

#include "workers/shared/line.h"
#include "workers/shared/value.h"

#define SHARED_WHY_MAX 200
#define SHARED_LIST_MAX 4096 /* most members read from one answer */
#define SHARED_GONE_MAX 64   /* most blocks evicted for one put */

/* One thread's access to the store. */
struct shared_store {
    struct shared_line *line; /* owned by its creator */
    struct shared_shape shape;
    uint64_t max_blocks; /* most blocks of this namespace in the store */
    uint32_t ttl_s;      /* expiry after the last use */
    int64_t ahead_us;    /* the store's clock minus clock_now_us() */
    char why[SHARED_WHY_MAX];
};

struct shared_known {
    uint64_t key;
    uint64_t parent_key;
};

/* A block to put. */
struct shared_block {
    struct shared_known known;
    uint8_t chain[SHARED_CHAIN_BYTES];
    const void *data; /* (block_bytes) */
};

/* Blocks that a put evicted. */
struct shared_gone {
    uint64_t keys[SHARED_GONE_MAX]; /* (n) */
    uint32_t n;
};

/* Returns the largest answer in bytes: a block's part, or a list's piece. */
size_t shared_answer_bytes(const struct shared_shape *shape);

/* Opens the line if it is closed. Sets *id with `writes` to the contents id,
 * never 0, which changes when the store was emptied; else to 0. */
[[nodiscard]] int shared_check(struct shared_store *s, bool writes,
                               uint64_t *id);

/* Reads the heads of the leading blocks of `keys` that the store has: *found
 * heads into `heads` (n). Pipelined. */
[[nodiscard]] int shared_heads(struct shared_store *s, const uint64_t *keys,
                               uint32_t n, struct shared_head *heads,
                               uint32_t *found);

/* Reads layers [from, from + n) of a block to `data`, where layer `from`
 * begins. Also -ENOENT: a layer is missing, or -EBADMSG: a layer has a wrong
 * size or sum; in both cases the block was removed. */
[[nodiscard]] int shared_read(struct shared_store *s,
                              const struct shared_head *head, uint32_t from,
                              uint32_t n, void *data);

/* Puts a block, or renews it if it is there; evicts old blocks beyond
 * max_blocks. Also -ENOSPC: the store has no memory for it, and some old blocks
 * of ours were evicted; -ESTALE: another worker evicted the block meanwhile.
 * Deletes a key of another type under one of our names. Always writes *gone. */
[[nodiscard]] int shared_put(struct shared_store *s,
                             const struct shared_block *block,
                             struct shared_gone *gone);

/* Renews used blocks: they expire ttl_s from now. */
[[nodiscard]] int shared_touch(struct shared_store *s,
                               const struct shared_known *blocks, uint32_t n);

/* Lists the next blocks of the index, at most SHARED_LIST_MAX, into `out` and
 * *n. Begins with *cursor 0; *cursor is 0 again after the last piece. */
[[nodiscard]] int shared_list(struct shared_store *s, uint64_t *cursor,
                              struct shared_known *out, uint32_t *n);

#endif
