/* Puts blocks of the KV store into the shared store, oldest first and parents
 * before children, until at most most_unput blocks, the newest, are only in
 * memory. So an evicted block has been put, unless eviction outruns the shared
 * store. */
#ifndef WORKERS_SHARED_KEEPER_H
#define WORKERS_SHARED_KEEPER_H

#include "workers/shared/tier.h"
#include "workers/store/kv_store.h"

struct shared_keeper;

/* Makes a keeper between `store` and `tier`, both borrowed. most_unput: target
 * for blocks that are only in memory. released(arg) is called after it released
 * pins. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct shared_keeper *
shared_keeper_new(struct kv_store *store, struct shared_tier *tier,
                  uint32_t most_unput, void (*released)(void *arg), void *arg);

/* Frees it; free the tier first, whose jobs refer to it. NULL is a no-op. */
void shared_keeper_free(struct shared_keeper *k);

/* Puts the blocks that are due. */
void shared_keeper_poke(struct shared_keeper *k);

/* As shared_keeper_poke(), after counting the put blocks that are still in
 * memory; call it several times a second. O(blocks). */
void shared_keeper_tick(struct shared_keeper *k);

/* Handles new contents of the store: forgets which blocks were put. */
void shared_keeper_forget(struct shared_keeper *k);

#endif
