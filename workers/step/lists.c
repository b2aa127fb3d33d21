/* The lists of requests; which waiting prefills get blocks. */
#include <errno.h>

#include "base/array.h"
#include "workers/step/internal.h"

static uint64_t room(const struct batch *b)
{
    struct kv_store_stats stats;

    kv_store_stats(b->config.store, &stats);
    return (uint64_t)stats.free_blocks + stats.evictable_blocks;
}

/* Returns how many blocks the older waiting requests without blocks need. If
 * `loads`, counts only requests with a load: others that pass them while they
 * wait for it must leave them room. */
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

void batch_unlink(struct batch *b, struct request *r)
{
    switch (r->state) {
    case REQUEST_WAITING:
        TAILQ_REMOVE(&b->waiting, r, link);
        b->n.waiting--;
        batch_follow_left(b, r);
        break;
    case REQUEST_PREFILL:
        TAILQ_REMOVE(&b->prefills, r, link);
        b->n.prefills--;
        break;
    case REQUEST_READY:
        TAILQ_REMOVE(&b->ready, r, link);
        b->n.ready--;
        break;
    case REQUEST_DECODE:
        TAILQ_REMOVE(&b->decodes, r, link);
        b->n.decodes--;
        break;
    case REQUEST_PUSHING:
    case REQUEST_ANNOUNCED:
    case REQUEST_KV_WAIT:
    case REQUEST_RECEIVING:
    case REQUEST_ENDED:
        break; /* in no list of the batch */
    }
}

int batch_take_ahead(struct batch *b, struct request *r)
{
    if (older_need(b, r, false) + r->blocks.n_needed > room(b))
        return -ENOSPC;
    batch_keep(b, r->blocks.n_needed);
    return request_take(r, b->config.store, b->config.layout->block_tokens);
}

/* Returns whether a prefill under way will compute a block that `r` can use. */
static bool waits_for_begun(const struct batch *b, const struct request *r)
{
    uint32_t bt = b->config.layout->block_tokens;
    const struct request *begun;

    if (!b->order->rank || r->load.job)
        return false;
    TAILQ_FOREACH(begun, &b->prefills, link)
    {
        if (yield_computes_for(begun->prompt.keys, begun->prompt.n_full,
                               begun->position / bt, r->prompt.keys,
                               r->prompt.n_reusable))
            return true;
    }
    return false;
}

uint32_t batch_list_waiting(struct batch *b, bool only_taken)
{
    struct request *r;
    uint32_t n = 0;

    TAILQ_FOREACH(r, &b->waiting, link)
    {
        if (r->blocks.n == 0 && only_taken)
            continue;
        b->items[n] = batch_item(r);
        /* only_taken: do not wait for turn.follows; it may lack blocks. */
        if ((!only_taken && batch_follows(b, r)) || waits_for_begun(b, r))
            b->items[n].ready_at_us = QUEUE_NOT_READY;
        b->items_of[n++] = r;
    }
    return n;
}

struct step_prefill batch_active(const struct request *r, int64_t now_us)
{
    const struct request_turn *t = &r->turn;
    struct queue_item item = batch_item(r);

    return (struct step_prefill){
        .held_back = r->load.held_back || r->group,
        .loading = batch_is_loading(r),
        .item = item,
        .begun = yield_begun(
            item.cost_us, now_us - t->started_us, t->stood_us, t->computed,
            batch_is_loading(r) ? 0 : r->prompt.n_tokens - r->position),
    };
}

int64_t batch_left_us(const struct batch *b, int64_t now_us)
{
    const struct request *r;
    int64_t us = 0;

    TAILQ_FOREACH(r, &b->waiting, link)
    {
        us += batch_item(r).cost_us;
    }
    TAILQ_FOREACH(r, &b->prefills, link)
    {
        us += batch_active(r, now_us).begun.left_us;
    }
    return us;
}

void batch_list_active(struct batch *b, int64_t now_us)
{
    struct request *r;

    b->n_active = 0;
    TAILQ_FOREACH(r, &b->prefills, link)
    {
        b->active[b->n_active] = batch_active(r, now_us);
        b->active_of[b->n_active++] = r;
    }
}

int batch_reserve(struct batch *b)
{
    uint32_t n = b->n.prefills + b->n.waiting;
    size_t capacity = b->active_capacity; /* of both arrays */
    int rc = array_reserve(b->active, capacity, n);

    if (rc == 0)
        rc = array_reserve(b->active_of, b->active_capacity, n);
    return rc == 0 ? array_reserve(b->items, b->items_capacity, n) : rc;
}

bool batch_take_blocks(struct batch *b, struct request *r)
{
    if (r->blocks.n > 0)
        return true;
    uint64_t need = older_need(b, r, true);
    if (need > 0 && need + r->blocks.n_needed > room(b))
        return false;
    batch_keep(b, r->blocks.n_needed);
    return request_take(r, b->config.store, b->config.layout->block_tokens) ==
           0;
}

void batch_note_standing(struct batch *b, int64_t now_us)
{
    struct request *r;

    TAILQ_FOREACH(r, &b->prefills, link)
    {
        if (!r->step.under_way && !r->group)
            r->turn.stands_since_us = now_us;
    }
}

void batch_note_stood(struct batch *b, int64_t now_us)
{
    struct request *r;

    TAILQ_FOREACH(r, &b->prefills, link)
    {
        if (r->turn.stands_since_us > 0)
            r->turn.stood_us += now_us - r->turn.stands_since_us;
        r->turn.stands_since_us = 0;
    }
}

void batch_note_turns(struct batch *b, int64_t now_us)
{
    struct request *r;

    TAILQ_FOREACH(r, &b->waiting, link)
    {
        if (r->load.held_back && r->blocks.n > 0 && r->turn.came_us == 0)
            r->turn.came_us = now_us;
    }
}
