/*
 * Bookings of links and tiers by prefills, and how they are given back.
 *
 * Each channel (the egress link of an instance, one of its tiers) has a list
 * of the bookings that prefills own, oldest first. A booking begins where the
 * channel was free, so that without it those behind it begin that much sooner.
 *
 * Invariants (pool_check asserts them):
 *   from_us < until_us <= from_us of the next one, until_us <= free time;
 *   the nodes in use are those of waiting and running prefills.
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

static int64_t *free_time_of(struct pool_slot *slot, unsigned channel)
{
    return channel == POOL_EGRESS ? &slot->view.egress_free_us
                                  : &slot->view.tier_free_us[channel];
}

/* Behind all that the channel has. */
static void append(struct pool *pool, struct pool_slot *slot, uint32_t at)
{
    struct booking *nodes = pool->bookings.nodes;
    struct booking_list *list = &slot->channels[nodes[at].channel];

    nodes[at].earlier = list->last;
    nodes[at].later = BOOKING_NONE;
    if (list->last != BOOKING_NONE)
        nodes[list->last].later = at;
    else
        list->first = at;
    list->last = at;
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
    if ((unsigned)booking->channel > POOL_EGRESS)
        return -EINVAL;
    if (id != POOL_NO_INSTANCE && !owner)
        return -ENOENT;
    free_us = free_time_of(holder, booking->channel);
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
    pool->bookings.nodes[at] = (struct booking){
        .holder = booking->holder,
        .channel = (uint8_t)booking->channel,
        .of_prefill = owner->bookings,
        .from_us = from_us,
        .until_us = booking->until_us,
    };
    owner->bookings = at;
    append(pool, holder, at);
    return 0;
}

static void give_back(struct pool *pool, struct pool_slot *slot, uint32_t at,
                      int64_t now_us)
{
    struct booking *nodes = pool->bookings.nodes;
    const struct booking *b = &nodes[at];
    struct booking_list *list = &slot->channels[b->channel];
    int64_t left_us = b->until_us - (b->from_us > now_us ? b->from_us : now_us);

    if (left_us > 0) {
        *free_time_of(slot, b->channel) -= left_us;
        for (uint32_t i = b->later; i != BOOKING_NONE; i = nodes[i].later) {
            nodes[i].from_us -= left_us;
            nodes[i].until_us -= left_us;
        }
    }
    if (b->earlier != BOOKING_NONE)
        nodes[b->earlier].later = b->later;
    else
        list->first = b->later;
    if (b->later != BOOKING_NONE)
        nodes[b->later].earlier = b->earlier;
    else
        list->last = b->earlier;
}

void pool_unbook(struct pool *pool, const struct pool_prefill *prefill,
                 int64_t now_us)
{
    struct booking *nodes = pool->bookings.nodes;
    uint32_t next;

    for (uint32_t at = prefill->bookings; at != BOOKING_NONE; at = next) {
        struct pool_slot *holder = pool_slot_of(pool, nodes[at].holder);

        next = nodes[at].of_prefill;
        if (holder) /* else the list went with it */
            give_back(pool, holder, at, now_us);
        free_node(&pool->bookings, at);
    }
}

/* How many bookings a channel's list has; SIZE_MAX: it is wrong. */
static size_t check_list(const struct pool *pool, struct pool_slot *slot,
                         unsigned channel)
{
    const struct booking *nodes = pool->bookings.nodes;
    uint32_t before = BOOKING_NONE;
    int64_t end_us = INT64_MIN;
    size_t n = 0;

    for (uint32_t at = slot->channels[channel].first; at != BOOKING_NONE;
         at = nodes[at].later) {
        const struct booking *b = &nodes[at];

        if (b->earlier != before || b->holder != slot->view.id ||
            b->channel != channel || b->from_us >= b->until_us ||
            b->from_us < end_us)
            return SIZE_MAX;
        end_us = b->until_us;
        before = at;
        n++;
    }
    if (slot->channels[channel].last != before ||
        (n > 0 && end_us > *free_time_of(slot, channel)))
        return SIZE_MAX;
    return n;
}

/* Bookings of prefills; only of holders that are there still, or of all. */
static size_t count_of(const struct pool *pool,
                       const struct pool_prefill *prefills, size_t n,
                       bool of_all)
{
    const struct booking *nodes = pool->bookings.nodes;
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        for (uint32_t at = prefills[i].bookings; at != BOOKING_NONE;
             at = nodes[at].of_prefill)
            count += of_all || pool_slot_of(pool, nodes[at].holder);
    return count;
}

bool pool_check_bookings(const struct pool *pool)
{
    size_t owned = 0, living = 0, listed = 0;

    for (uint32_t s = 0; s < pool->n_slots; s++) {
        struct pool_slot *slot = &pool->slots[s];
        const struct pool_instance *view = &slot->view;

        if (!slot->in_use)
            continue;
        for (unsigned c = 0; c < POOL_CHANNELS; c++) {
            size_t n = check_list(pool, slot, c);

            if (n == SIZE_MAX)
                return false;
            listed += n;
        }
        living += count_of(pool, slot->waiting, view->n_waiting, false) +
                  count_of(pool, slot->running, view->n_running, false);
        owned += count_of(pool, slot->waiting, view->n_waiting, true) +
                 count_of(pool, slot->running, view->n_running, true);
    }
    return living == listed && owned == pool->bookings.n_used;
}
