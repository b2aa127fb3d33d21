/* What a thread asks the shared store: each function sends its commands over
 * the thread's line and waits. All return 0 or
 *   -ENOTCONN  the line is closed now, or was: see its why
 *   -EPROTO    the store refused: store->why
 * and what else they say. */
#ifndef WORKERS_SHARED_COMMANDS_H
#define WORKERS_SHARED_COMMANDS_H

#include "workers/shared/line.h"
#include "workers/shared/value.h"

#define SHARED_WHY_MAX 200
#define SHARED_LIST_MAX 4096 /* members that one answer is taken of */
#define SHARED_GONE_MAX 64   /* blocks that leave for one that comes */

/* Of one thread. */
struct shared_store {
    struct shared_line *line; /* owned by whoever made it */
    struct shared_shape shape;
    uint64_t max_blocks; /* in the store, of this namespace */
    uint32_t ttl_s;      /* from the last use on */
    int64_t ahead_us;    /* the store's clock, of the monotonic one */
    char why[SHARED_WHY_MAX];
};

struct shared_known {
    uint64_t key;
    uint64_t parent_key;
};

/* A block to be put. */
struct shared_block {
    struct shared_known known;
    uint8_t chain[SHARED_CHAIN_BYTES];
    const void *data; /* (block_bytes) */
};

/* What putting one meant for others. */
struct shared_gone {
    uint64_t keys[SHARED_GONE_MAX]; /* (n): they left */
    uint32_t n;
};

/* What the line must be able to take of one answer: some of a block's layers,
 * or a piece of the list. */
size_t shared_answer_bytes(const struct shared_shape *shape);

/* Open the line if it is closed, and learn which contents the store has: *id is
 * another one if it was emptied, never 0. Without writing that is 0. */
[[nodiscard]] int shared_check(struct shared_store *s, bool writes,
                               uint64_t *id);

/* The heads of the leading ones of these blocks that are there: writes `heads`
 * (n) and *found. Pipelined. */
[[nodiscard]] int shared_heads(struct shared_store *s, const uint64_t *keys,
                               uint32_t n, struct shared_head *heads,
                               uint32_t *found);

/* Layers [from, from + n) of a block to `data`, the place of the first of them.
 * Also -ENOENT: some are not there; -EBADMSG: some have another size or sum,
 * and the block was removed. */
[[nodiscard]] int shared_read(struct shared_store *s,
                              const struct shared_head *head, uint32_t from,
                              uint32_t n, void *data);

/* Put a block, or renew it if it is there; older ones leave if there are too
 * many. Also -ENOSPC: the store has no memory for it, and old blocks of ours
 * left; -ESTALE: another worker made room of it meanwhile. What is no block or
 * no index under their names gives way. *gone is written in any case. */
[[nodiscard]] int shared_put(struct shared_store *s,
                             const struct shared_block *block,
                             struct shared_gone *gone);

/* Blocks were used: they stay for ttl_s from now. */
[[nodiscard]] int shared_touch(struct shared_store *s,
                               const struct shared_known *blocks, uint32_t n);

/* The next blocks of the index: *cursor 0 begins, and is 0 again when that was
 * all. Writes at most SHARED_LIST_MAX to `out`, and *n. */
[[nodiscard]] int shared_list(struct shared_store *s, uint64_t *cursor,
                              struct shared_known *out, uint32_t *n);

#endif
