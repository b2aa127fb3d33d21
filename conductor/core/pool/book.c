/*
 * Bookings of links and tiers by prefills, and how they are given back.
 *
 * Each channel (a direction of an instance's link, or one of its tiers) has a
 * list of the bookings that prefills own, oldest first. A booking begins when
 * the channel becomes free; once it is given back, the bookings behind it begin
 * sooner by its length.
 *
 * Invariants (tests/unit/pool_check.c asserts them):
 *   from_us < until_us <= from_us of the next one, until_us <= free time;
 *   the nodes in use are those of waiting and running prefills.
 *
 * Pushes of KV are not in these lists, since the begin of each depends on its
 * prefill. Sender and receiver only have the sums over the decodes' pushes.
 */
#include <errno.h>
#include <stdlib.h>

#include "conductor/core/pool/internal.h"

int bookings_init(struct bookings *b, uint32_t n_nodes)
{
    b->nodes = calloc(n_nodes, sizeof(*b->nodes));
    b->n_nodes = n_nodes;
    b->free_head = BOOKING_NONE;
    return b->nodes ? 0 : -ENOMEM;
}

void bookings_fini(struct bookings *b)
{
    free(b->nodes);
}

static uint32_t take_node(struct bookings *b)
{
    uint32_t at = b->free_head;

    if (at != BOOKING_NONE)
        b->free_head = b->nodes[at].of_prefill;
    else if (b->fresh < b->n_nodes)
        at = b->fresh++;
    else
        return BOOKING_NONE;
    b->n_used++;
    return at;
}

static void free_node(struct bookings *b, uint32_t at)
{
    b->nodes[at].of_prefill = b->free_head;
    b->free_head = at;
    b->n_used--;
}

int pool_book(struct pool *pool, const struct pool_booking *booking,
              uint32_t id, uint64_t request_id, int64_t now_us)
{
    struct pool_slot *holder = pool_slot_of(pool, booking->holder);
    struct pool_prefill *owner = pool_find_prefill(pool, id, request_id);
    int64_t *free_us, from_us;
    uint32_t at;

    if (!holder)
        return -ESTALE;
    if (booking->channel >= POOL_CHANNELS)
        return -EINVAL;
    if (id != POOL_NO_INSTANCE && !owner)
        return -ENOENT;
    free_us = pool_free_time_of(holder, booking->channel);
    from_us = *free_us > now_us ? *free_us : now_us;
    if (booking->until_us <= from_us) {
        if (booking->until_us > *free_us)
            *free_us = booking->until_us;
        return 0;
    }
    *free_us = booking->until_us;
    at = owner ? take_node(&pool->bookings) : BOOKING_NONE;
    if (at == BOOKING_NONE)
        return 0;
    struct booking *b = &pool->bookings.nodes[at];
    *b = (struct booking){
        .holder = booking->holder,
        .channel = (uint8_t)booking->channel,
        .of_prefill = owner->bookings,
        .from_us = from_us,
        .until_us = booking->until_us,
    };
    owner->bookings = at;
    TAILQ_INSERT_TAIL(&holder->channels[b->channel], b, link);
    return 0;
}

static void give_back(struct pool_slot *slot, struct booking *b, int64_t now_us)
{
    int64_t left_us = b->until_us - (b->from_us > now_us ? b->from_us : now_us);

    if (left_us > 0) {
        *pool_free_time_of(slot, b->channel) -= left_us;
        for (struct booking *i = TAILQ_NEXT(b, link); i;
             i = TAILQ_NEXT(i, link)) {
            i->from_us -= left_us;
            i->until_us -= left_us;
        }
    }
    TAILQ_REMOVE(&slot->channels[b->channel], b, link);
}

void pool_unbook(struct pool *pool, const struct pool_prefill *prefill,
                 int64_t now_us)
{
    struct booking *nodes = pool->bookings.nodes;
    uint32_t next;

    for (uint32_t at = prefill->bookings; at != BOOKING_NONE; at = next) {
        struct pool_slot *holder = pool_slot_of(pool, nodes[at].holder);

        next = nodes[at].of_prefill;
        if (holder) /* else the list is gone with its instance */
            give_back(holder, &nodes[at], now_us);
        free_node(&pool->bookings, at);
    }
}
