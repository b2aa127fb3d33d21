/*
 * Frames about blocks: stored, removed, inventories. A turn of the loop takes
 * TURN_BLOCKS from all workers together. Then workers wait in a line and are
 * served in parts, so that none delays another, or the loop.
 *
 * Invariant: a worker is in the line exactly while its link is paused by
 * FRAME_AGAIN; then blocks.next is pending.
 */
#include <errno.h>

#include "base/loop/loop.h"
#include "conductor/service/internal.h"

/* Most blocks per call of the index, and most of one worker before the next
 * worker's turn. */
#define PART_BLOCKS 256u
/* The blocks of a turn take about 100 us. Searching a full index for room
 * counts as blocks, too. */
#define TURN_BLOCKS 1024u
/* The fixed cost of a frame, in blocks. */
#define FRAME_BLOCKS 4u

static bool may_take(const struct service *s, const struct worker *w)
{
    if (s->native.blocks.left == 0)
        return false;
    return s->native.blocks.served == w ? s->native.blocks.part > 0
                                        : TAILQ_EMPTY(&s->native.blocks.line);
}

static int wait_in_line(struct service *s, struct worker *w)
{
    if (!w->waits)
        TAILQ_INSERT_TAIL(&s->native.blocks.line, w, line);
    w->waits = true;
    return FRAME_AGAIN;
}

static void spend(struct service *s, uint64_t blocks)
{
    s->native.blocks.left -= blocks < s->native.blocks.left
                                 ? (uint32_t)blocks
                                 : s->native.blocks.left;
    s->native.blocks.part -= blocks < s->native.blocks.part
                                 ? (uint32_t)blocks
                                 : s->native.blocks.part;
    if (!loop_timer_pending(&s->native.blocks.next))
        loop_timer_start(&s->native.blocks.next, 0);
}

/* Refills the budget at the next turn, and serves the line first. */
static void on_next(void *arg)
{
    struct service *s = arg;
    struct worker *w;

    s->native.blocks.left = TURN_BLOCKS;
    while (s->native.blocks.left > 0 &&
           (w = TAILQ_FIRST(&s->native.blocks.line))) {
        TAILQ_REMOVE(&s->native.blocks.line, w, line);
        w->waits = false;
        s->native.blocks.served = w;
        s->native.blocks.part = PART_BLOCKS;
        worker_link_resume(w->link);
        s->native.blocks.served = NULL;
    }
}

void blocks_init(struct service *s)
{
    TAILQ_INIT(&s->native.blocks.line);
    s->native.blocks.left = TURN_BLOCKS;
    loop_timer_init(s->loop, &s->native.blocks.next, on_next, s);
}

void blocks_fini(struct service *s)
{
    loop_timer_stop(&s->native.blocks.next);
}

void blocks_left(struct service *s, struct worker *w)
{
    if (w->waits)
        TAILQ_REMOVE(&s->native.blocks.line, w, line);
    w->waits = false;
}

/* The keys of a frame of stored or removed blocks. */
struct report {
    enum block_tier tier;
    uint64_t parent; /* of the first key, if stored */
    const uint8_t *in_frame;
    uint32_t n;
    bool stored;
};

/* Passes the next part of a frame to the index. Returns 0 or -EPROTO. */
static int take_part(struct service *s, struct worker *w, uint32_t slot,
                     const struct report *r)
{
    uint64_t keys[PART_BLOCKS], room = prefix_index_room_cost(s->index);
    uint32_t from = w->keys_taken, n = r->n - from;
    int rc;

    if (n > PART_BLOCKS)
        n = PART_BLOCKS;
    for (uint32_t i = 0; i < n; i++)
        keys[i] = wire_u64_at(r->in_frame, from + i);
    if (r->stored) {
        uint64_t parent =
            from > 0 ? wire_u64_at(r->in_frame, from - 1) : r->parent;

        rc = prefix_index_stored(s->index, slot, r->tier, parent, keys, n);
        s->metrics.block_events_stored += n;
    } else {
        rc = prefix_index_removed(s->index, slot, r->tier, keys, n);
        s->metrics.block_events_removed += n;
    }
    w->keys_taken += n;
    spend(s, n + prefix_index_room_cost(s->index) - room +
                 (from == 0 ? FRAME_BLOCKS : 0));
    return rc == -EINVAL ? -EPROTO : 0;
}

static int take_report(struct service *s, struct worker *w, uint32_t slot,
                       const struct report *r)
{
    int rc;

    do {
        if (!may_take(s, w))
            return wait_in_line(s, w);
        rc = take_part(s, w, slot, r);
    } while (rc == 0 && w->keys_taken < r->n);
    w->keys_taken = 0;
    return rc;
}

/* Maps blocks of the shared store to the store's own slot and tier in the
 * index. Returns false if the worker uses another store than the index has;
 * ignore its blocks. */
static bool is_for(const struct service *s, const struct worker *w,
                   uint8_t *tier, uint32_t *slot)
{
    if (*tier != PROTO_TIER_SHARED)
        return true;
    *tier = PROTO_TIER_HOST;
    *slot = service_store_slot(s);
    return shared_is_same(s, w);
}

static int on_stored(struct service *s, struct worker *w, uint32_t slot,
                     const uint8_t *p, size_t len)
{
    struct msg_blocks_stored m;

    if (msg_blocks_stored_unpack(p, len, &m))
        return -EBADMSG;
    if (!is_for(s, w, &m.tier, &slot))
        return 0;
    return take_report(s, w, slot,
                       &(struct report){.tier = (enum block_tier)m.tier,
                                        .parent = m.parent,
                                        .in_frame = m.keys,
                                        .n = m.n,
                                        .stored = true});
}

static int on_removed(struct service *s, struct worker *w, uint32_t slot,
                      const uint8_t *p, size_t len)
{
    struct msg_blocks_removed m;

    if (msg_blocks_removed_unpack(p, len, &m))
        return -EBADMSG;
    if (!is_for(s, w, &m.tier, &slot))
        return 0;
    return take_report(s, w, slot,
                       &(struct report){.tier = (enum block_tier)m.tier,
                                        .in_frame = m.keys,
                                        .n = m.n});
}

int blocks_frame(struct service *s, struct worker *w, uint32_t slot,
                 const struct frame_header *h, const uint8_t *payload)
{
    if (h->type == FRAME_BLOCKS_STORED)
        return on_stored(s, w, slot, payload, h->length);
    if (h->type == FRAME_BLOCKS_REMOVED)
        return on_removed(s, w, slot, payload, h->length);
    if (!may_take(s, w))
        return wait_in_line(s, w);
    spend(s, FRAME_BLOCKS);
    if (h->type == FRAME_INVENTORY_MARK)
        return index_inventory_mark(s, w, slot, payload, h->length);
    prefix_index_cleared(s->index, slot);
    return h->length ? -EBADMSG : 0;
}
