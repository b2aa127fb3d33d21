/* See record.h. */
#include "conductor/core/pool/record.h"

#include <errno.h>

#include "conductor/core/pool/internal.h"

/* Copies a prefill's bookings, oldest first; its list is in reverse. */
static void read_booked(const struct pool *pool, const struct pool_prefill *p,
                        struct pool_record_prefill *out)
{
    const struct booking *nodes = pool->bookings.nodes;
    size_t n = 0;

    for (uint32_t at = p->bookings; at != BOOKING_NONE;
         at = nodes[at].of_prefill)
        n++;
    out->n_booked =
        n < POOL_RECORD_BOOKED_MAX ? n : (size_t)POOL_RECORD_BOOKED_MAX;
    for (uint32_t at = p->bookings; at != BOOKING_NONE;
         at = nodes[at].of_prefill)
        if (--n < POOL_RECORD_BOOKED_MAX)
            out->booked[n] = (struct pool_record_booked){
                nodes[at].holder, nodes[at].channel, nodes[at].from_us,
                nodes[at].until_us};
}

int pool_read_prefill(const struct pool *pool, uint32_t id, uint64_t request_id,
                      int64_t now_us, struct pool_record_prefill *out)
{
    const struct pool_prefill *p = pool_find_prefill(pool, id, request_id);
    const struct pool_instance *i = pool_get(pool, id);

    if (!p)
        return i ? -ENOENT : -ESTALE;
    out->instance = id;
    out->request = (struct pool_prefill_request){
        .request_id = request_id,
        .predicted_us = p->predicted_us,
        .shared_us = p->shared_us,
        .ready_at_us = p->item.ready_at_us,
        .loading_until_us = p->item.loading_until_us,
        .arrived_us = p->item.arrived_us,
        .deadline_us = p->item.deadline_us,
        .implied = !p->item.has_slo,
        .uncached_tokens = p->uncached_tokens,
        .cached_tokens = p->cached_tokens,
        .stage = p->stage,
        .work = p->work,
        .keys = p->n_keys ? arena_at(&pool->keys, p->keys_at) : NULL,
        .n_keys = p->n_keys,
    };
    out->started = p->started_at_us >= 0;
    out->started_us = out->started ? p->started_at_us : 0;
    out->worked_us = p->worked_us;
    if (out->started && p == &i->running[i->n_running - 1])
        out->worked_us += now_us - i->running_since_us;
    read_booked(pool, p, out);
    return 0;
}

/* Books the rest of a booking from when the channel is free in this pool. */
static void enter_booked(struct pool *pool,
                         const struct pool_record_prefill *record,
                         const struct pool_record_booked *b, int64_t now_us)
{
    struct pool_slot *holder = pool_slot_of(pool, b->holder);
    int64_t from_us = b->from_us > now_us ? b->from_us : now_us;
    int64_t left_us = b->until_us - from_us, free_us;

    if (!holder || b->channel >= POOL_CHANNELS || left_us <= 0)
        return;
    free_us = *pool_free_time_of(holder, b->channel);
    if (free_us < from_us)
        free_us = from_us;
    /* A prefill that found no place has no bookings. */
    (void)!pool_book(
        pool, &(struct pool_booking){b->holder, b->channel, free_us + left_us},
        record->instance, record->request.request_id, now_us);
}

/* Begins a prefill that began before now_us in the pool of the record. */
static void enter_started(struct pool *pool,
                          const struct pool_record_prefill *record,
                          int64_t now_us)
{
    int64_t started_us =
        record->started_us < now_us ? record->started_us : now_us;
    int64_t worked_us = record->worked_us;

    if (started_us < 0) /* before this machine's clock began */
        started_us = 0;
    if (worked_us > now_us - started_us)
        worked_us = now_us - started_us;
    pool_begin_prefill(pool, record->instance, record->request.request_id,
                       started_us, worked_us, now_us);
}

int pool_enter_prefill(struct pool *pool,
                       const struct pool_record_prefill *record, int64_t now_us)
{
    int rc = pool_prefill_accept(pool, record->instance, &record->request);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < record->n_booked; i++)
        enter_booked(pool, record, &record->booked[i], now_us);
    if (record->started)
        enter_started(pool, record, now_us);
    return 0;
}

int pool_read_decode(const struct pool *pool, uint32_t id, uint64_t request_id,
                     struct pool_record_decode *out)
{
    const struct pool_slot *slot = pool_slot_of(pool, id);
    const struct pool_decode *d;

    if (!slot)
        return -ESTALE;
    d = pool_find_decode(slot, request_id);
    if (!d)
        return -ENOENT;
    *out = (struct pool_record_decode){
        .instance = id,
        .request = {.request_id = request_id,
                    .prompt_tokens = d->prompt_tokens,
                    .max_output_tokens = d->max_output_tokens,
                    .expected_tokens = d->expected_tokens,
                    .comes_us = d->comes_us,
                    .prefill = d->prefill,
                    .prefill_us = d->prefill_us},
        .produced_tokens = d->produced_tokens,
        .likely_tokens = d->likely_tokens,
        .coming = d->coming,
        .started = d->started,
        .push = {.from = d->push_from,
                 .bytes = d->push_bytes,
                 .due_us = d->push_due_us},
    };
    return 0;
}

int pool_enter_decode(struct pool *pool,
                      const struct pool_record_decode *record, int64_t now_us)
{
    uint32_t id = record->instance;
    uint64_t request_id = record->request.request_id;
    int rc = pool_decode_expect(pool, id, &record->request);

    if (rc < 0)
        return rc;
    if (record->likely_tokens > 0)
        pool_decode_likely(pool, id, request_id, record->likely_tokens);
    if (record->push.from != POOL_NO_INSTANCE && !record->started)
        pool_book_push(pool, &record->push, id, request_id);
    if (record->coming)
        pool_decode_comes(pool, id, request_id, now_us);
    if (record->started)
        pool_decode_started(pool, id, request_id);
    if (record->produced_tokens > 0)
        pool_decode_progress(pool, id, request_id, record->produced_tokens);
    return 0;
}
