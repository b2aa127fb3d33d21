/* What of the store in memory goes to the shared store: blocks in the order in
 * which they came, each behind those in front of it, so that at most a part of
 * memory holds what the shared store does not. That part is the newest: what is
 * evicted has been put, unless it leaves faster than the store takes blocks. */
#ifndef WORKERS_SHARED_KEEPER_H
#define WORKERS_SHARED_KEEPER_H

#include "workers/shared/tier.h"
#include "workers/store/kv_store.h"

struct shared_keeper;

/* Make one between `store` and `tier`, both borrowed: at most most_unput blocks
 * of memory are not there, if that can be. released(arg) is called after pins
 * were given back. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct shared_keeper *
shared_keeper_new(struct kv_store *store, struct shared_tier *tier,
                  uint32_t most_unput, void (*released)(void *arg), void *arg);

/* Free it, after the tier, whose jobs refer to it. NULL is a no-op. */
void shared_keeper_free(struct shared_keeper *k);

/* Put what is due. */
void shared_keeper_poke(struct shared_keeper *k);

/* The same, and look what has left memory; some times a second. O(blocks). */
void shared_keeper_tick(struct shared_keeper *k);

/* Other contents: nothing is known to be there. */
void shared_keeper_forget(struct shared_keeper *k);

#endif
