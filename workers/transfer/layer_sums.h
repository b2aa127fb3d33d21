/* The checksums of held blocks, layer by layer: made once, as errands, when a
 * block is held, and known from whoever sent it if it was fetched. A block that
 * is being summed is pinned; at most an eighth of the store is, ahead of
 * demand.
 *
 * All on the loop's thread.
 */
#ifndef WORKERS_TRANSFER_LAYER_SUMS_H
#define WORKERS_TRANSFER_LAYER_SUMS_H

#include <stdint.h>

#include "workers/engine/engine.h"
#include "workers/store/kv_store.h"

struct errands;
struct layer_sums;

/* Make it. All pointers are borrowed. ready(arg): sums of a block were made,
 * and the pin for them is gone. Returns it owned, or NULL. */
[[nodiscard]] struct layer_sums *
layer_sums_new(struct errands *errands, struct kv_store *store,
               const struct engine_kv_layout *layout, void (*ready)(void *arg),
               void *arg);

/* Free it; the errands must be gone. NULL is a no-op. */
void layer_sums_free(struct layer_sums *s);

/* Block `id` is held: make its sums when there is time. */
void layer_sums_held(struct layer_sums *s, uint32_t id);

/* Those of block `id`, if they are made (layers), or NULL. */
const uint64_t *layer_sums_known(const struct layer_sums *s, uint32_t id);

/* They are needed now: those of block `id`, on which the caller has a pin
 * (layers); NULL: ready() comes when they are made. */
const uint64_t *layer_sums_want(struct layer_sums *s, uint32_t id);

/* The bytes of a layer of block `id`, whole and verified, have this sum. */
void layer_sums_know(struct layer_sums *s, uint32_t id, uint32_t layer,
                     uint64_t sum);

#endif
