/* The KV store: the KV blocks of one worker in host memory.
 *
 * One preallocated slab of capacity_blocks blocks; no allocation after _new.
 * A block is free, private (one request computes or receives its KV) or held
 * (shared: complete, never written again, found by its key).
 *
 * Wrong KV is impossible, and a key collision is only a miss: a held block
 * remembers its tokens and its parent block, and matches only if its tokens are
 * equal and its parent is exactly the block matched before it. By induction the
 * whole prefix was compared.
 *
 * Blocks are evicted by LRU, leaf first: never while pinned, and never before
 * their held children.
 *
 * Used by one thread. With a pin on a block, any thread may read its memory;
 * the owner of a private block may write it. */
#ifndef WORKERS_STORE_KV_STORE_H
#define WORKERS_STORE_KV_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No block. */
#define KV_BLOCK_NONE UINT32_MAX

/* Alignment of every block's memory in bytes. */
#define KV_BLOCK_ALIGN 64

struct kv_store;

/* The memory of the blocks, and a hook for code that keeps copies of them. */
struct kv_store_memory {
    /* Returns memory for the slab, aligned to at least KV_BLOCK_ALIGN, or
     * NULL: out of memory. */
    void *(*alloc)(void *arg, size_t bytes);
    void (*free)(void *arg, void *memory);
    /* Called when the block at `data` gets new contents: forget copies of the
     * old ones. May be NULL. */
    void (*taken)(void *arg, void *data);
    void *arg; /* borrowed for the store's life */
};

struct kv_store_config {
    uint32_t capacity_blocks;      /* blocks in the slab, at least 1 */
    uint32_t block_tokens;         /* tokens in one block, at least 1 */
    size_t block_bytes;            /* KV bytes of one block, at least 1 */
    uint32_t event_capacity;       /* events kept between two drains, >= 1 */
    struct kv_store_memory memory; /* alloc NULL = page-aligned heap memory */
};

/* Result of kv_store_commit(). */
enum kv_commit {
    KV_COMMITTED, /* the block is now held under its key */
    KV_DUPLICATE, /* an equal block was held; the new one stays private */
    KV_COLLISION, /* the key belongs to other tokens; stays private */
    KV_ORPHAN,    /* the parent is not held; stays private */
};

enum kv_store_event_kind {
    KV_EVENT_STORED,  /* key, parent_key and has_parent are set */
    KV_EVENT_REMOVED, /* key is set */
};

/* A block that became held, or is no longer held. */
struct kv_store_event {
    enum kv_store_event_kind kind;
    bool has_parent; /* false = first block of a prompt */
    uint64_t key;
    uint64_t parent_key; /* 0 if has_parent is false */
};

/* Counts of blocks; free + private + held = capacity. */
struct kv_store_stats {
    uint32_t capacity_blocks;
    uint32_t free_blocks;
    uint32_t private_blocks;
    uint32_t held_blocks;
    uint32_t evictable_blocks; /* held, with no pin on it or behind it */
    uint64_t evicted_blocks;   /* since the store was made */
};

/* Makes a store. `config` is borrowed for the call. Returns 0 and *out, owned;
 * -EINVAL: a size is 0 or overflows; or -ENOMEM. */
[[nodiscard]] int kv_store_new(const struct kv_store_config *config,
                               struct kv_store **out);

/* Frees the store and its slab. NULL is a no-op. */
void kv_store_free(struct kv_store *store);

/* Finds the leading blocks of a prompt that are held. `keys` (n_blocks) and
 * `tokens` (n_blocks, block_tokens) describe the prompt, both borrowed.
 * tokens NULL = match by keys alone, for another worker's prompt; that worker
 * must compare the tokens of every block before it uses one. Writes the ids to
 * `ids` (n_blocks), each with one more pin for the caller; NULL = no pins.
 * Returns the number of blocks found. O(blocks found). */
uint32_t kv_store_match(struct kv_store *store, const uint64_t *keys,
                        const uint32_t *tokens, uint32_t n_blocks,
                        uint32_t *ids);

/* Returns the held block with this key, parent (KV_BLOCK_NONE = first block of
 * a prompt) and tokens (block_tokens, borrowed; NULL = any), or KV_BLOCK_NONE.
 * Adds no pin. */
uint32_t kv_store_find(const struct kv_store *store, uint64_t key,
                       uint32_t parent, const uint32_t *tokens);

/* Returns the block held under `key`, whatever its tokens, or KV_BLOCK_NONE.
 * Adds no pin. */
uint32_t kv_store_find_key(const struct kv_store *store, uint64_t key);

/* Adds one pin to a block that the caller already has a pin on. */
void kv_store_pin(struct kv_store *store, uint32_t id);

/* Allocates `n` private blocks, evicting as needed; the caller gets one pin on
 * each. Their memory is not cleared. Writes `ids` (n) and returns 0, or -ENOSPC
 * if fewer than n blocks are free or evictable: then it takes and evicts none.
 * O(n log n). */
[[nodiscard]] int kv_store_alloc(struct kv_store *store, uint32_t n,
                                 uint32_t *ids);

/* Shares the private block `id`, whose KV is complete. `parent` is the held
 * block before it, pinned by the caller, or KV_BLOCK_NONE for the first block
 * of a prompt; `tokens` (block_tokens) is copied. On KV_COMMITTED the caller's
 * pin stays. On KV_DUPLICATE *held is the equal block that was there, with one
 * more pin for the caller, so that it can serve as the next parent; else *held
 * is untouched. Records a stored event. */
enum kv_commit kv_store_commit(struct kv_store *store, uint32_t id,
                               uint32_t parent, uint64_t key,
                               const uint32_t *tokens, uint32_t *held);

/* Gives back one pin. The last pin of a private block frees it; a held block
 * without pins stays until it is evicted. A prompt's blocks may be released in
 * any order. O(log n). */
void kv_store_release(struct kv_store *store, uint32_t id);

/* Gives back one pin as kv_store_release(), but without counting it as a use:
 * the block keeps its place in the LRU order. */
void kv_store_put_back(struct kv_store *store, uint32_t id);

/* Makes the held block `id` the most recently used: it, and so its ancestors,
 * are evicted last. Adds no pin. O(log n). */
void kv_store_touch(struct kv_store *store, uint32_t id);

/* Stops holding block `id`, whose contents are damaged, and all blocks behind
 * it, pinned or not. Pinned blocks become private to the owners of the pins.
 * Records removed events. O(held blocks): for rare cases. */
void kv_store_drop(struct kv_store *store, uint32_t id);

/* Stops holding the block under `key` and its ancestors, at most n blocks.
 * Stops at a block that is pinned or has held children. Records removed events.
 * Returns the number of blocks let go. O(n log n). */
uint32_t kv_store_let_go(struct kv_store *store, uint64_t key, uint32_t n);

/* Returns the memory of block `id`: block_bytes bytes, aligned to
 * KV_BLOCK_ALIGN, at the same address for the store's life. */
void *kv_store_data(const struct kv_store *store, uint32_t id);

/* Returns the key of block `id`; 0 if the block is not held. */
uint64_t kv_store_key(const struct kv_store *store, uint32_t id);

/* Returns the parent of the held block `id`; KV_BLOCK_NONE = first block. */
uint32_t kv_store_parent(const struct kv_store *store, uint32_t id);

/* Returns the number of the allocation of block `id`, never 0. A store uses
 * each number once, so it also tells old contents of a block from new ones. */
uint64_t kv_store_number(const struct kv_store *store, uint32_t id);

/* Returns the tokens (block_tokens) of the held block `id`, borrowed until the
 * caller's pin is released. */
const uint32_t *kv_store_tokens(const struct kv_store *store, uint32_t id);

/* Returns whether block `id` is held. */
bool kv_store_is_held(const struct kv_store *store, uint32_t id);

/* Takes the oldest waiting event. Returns false if there is none. */
bool kv_store_next_event(struct kv_store *store, struct kv_store_event *event);

/* Returns true once after the ring overflowed or kv_store_forget_events() was
 * called: code that mirrors the store then needs the whole inventory. */
bool kv_store_take_resync(struct kv_store *store);

/* Drops all waiting events and asks for a resync. */
void kv_store_forget_events(struct kv_store *store);

/* Walks the held blocks in the order of their commits, so parents first.
 * *cursor begins as KV_BLOCK_NONE, or as a held block to begin after. Between
 * two calls only pins may change. Fills `event` as KV_EVENT_STORED and returns
 * true, or returns false at the end. */
bool kv_store_inventory(const struct kv_store *store, uint32_t *cursor,
                        struct kv_store_event *event);

/* Begins a walk over all held blocks, parents before children, during which the
 * store may change. There is one walk at a time. */
void kv_store_walk(struct kv_store *store);

/* Fills `event` with the next block of the walk, as KV_EVENT_STORED; false at
 * the end. A block that is held during the whole walk comes once; a block that
 * is stored or removed meanwhile may be missing. */
bool kv_store_walk_next(struct kv_store *store, struct kv_store_event *event);

/* Returns an invariant that broke since the last call; NULL = none. */
const char *kv_store_broken(struct kv_store *store);

/* Fill `stats`. */
void kv_store_stats(const struct kv_store *store, struct kv_store_stats *stats);

#endif
