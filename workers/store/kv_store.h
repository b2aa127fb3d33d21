/* The KV store: the KV blocks of one worker in host memory.
 *
 * One preallocated slab of capacity_blocks blocks; no allocation after _new.
 * A block is free, private (one request computes into it or receives into it)
 * or held (shared: complete, never written again, found by its key).
 *
 * Wrong KV is impossible, a key collision is only a miss: a held block
 * remembers its tokens and which block is its parent, and is matched only if
 * its tokens compare equal and its parent is the very block that matched
 * before it. By induction the whole prefix was compared.
 *
 * Blocks leave by LRU, leaf first: never while pinned, never before their
 * held children.
 *
 * Used by one thread. The memory of a block may be read on any thread by
 * whoever has a pin on it, and written by whoever owns it as private.
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

/* Whose memory the blocks lie in, and who else keeps something of them. */
struct kv_store_memory {
    /* Memory for the slab, aligned to KV_BLOCK_ALIGN at least; NULL: none. */
    void *(*alloc)(void *arg, size_t bytes);
    void (*free)(void *arg, void *memory);
    /* The block at `data` was taken for new contents: nothing that is known of
     * the old ones holds. May be NULL. */
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
int kv_store_new(const struct kv_store_config *config, struct kv_store **out)
    __attribute__((warn_unused_result));

/* Free the store and its slab. NULL is a no-op. */
void kv_store_free(struct kv_store *store);

/* Find the leading run of `n_blocks` blocks that is held: `keys` (n_blocks)
 * and `tokens` (n_blocks, block_tokens) describe the prompt, both borrowed.
 * Writes the ids to `ids` (n_blocks), each with one more pin for the caller,
 * and returns how many matched. O(run). */
uint32_t kv_store_match(struct kv_store *store, const uint64_t *keys,
                        const uint32_t *tokens, uint32_t n_blocks,
                        uint32_t *ids);

/* How many blocks kv_store_match would match; no pins. O(run). */
uint32_t kv_store_count(const struct kv_store *store, const uint64_t *keys,
                        const uint32_t *tokens, uint32_t n_blocks);

/* As kv_store_match, by keys alone, for somebody else's prompt: he must compare
 * the tokens of every block before he uses it. */
uint32_t kv_store_match_keys(struct kv_store *store, const uint64_t *keys,
                             uint32_t n_blocks, uint32_t *ids);

/* The held block of these `tokens` (block_tokens, borrowed) under `key` behind
 * the very block `parent` (KV_BLOCK_NONE: a first block), or KV_BLOCK_NONE. No
 * pin. */
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
int kv_store_alloc(struct kv_store *store, uint32_t n, uint32_t *ids)
    __attribute__((warn_unused_result));

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
 * without pins stays until it is evicted. Releasing a prompt's blocks from the
 * last to the first or the other way makes no difference. O(log n). */
void kv_store_release(struct kv_store *store, uint32_t id);

/* Hold block `id`, which is held, and all that is behind it no more, pinned or
 * not: its contents turned out to be of no use. Blocks that are pinned become
 * private to those who have the pins. Records removed events. O(held blocks):
 * for rare cases. */
void kv_store_drop(struct kv_store *store, uint32_t id);

/* The memory of block `id`: block_bytes bytes, aligned to KV_BLOCK_ALIGN,
 * stable for the store's life. */
void *kv_store_data(const struct kv_store *store, uint32_t id);

/* The key of the held block `id`; 0 for a block that is not held. */
uint64_t kv_store_key(const struct kv_store *store, uint32_t id);

/* The parent of the held block `id`; KV_BLOCK_NONE for a first block. */
uint32_t kv_store_parent(const struct kv_store *store, uint32_t id);

/* The number of block `id`'s allocation, never 0: no two contents of a store
 * ever have the same one, so (id, number) names a block for good. */
uint64_t kv_store_number(const struct kv_store *store, uint32_t id);

/* The tokens (block_tokens) of the held block `id`. Borrowed until the
 * caller's pin is released. */
const uint32_t *kv_store_tokens(const struct kv_store *store, uint32_t id);

/* True if block `id` is held, that is shared under its key. */
bool kv_store_is_held(const struct kv_store *store, uint32_t id);

/* Take the oldest event that was not taken yet. False when there is none. */
bool kv_store_next_event(struct kv_store *store, struct kv_event *event);

/* True once after events were lost because too many came between two drains,
 * or after kv_store_forget_events: whoever mirrors the store needs the whole
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

/* Fill `stats`. */
void kv_store_stats(const struct kv_store *store, struct kv_store_stats *stats);

/* Assert every invariant of the store. O(capacity); for tests. */
void kv_store_check(const struct kv_store *store);

#endif
