/* The KV store: the KV blocks of one worker in host memory.
 *
 * One preallocated slab of capacity_blocks blocks; no allocation after _new.
 * A block is free, private (one request computes into it or receives into it)
 * or held (shared: complete, never written again, found by its key).
 *
 * Wrong KV is impossible, and a key collision is only a miss: a held block
 * remembers its tokens and which block is its parent, and matches only if its
 * tokens are equal and its parent is exactly the block that matched before it.
 * By induction the whole prefix was compared.
 *
 * Blocks are evicted by LRU, leaf first: never while pinned, and never before
 * their held children.
 *
 * Used by one thread. With a pin on a block, any thread may read its memory;
 * the owner of a private block may write it.
 */
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

/* The memory that the blocks lie in, and a hook for code that keeps copies of
 * them. */
struct kv_store_memory {
    /* Memory for the slab, aligned to KV_BLOCK_ALIGN at least; NULL: none. */
    void *(*alloc)(void *arg, size_t bytes);
    void (*free)(void *arg, void *memory);
    /* The block at `data` was taken for new contents: forget all that is known
     * of the old ones. May be NULL. */
    void (*taken)(void *arg, void *data);
    void *arg; /* borrowed for the store's life */
};

/* What a store is made of. */
struct kv_store_config {
    uint32_t capacity_blocks;      /* blocks in the slab, at least 1 */
    uint32_t block_tokens;         /* tokens in one block, at least 1 */
    size_t block_bytes;            /* KV bytes of one block, at least 1 */
    uint32_t event_capacity;       /* events kept between two drains, >= 1 */
    struct kv_store_memory memory; /* alloc NULL: the store's own, by page */
};

/* What kv_store_commit did. */
enum kv_commit {
    KV_COMMITTED, /* the block is now held under its key */
    KV_DUPLICATE, /* an equal block was held; the new one stays private */
    KV_COLLISION, /* the key belongs to other tokens; stays private */
    KV_ORPHAN,    /* the parent is not held; stays private */
};

enum kv_event_kind {
    KV_EVENT_STORED,  /* key, parent_key and has_parent are set */
    KV_EVENT_REMOVED, /* key is set */
};

/* One change of what the store holds. */
struct kv_event {
    enum kv_event_kind kind;
    bool has_parent; /* false: the first block of a prompt */
    uint64_t key;
    uint64_t parent_key; /* 0 if has_parent is false */
};

/* Counts of blocks; free + private + held = capacity. */
struct kv_store_stats {
    uint32_t capacity_blocks;
    uint32_t free_blocks;
    uint32_t private_blocks;
    uint32_t held_blocks;
    uint32_t evictable_blocks; /* of the held ones: neither pinned nor in front
                                * of one that is */
    uint64_t evicted_blocks;   /* since the store was made */
};

/* Make a store. `config` is borrowed for the call. On success *out is owned
 * by the caller and 0 is returned; -EINVAL for a zero or an overflowing size,
 * -ENOMEM. */
[[nodiscard]] int kv_store_new(const struct kv_store_config *config,
                               struct kv_store **out);

/* Free the store and its slab. NULL is a no-op. */
void kv_store_free(struct kv_store *store);

/* Find the leading run of `n_blocks` blocks that is held: `keys` (n_blocks)
 * and `tokens` (n_blocks, block_tokens) describe the prompt, both borrowed.
 * tokens NULL: by keys alone, for another worker's prompt; that worker must
 * compare the tokens of every block before it uses one. Writes the ids to `ids`
 * (n_blocks), each with one more pin for the caller; NULL: no pins. Returns how
 * many matched. O(run). */
uint32_t kv_store_match(struct kv_store *store, const uint64_t *keys,
                        const uint32_t *tokens, uint32_t n_blocks,
                        uint32_t *ids);

/* The held block of these `tokens` (block_tokens, borrowed; NULL: of any) under
 * `key` whose parent is the block `parent` (KV_BLOCK_NONE: a first block), or
 * KV_BLOCK_NONE. No pin. */
uint32_t kv_store_find(const struct kv_store *store, uint64_t key,
                       uint32_t parent, const uint32_t *tokens);

/* The block that is held under `key`, whatever its tokens, or KV_BLOCK_NONE.
 * No pin. */
uint32_t kv_store_find_key(const struct kv_store *store, uint64_t key);

/* Add one pin to a block that the caller already has a pin on. */
void kv_store_pin(struct kv_store *store, uint32_t id);

/* Take `n` private blocks, evicting as needed; each has one pin, the owner's.
 * Their memory holds old bytes. Writes `ids` (n). 0, or -ENOSPC when pinned
 * blocks, and those in front of them, leave no room for all of them: then none
 * is taken and nothing is evicted. O(n log n). */
[[nodiscard]] int kv_store_alloc(struct kv_store *store, uint32_t n,
                                 uint32_t *ids);

/* Share the private block `id`, whose KV is complete. `parent` is the held
 * block before it, pinned by the caller, or KV_BLOCK_NONE for the first block
 * of a prompt; `tokens` (block_tokens) is copied. On KV_COMMITTED the caller's
 * pin stays. On KV_DUPLICATE *held is the equal block that was there, with one
 * more pin for the caller, so that it can serve as the next parent; else *held
 * is untouched. Records a stored event. */
enum kv_commit kv_store_commit(struct kv_store *store, uint32_t id,
                               uint32_t parent, uint64_t key,
                               const uint32_t *tokens, uint32_t *held);

/* Give back one pin. The last pin of a private block frees it; a held block
 * without pins stays until it is evicted. A prompt's blocks may be released in
 * any order. O(log n). */
void kv_store_release(struct kv_store *store, uint32_t id);

/* The same of a pin that was no use of the block: its place among those to be
 * evicted stays. */
void kv_store_put_back(struct kv_store *store, uint32_t id);

/* Make the held block `id` the most recently used: it, and so those before it,
 * leave last. No pin. O(log n). */
void kv_store_touch(struct kv_store *store, uint32_t id);

/* Stop holding block `id` and all blocks behind it, pinned or not: its contents
 * turned out to be useless. Pinned blocks become private to the owners of the
 * pins. Records removed events. O(held blocks): for rare cases. */
void kv_store_drop(struct kv_store *store, uint32_t id);

/* Stop holding the block under `key` and those before it, n in all, from the
 * last one on: up to one that is pinned or has held blocks behind it. Records
 * removed events. Returns how many. O(n log n). */
uint32_t kv_store_let_go(struct kv_store *store, uint64_t key, uint32_t n);

/* The memory of block `id`: block_bytes bytes, aligned to KV_BLOCK_ALIGN,
 * stable for the store's life. */
void *kv_store_data(const struct kv_store *store, uint32_t id);

/* The key of the held block `id`; 0 for a block that is not held. */
uint64_t kv_store_key(const struct kv_store *store, uint32_t id);

/* The parent of the held block `id`; KV_BLOCK_NONE for a first block. */
uint32_t kv_store_parent(const struct kv_store *store, uint32_t id);

/* The number of block `id`'s allocation, never 0: no two contents of a store
 * ever have the same number, so (id, number) names a block for good. */
uint64_t kv_store_number(const struct kv_store *store, uint32_t id);

/* The tokens (block_tokens) of the held block `id`. Borrowed until the
 * caller's pin is released. */
const uint32_t *kv_store_tokens(const struct kv_store *store, uint32_t id);

/* True if block `id` is held, that is shared under its key. */
bool kv_store_is_held(const struct kv_store *store, uint32_t id);

/* Take the oldest event that was not taken yet. False when there is none. */
bool kv_store_next_event(struct kv_store *store, struct kv_event *event);

/* True once after events were lost because too many came between two drains,
 * or after kv_store_forget_events: code that mirrors the store needs the whole
 * inventory. Reading resets it. */
bool kv_store_take_resync(struct kv_store *store);

/* Drop all waiting events and ask for a resync. */
void kv_store_forget_events(struct kv_store *store);

/* Walk all held blocks, parents before children. *cursor starts as
 * KV_BLOCK_NONE, or as a held block behind which to begin; no other call may
 * change the store between two steps, apart from pins. Fills
 * `event` as KV_EVENT_STORED and returns true, or false at the end. */
bool kv_store_inventory(const struct kv_store *store, uint32_t *cursor,
                        struct kv_event *event);

/* Begin a walk over all held blocks, parents before children, during which the
 * store may change. There is one walk at a time. */
void kv_store_walk(struct kv_store *store);

/* The next block of the walk, as KV_EVENT_STORED, or false: that was all. A
 * block that is held from the walk's begin to its end comes once; one that
 * comes or goes meanwhile may or may not come. */
bool kv_store_walk_next(struct kv_store *store, struct kv_event *event);

/* Fill `stats`. */
void kv_store_stats(const struct kv_store *store, struct kv_store_stats *stats);

#endif
