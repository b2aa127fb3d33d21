/* Which prefill starts next, and who gets blocks. */
#include <errno.h>

#include "workers/step/internal.h"

static uint64_t room(const struct batch *b)
{
    struct kv_store_stats stats;

    kv_store_stats(b->config.store, &stats);
    return (uint64_t)stats.free_blocks + stats.evictable_blocks;
}

/* Blocks that those need who wait in front of `r` and have none. loads: only
 * those count who want to load them, and can't take them when their turn has
 * come if others were faster. */
static uint64_t older_need(const struct batch *b, const struct request *r,
                           bool loads)
{
    const struct request *older;
    uint64_t need = 0;

    TAILQ_FOREACH(older, &b->waiting, link)
    {
        if (older == r)
            break;
        if (older->blocks.n == 0 && (!loads || older->load.job))
            need += older->blocks.n_needed;
    }
    return need;
}

int batch_take_ahead(struct batch *b, struct request *r)
{
    if (older_need(b, r, false) + r->blocks.n_needed > room(b))
        return -ENOSPC;
    return request_take(r, b->config.store, b->config.layout->block_tokens);
}

/* The waiting request to serve next, or NULL. loading: those count too that
 * are loading; only_taken: only those that have their blocks. */
static struct request *pick_next(struct batch *b, bool loading, bool only_taken,
                                 int64_t now_us)
{
    struct request *r;
    uint32_t n = 0;

    TAILQ_FOREACH(r, &b->waiting, link)
    {
        if ((batch_is_loading(r) && !loading) ||
            (r->blocks.n == 0 && only_taken))
            continue;
        b->items[n] = (struct queue_item){
            .arrival_seq = r->turn.seq,
            .ready_at_us = r->load.held_back ? QUEUE_NOT_READY : 0,
            .cost_us = r->prompt.n_tokens,
            .has_cached_prefix = batch_is_loading(r),
        };
        b->items_of[n++] = r;
    }
    int i = n ? queue_pick(b->order, b->items, n, now_us) : -1;
    return i < 0 ? NULL : b->items_of[i];
}

/* False: no room for all of its blocks. */
static bool take_blocks(struct batch *b, struct request *r)
{
    if (r->blocks.n > 0)
        return true;
    uint64_t need = older_need(b, r, true);
    if (need > 0 && need + r->blocks.n_needed > room(b))
        return false;
    return request_take(r, b->config.store, b->config.layout->block_tokens) ==
           0;
}

static uint32_t prefills_at_work(const struct batch *b)
{
    const struct request *r;
    uint32_t n = 0;

    TAILQ_FOREACH(r, &b->prefills, link)
    {
        n += !batch_is_loading(r);
    }
    return n;
}

/* The next waiting request that can have its blocks, or NULL. One that took
 * them ahead of its turn needs nothing more, and will give them back. */
static struct request *next_with_blocks(struct batch *b, bool loading,
                                        int64_t now_us)
{
    struct request *r = pick_next(b, loading, false, now_us);

    if (r && !take_blocks(b, r))
        r = pick_next(b, loading, true, now_us);
    if (r && r->blocks.n == 0)
        return NULL;
    return r;
}

/* There is room in the step, and nobody wants it but those whose load is not
 * ready. */
static void note_turns(struct batch *b, int64_t now_us)
{
    struct request *r;

    TAILQ_FOREACH(r, &b->waiting, link)
    {
        if (r->load.held_back && r->blocks.n > 0 && r->turn.came_us == 0)
            r->turn.came_us = now_us;
    }
}

struct request *batch_start_next(struct batch *b, bool loading, int64_t now_us)
{
    if (b->n_segments >= b->max_segments ||
        prefills_at_work(b) >= b->config.max_prefills)
        return NULL;
    struct request *r = next_with_blocks(b, loading, now_us);
    if (!r) {
        if (loading)
            note_turns(b, now_us);
        return NULL;
    }
    if (!r->step.gated)
        request_adopt(r, b->config.store, b->config.layout->block_tokens);
    batch_unlink(b, r);
    request_set_state(r, REQUEST_PREFILL);
    r->turn.started_us = now_us;
    TAILQ_INSERT_TAIL(&b->prefills, r, link);
    b->n.prefills++;
    b->ops->started(b->arg, r);
    return r;
}
