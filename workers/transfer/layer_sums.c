/* The checksums of each block, and the errands that compute them. */
#include "workers/transfer/layer_sums.h"

#include <stdlib.h>

#include "workers/transfer/engine/sum.h"
#include "workers/transfer/errands.h"

/* At most 1 / PINNED_SHARE of the store is pinned for checksums before a peer
 * asks.
 */
#define PINNED_SHARE 8u

/* The state of a block's sums. */
struct entry {
    struct errand errand; /* must be first; in use while `queued` */
    struct layer_sums *all;
    uint64_t number;  /* kv_store_number() of the summed contents */
    uint32_t n_known; /* leading layers whose checksums are known */
    bool queued;
};

struct layer_sums {
    struct kv_store *store;
    const struct engine_kv_layout *layout;
    struct errands *errands;
    void (*ready)(void *arg);
    void *arg;
    uint32_t n_blocks;
    uint32_t n_queued;
    struct entry *entries; /* (n_blocks) */
    uint64_t *sums;        /* (n_blocks, layers) */
};

static uint32_t id_of(const struct entry *e)
{
    return (uint32_t)(e - e->all->entries);
}

static uint64_t *sums_of(const struct layer_sums *s, uint32_t id)
{
    return s->sums + (size_t)id * s->layout->layers;
}

static struct entry *entry_of(struct errand *errand)
{
    return (struct entry *)(void *)errand; /* its first member */
}

static void run(struct errand *errand)
{
    struct entry *e = entry_of(errand);
    const struct layer_sums *s = e->all;
    size_t bytes = s->layout->block_bytes / s->layout->layers;
    const char *data = kv_store_data(s->store, id_of(e));
    uint64_t *sums = sums_of(s, id_of(e));

    for (uint32_t i = 0; i < s->layout->layers; i++)
        sums[i] = sum_of(data + i * bytes, bytes);
}

static void done(struct errand *errand)
{
    struct entry *e = entry_of(errand);
    struct layer_sums *s = e->all;

    e->number = kv_store_number(s->store, id_of(e));
    e->n_known = s->layout->layers;
    e->queued = false;
    s->n_queued--;
    kv_store_release(s->store, id_of(e));
    s->ready(s->arg);
}

struct layer_sums *layer_sums_new(struct errands *errands,
                                  struct kv_store *store,
                                  const struct engine_kv_layout *layout,
                                  void (*ready)(void *arg), void *arg)
{
    struct layer_sums *s = calloc(1, sizeof(*s));
    struct kv_store_stats stats;

    if (!s)
        return NULL;
    kv_store_stats(store, &stats);
    s->errands = errands;
    s->store = store;
    s->layout = layout;
    s->ready = ready;
    s->arg = arg;
    s->n_blocks = stats.capacity_blocks;
    s->entries = calloc(s->n_blocks, sizeof(*s->entries));
    s->sums = calloc((size_t)s->n_blocks * layout->layers, sizeof(*s->sums));
    if (!s->entries || !s->sums) {
        layer_sums_free(s);
        return NULL;
    }
    for (uint32_t id = 0; id < s->n_blocks; id++) {
        s->entries[id].all = s;
        s->entries[id].errand.run = run;
        s->entries[id].errand.done = done;
    }
    return s;
}

void layer_sums_free(struct layer_sums *s)
{
    if (!s)
        return;
    free(s->entries);
    free(s->sums);
    free(s);
}

const uint64_t *layer_sums_known(const struct layer_sums *s, uint32_t id)
{
    const struct entry *e = &s->entries[id];

    return !e->queued && e->number == kv_store_number(s->store, id) &&
                   e->n_known == s->layout->layers
               ? sums_of(s, id)
               : NULL;
}

static void queue(struct layer_sums *s, uint32_t id, bool urgent)
{
    struct entry *e = &s->entries[id];

    kv_store_pin(s->store, id);
    e->queued = true;
    s->n_queued++;
    errands_add(s->errands, &e->errand, urgent);
}

void layer_sums_held(struct layer_sums *s, uint32_t id)
{
    if (!s->entries[id].queued && !layer_sums_known(s, id) &&
        s->n_queued < s->n_blocks / PINNED_SHARE)
        queue(s, id, false);
}

const uint64_t *layer_sums_want(struct layer_sums *s, uint32_t id)
{
    const uint64_t *sums = layer_sums_known(s, id);

    if (!sums && !s->entries[id].queued)
        queue(s, id, true);
    return sums;
}

void layer_sums_know(struct layer_sums *s, uint32_t id, uint32_t layer,
                     uint64_t sum)
{
    struct entry *e = &s->entries[id];
    uint64_t number = kv_store_number(s->store, id);

    if (e->queued)
        return;
    if (e->number != number) {
        e->number = number;
        e->n_known = 0;
    }
    if (layer != e->n_known)
        return;
    sums_of(s, id)[layer] = sum;
    e->n_known++;
}
