/* Finds the blocks of an earlier run: slot headers in the file whose parents
 * are in the file, too. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "workers/disk/tier/internal.h"

/* An undamaged header. on_found() copies its number, order and checksums into
 * the index. */
struct old {
    struct disk_slot header; /* without its checksums */
    uint32_t slot;
};

/* Large arrays; only their first `n` entries are touched. */
struct restoring {
    struct disk_tier *t;
    struct old *old;  /* (slots) */
    uint32_t *tokens; /* (slots, block_tokens) */
    uint32_t *slots;  /* (slots), scratch */
    uint32_t n;       /* headers in `old` */
};

static void on_found(void *arg, uint32_t slot, const struct disk_slot *s)
{
    struct restoring *r = arg;
    const struct disk_geometry *g = &r->t->slab.geometry;
    struct slot_meta *meta = disk_slot_meta(r->t, slot);
    struct old *old = &r->old[r->n];

    *old = (struct old){*s, slot};
    old->header.tokens = r->tokens + (size_t)r->n++ * g->block_tokens;
    memcpy(old->header.tokens, s->tokens, g->block_tokens * sizeof(uint32_t));
    meta->number = s->number;
    meta->order = s->order;
    memcpy(meta->sums, s->sums, g->layers * sizeof(*meta->sums));
    if (s->order >= r->t->next_order)
        r->t->next_order = s->order + 1;
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_order(const void *a, const void *b)
{
    const struct old *x = a;
    const struct old *y = b;
    int c = compare(x->header.order, y->header.order);

    return c ? c : compare(x->slot, y->slot);
}

static int by_key(const void *a, const void *b)
{
    const struct old *x = a;
    const struct old *y = b;
    int c = compare(x->header.key, y->header.key);

    return c ? c : by_order(a, b);
}

/* Keeps the newest header of each key. A block that was evicted and written
 * again may have two; the older one was evicted, so no live block is behind
 * it. */
static void keep_newest(struct restoring *r)
{
    uint32_t kept = 0;

    if (r->n == 0)
        return;
    qsort(r->old, r->n, sizeof(*r->old), by_key);
    for (uint32_t i = 0; i < r->n; i++)
        if (i + 1 == r->n || r->old[i].header.key != r->old[i + 1].header.key)
            r->old[kept++] = r->old[i];
    r->n = kept;
    qsort(r->old, r->n, sizeof(*r->old), by_order);
}

/* Returns whether the parent's slot still has the contents it had at the write
 * of `o`. */
static bool parent_is_there(const struct disk_tier *t, const struct old *o)
{
    uint32_t p = o->header.parent_slot;

    if (p == DISK_SLOT_NONE)
        return true;
    return p < t->slab.slots && kv_store_is_held(t->index, p) &&
           disk_slot_meta(t, p)->number == o->header.parent_number &&
           kv_store_key(t->index, p) == o->header.parent_key;
}

/* Turns each slot whose parent is held into a held block; before, all slots are
 * private. Returns how many blocks are held. */
static uint32_t commit_all(struct restoring *r)
{
    struct disk_tier *t = r->t;
    uint32_t n = 0;
    uint32_t held;

    /* In the order of writing, parents come before their children. */
    for (uint32_t i = 0; i < r->n; i++) {
        const struct old *o = &r->old[i];

        if (!parent_is_there(t, o))
            continue;
        if (kv_store_commit(t->index, o->slot, o->header.parent_slot,
                            o->header.key, o->header.tokens,
                            &held) != KV_COMMITTED)
            continue; /* cannot happen: all keys differ */
        n++;
    }
    return n;
}

/* Releases the pins, oldest write first, which makes this the LRU order. */
static void release_all(struct restoring *r)
{
    struct kv_store *index = r->t->index;

    for (uint32_t i = 0; i < r->n; i++)
        if (kv_store_is_held(index, r->old[i].slot))
            kv_store_release(index, r->old[i].slot);
    for (uint32_t slot = r->t->slab.slots; slot-- > 0;)
        if (!kv_store_is_held(index, slot))
            kv_store_release(index, slot);
}

static int restore(struct restoring *r)
{
    struct disk_tier *t = r->t;

    if (!r->old || !r->tokens || !r->slots ||
        kv_store_alloc(t->index, t->slab.slots, r->slots) < 0)
        return -ENOMEM;
    int64_t damaged = disk_slab_scan(&t->slab, on_found, r);
    if (damaged < 0)
        return -ENOMEM;
    uint32_t found = r->n;
    keep_newest(r);
    uint32_t held = commit_all(r);
    release_all(r);
    if (damaged > 0)
        log_warn("%s: the headers of %lld blocks are damaged: they count as "
                 "empty",
                 t->path, (long long)damaged);
    if (found > 0)
        log_info("%s: %u blocks found again; %u outdated or parentless blocks "
                 "are dropped",
                 t->path, held, found - held);
    return 0;
}

int disk_tier_restore(struct disk_tier *t)
{
    uint32_t n = t->slab.slots;
    struct restoring r = {
        .t = t,
        .old = calloc(n, sizeof(*r.old)),
        .tokens = calloc(n, t->slab.geometry.block_tokens * sizeof(*r.tokens)),
        .slots = calloc(n, sizeof(*r.slots)),
    };

    t->next_order = 1;
    int rc = restore(&r);
    free(r.old);
    free(r.tokens);
    free(r.slots);
    /* Code that mirrors the tier starts from the inventory. */
    kv_store_forget_events(t->index);
    kv_store_take_resync(t->index);
    return rc;
}
