/* See pool_check.h. */
#include "tests/unit/pool_check.h"

#include <string.h>

#include "conductor/core/pool/internal.h"
#include "tests/unit/prefix_check.h"

static bool check_item(const struct pool_slot *slot,
                       const struct pool_prefill *p, bool running)
{
    return p->item.cost_us ==
               correction_apply_us(&slot->view.correction,
                                   p->predicted_us - (p->started_at_us < 0
                                                          ? p->shared_us
                                                          : 0)) &&
           (p->started_at_us >= 0) == running;
}

static bool decodes(const struct pool_instance *view,
                    const struct pool_prefill *p)
{
    for (size_t i = 0; i < view->n_decodes; i++)
        if (view->decodes[i].request_id == p->request_id)
            return true;
    return false;
}

/* What it would begin next is known for as long as that stays. */
static bool check_pick(const struct pool_slot *slot)
{
    const struct pool_instance *i = &slot->view;

    return slot->picked_from_us == slot->picked_until_us ||
           (queue_pick(i->order, i->queue, i->n_waiting,
                       slot->picked_from_us) == slot->picked &&
            queue_pick(i->order, i->queue, i->n_waiting,
                       slot->picked_until_us - 1) == slot->picked);
}

/* As the pool has it where prefills are interrupted. */
static void check_stack(const struct pool_instance *view,
                        struct pool_running_load *running)
{
    int64_t at_us = view->running_since_us, left_us = 0;

    if (view->n_running == 0)
        return;
    for (size_t i = 0; i < view->n_running; i++) {
        const struct pool_prefill *p = &view->running[i];

        left_us =
            p->item.cost_us > p->worked_us ? p->item.cost_us - p->worked_us : 0;
        at_us += left_us;
    }
    running->ends_us = (uint64_t)at_us;
    running->first_us = view->running_since_us + left_us;
}

static bool check_prefills(const struct pool_slot *slot, uint64_t *units)
{
    const struct pool_instance *view = &slot->view;
    struct queue_load load = {.latest_ready_us = INT64_MIN};
    struct pool_running_load running = {.first_us = INT64_MAX};
    int64_t free_us = view->prefilled_us;
    int64_t running_kv = 0;

    for (size_t i = 0; i < view->n_waiting; i++) {
        const struct pool_prefill *p = &slot->waiting[i];
        const struct queue_item *q = &slot->queue[i];

        if (!check_item(slot, p, false) ||
            q->arrival_seq != p->item.arrival_seq ||
            q->ready_at_us != p->item.ready_at_us ||
            q->loading_until_us != p->item.loading_until_us ||
            q->cost_us != p->item.cost_us ||
            (i > 0 && slot->queue[i - 1].arrival_seq >= q->arrival_seq))
            return false;
        load.cost_us += q->cost_us;
        if (q->ready_at_us > load.latest_ready_us)
            load.latest_ready_us = q->ready_at_us;
        if (q->loading_until_us > load.latest_loading_us)
            load.latest_loading_us = q->loading_until_us;
        if (p->n_keys > 0)
            *units += UINT64_C(1) << arena_class_of(p->n_keys);
    }
    if (load.cost_us != view->load.cost_us ||
        load.latest_ready_us != view->load.latest_ready_us ||
        load.latest_loading_us != view->load.latest_loading_us)
        return false;
    for (size_t i = 0; i < view->n_running; i++) {
        const struct pool_prefill *p = &slot->running[i];

        if (!check_item(slot, p, true) || p->decodes_here != decodes(view, p))
            return false;
        running_kv += pool_prefill_kv_tokens(slot, p);
        free_us = view->running_load.in_line && free_us > p->started_at_us
                      ? free_us + p->item.cost_us
                      : p->started_at_us + p->item.cost_us;
        running.ends_us = (uint64_t)free_us +
                          (view->running_load.in_line ? 0 : running.ends_us);
        if (free_us < running.first_us)
            running.first_us = free_us;
        if (p->n_keys > 0)
            *units += UINT64_C(1) << arena_class_of(p->n_keys);
    }
    if (view->order->preempts) {
        running = (struct pool_running_load){.first_us = INT64_MAX};
        check_stack(view, &running);
    }
    return running_kv == view->running_kv_tokens &&
           running.ends_us == view->running_load.ends_us &&
           running.first_us == view->running_load.first_us;
}

static bool check_decodes(const struct pool_slot *slot)
{
    const struct pool_instance *view = &slot->view;
    int64_t kv = 0;
    int64_t reserved = 0;

    for (size_t i = 0; i < view->n_decodes; i++) {
        const struct pool_decode *d = &slot->decodes[i];

        kv += d->prompt_tokens + d->produced_tokens;
        reserved += pool_kv_tokens(view, d->prompt_tokens, d->expected_tokens);
    }
    return kv == view->decode_kv_tokens &&
           reserved == view->decode_reserved_tokens;
}

static bool at_least(const struct pool_work *sum, const struct pool_work *part)
{
    /* The sums of squares are of numbers that came and went. */
    return sum->tokens >= part->tokens && sum->us >= part->us &&
           sum->own_square * (1.0 + 1e-9) + 1.0 >= part->own_square;
}

/* The work of prefills that are there still, with arrival_seq in [from, to). */
static struct pool_work work_of(const struct pool_instance *view, uint64_t from,
                                uint64_t to)
{
    struct pool_work sum = {0};

    for (size_t i = 0; i < view->n_waiting + view->n_running; i++) {
        const struct pool_prefill *p =
            i < view->n_waiting ? &view->waiting[i]
                                : &view->running[i - view->n_waiting];

        if (p->item.arrival_seq >= from && p->item.arrival_seq < to)
            sum = pool_work_add(sum, p->work);
    }
    return sum;
}

/* An instance has accepted what it has still, and so much of it before and
 * after the prefill of each decode; the later the decode, the more before. */
static bool check_work(const struct pool_instance *view)
{
    struct pool_work there = work_of(view, 0, UINT64_MAX);

    if (!at_least(&view->accepted, &there))
        return false;
    for (size_t i = 0; i < view->n_decodes; i++) {
        const struct pool_decode *d = &view->decodes[i];
        struct pool_work after = pool_work_less(view->accepted, d->before);

        if (d->likely_tokens == 0)
            continue;
        there = work_of(view, 0, d->before_seq);
        if (!at_least(&d->before, &there))
            return false;
        there = work_of(view, d->before_seq, UINT64_MAX);
        if (!at_least(&after, &there))
            return false;
        for (size_t k = 0; k < view->n_decodes; k++) {
            const struct pool_decode *later = &view->decodes[k];

            if (later->likely_tokens > 0 &&
                later->before_seq >= d->before_seq &&
                !at_least(&later->before, &d->before))
                return false;
        }
    }
    return true;
}

/* Pushes that decodes of any instance have booked, at both ends. */
static bool check_pushes(const struct pool *pool,
                         const struct pool_instance *view)
{
    int64_t out = 0, in = 0;
    size_t n_out = 0, n_in = 0;

    for (uint32_t s = 0; s < pool->n_slots; s++) {
        const struct pool_slot *slot = &pool->slots[s];

        for (size_t i = 0; slot->in_use && i < slot->view.n_decodes; i++) {
            const struct pool_decode *d = &slot->decodes[i];

            if (d->push_from == POOL_NO_INSTANCE)
                continue;
            if (d->started || d->push_bytes < 0)
                return false;
            if (d->push_from == view->id) {
                out += d->push_bytes;
                n_out++;
            }
            if (&slot->view == view) {
                in += d->push_bytes;
                n_in++;
            }
        }
    }
    return out == view->push_out_bytes && in == view->push_in_bytes &&
           n_out == view->n_pushes_out && n_in == view->n_pushes_in;
}

static bool check_tokens(const struct pool_instance *view)
{
    int64_t tokens = 0;

    for (size_t i = 0; i < view->n_waiting; i++)
        tokens +=
            view->waiting[i].uncached_tokens + view->waiting[i].cached_tokens;
    for (size_t i = 0; i < view->n_running; i++)
        tokens +=
            view->running[i].uncached_tokens + view->running[i].cached_tokens;
    return tokens == view->prefill_tokens;
}

/* How many bookings a channel's list has; SIZE_MAX: it is wrong. */
static size_t check_list(struct pool_slot *slot, unsigned channel)
{
    const struct booking *b;
    int64_t end_us = INT64_MIN;
    size_t n = 0;

    TAILQ_FOREACH(b, &slot->channels[channel], link)
    {
        if (*b->link.tqe_prev != b || b->holder != slot->view.id ||
            b->channel != channel || b->from_us >= b->until_us ||
            b->from_us < end_us)
            return SIZE_MAX;
        end_us = b->until_us;
        n++;
    }
    if (*slot->channels[channel].tqh_last ||
        (n > 0 && end_us > *pool_free_time_of(slot, channel)))
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

static bool check_bookings(const struct pool *pool)
{
    size_t owned = 0, living = 0, listed = 0;

    for (uint32_t s = 0; s < pool->n_slots; s++) {
        struct pool_slot *slot = &pool->slots[s];
        const struct pool_instance *view = &slot->view;

        if (!slot->in_use)
            continue;
        for (unsigned c = 0; c < POOL_CHANNELS; c++) {
            size_t n = check_list(slot, c);

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

static bool check_pending(const struct pending *pending)
{
    uint32_t used = 0;

    for (uint32_t at = 0; at <= pending->mask; at++) {
        const struct pending_slot *slot = &pending->slots[at];

        if (slot->count == 0)
            continue;
        used++;
        if (pending_find(pending, slot->instance, slot->key) != at ||
            prefix_index_tiers(pending->index, slot->instance, slot->key) == 0)
            return false;
    }
    return used == pending->n_used &&
           prefix_index_stats(pending->index).holders == used &&
           prefix_index_check(pending->index);
}

bool pool_check(const struct pool *pool)
{
    uint64_t units = 0;
    uint32_t own_costs = 0;

    for (uint32_t s = 0; s < pool->n_slots; s++) {
        const struct pool_slot *slot = &pool->slots[s];

        if (!slot->in_use)
            continue;
        own_costs += !!slot->view.cost;
        if (slot->view.slot != s || !check_prefills(slot, &units) ||
            !check_pick(slot) || !check_decodes(slot) ||
            !check_pushes(pool, &slot->view) || !check_tokens(&slot->view) ||
            !check_work(&slot->view))
            return false;
    }
    return !pool->broken && own_costs == pool->n_own_costs &&
           units == pool->keys.used_units && arena_check(&pool->keys) &&
           check_pending(pool->pending) && check_bookings(pool);
}
