/* Prefills that wait for others to compute shared blocks, and protection of the
 * blocks that they count on; core/step/follow.h has the rule. */
#include "conductor/core/step/follow.h"

#include "workers/step/internal.h"

/* Returns the blocks that `r` counts on, without the blocks of its load. */
static struct follow_prompt counted(const struct batch *b, struct request *r)
{
    uint32_t n = r->prompt.n_reusable;

    if (r->load.job && r->load.from_block < n)
        n = r->load.from_block;
    return (struct follow_prompt){
        .keys = r->prompt.keys,
        .n = n,
        .n_there =
            request_look(r, b->config.store, b->config.layout->block_tokens)};
}

/* Returns the blocks of a waiting `r`; the first n_there are held. */
static struct follow_prompt made(const struct request *r, uint32_t n_there)
{
    struct follow_prompt p = {r->prompt.keys, r->prompt.n_full, n_there, 0};
    uint32_t from = n_there;

    if (!r->load.job)
        return p;
    if (from < r->load.from_block)
        from = r->load.from_block;
    if (r->prompt.n_reusable > from)
        p.n_loaded = r->prompt.n_reusable - from;
    return p;
}

/* Returns whether the prefill that `r` follows will compute or load the next
 * block that `r` lacks. */
static bool still_makes(const struct batch *b, struct request *r)
{
    struct follow_prompt own = counted(b, r);
    struct follow_prompt makes = made(r->turn.follows, own.n_there);

    return follow_makes(&makes, &own);
}

/* Sets r->turn.follows to the oldest waiting prefill before `r` that makes the
 * next block that `r` lacks, or NULL. */
static void find(const struct batch *b, struct request *r)
{
    struct follow_prompt own = counted(b, r);
    struct request *other;

    r->turn.follows = NULL;
    r->turn.looks = false;
    if (own.n_there >= own.n)
        return;
    TAILQ_FOREACH(other, &b->waiting, link)
    {
        struct follow_prompt makes = made(other, own.n_there);

        if (other == r)
            return;
        if (!follow_makes(&makes, &own))
            continue;
        r->turn.follows = other;
        r->turn.shared_us =
            follow_shared_us(&makes, batch_item(other).cost_us, &own);
        return;
    }
}

bool batch_follows(struct batch *b, struct request *r)
{
    struct queue_item item, other;

    if (!b->order->rank)
        return false;
    if (r->turn.looks || (r->turn.follows && !still_makes(b, r)))
        find(b, r);
    if (!r->turn.follows)
        return false;
    item = batch_item(r);
    other = batch_item(r->turn.follows);
    return follow_waits(b->order, &other, &item, r->turn.shared_us);
}

void batch_follow_left(struct batch *b, const struct request *gone)
{
    struct request *r;

    TAILQ_FOREACH(r, &b->waiting, link)
    {
        if (r->turn.follows != gone)
            continue;
        r->turn.follows = NULL;
        r->turn.looks = true;
    }
}

void batch_keep(struct batch *b, uint32_t n_needed)
{
    struct kv_store *store = b->config.store;
    struct kv_store_stats stats;
    struct request *r, *last = NULL;
    uint32_t left;

    kv_store_stats(store, &stats);
    if (!b->order->rank || stats.free_blocks >= n_needed)
        return;
    left = stats.capacity_blocks;
    TAILQ_FOREACH(r, &b->waiting, link)
    {
        uint32_t n = request_look(r, store, b->config.layout->block_tokens);

        if (n > left)
            break;
        left -= n;
        last = r;
    }
    for (; last; last = TAILQ_PREV(last, request_list, link))
        if (last->there.n > 0)
            kv_store_touch(store, last->there.tip);
}
