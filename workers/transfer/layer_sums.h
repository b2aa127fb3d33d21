/* The checksums of each layer of held blocks. They are made once, by errands,
 * when a block is held; a fetched block keeps the checksums it was verified
 * with. A block is pinned while it is summed; at most an eighth of the store is
 * summed before a peer asks.
 *
 * Used on the loop's thread only. */
#ifndef WORKERS_TRANSFER_LAYER_SUMS_H
#define WORKERS_TRANSFER_LAYER_SUMS_H

#include <stdint.h>

#include "workers/engine/engine.h"
#include "workers/store/kv_store.h"

struct errands;
struct layer_sums;

/* Makes a table; borrows all pointers. Calls ready(arg) when the checksums of a
 * block are made and its pin is released. Returns it owned, or NULL. */
[[nodiscard]] struct layer_sums *
layer_sums_new(struct errands *errands, struct kv_store *store,
               const struct engine_kv_layout *layout, void (*ready)(void *arg),
               void *arg);

/* Frees it, after errands_free(). NULL is a no-op. */
void layer_sums_free(struct layer_sums *s);

/* Queues the checksums of block `id`, which is now held, unless too many wait.
 */
void layer_sums_held(struct layer_sums *s, uint32_t id);

/* Returns the sums (layers) of block `id`, borrowed, or NULL: not made yet. */
const uint64_t *layer_sums_known(const struct layer_sums *s, uint32_t id);

/* Returns the sums (layers) of block `id`, on which the caller has a pin, or
 * NULL: they are made next, and then ready() is called. */
const uint64_t *layer_sums_want(struct layer_sums *s, uint32_t id);

/* Notes the sum of a layer of block `id` that was loaded and verified. */
void layer_sums_know(struct layer_sums *s, uint32_t id, uint32_t layer,
                     uint64_t sum);

#endif
