/* See held.h. */
#include "conductor/core/dispatch/held.h"

/* All sizes below 2^SMALLEST_BITS tokens count as one. */
#define SMALLEST_BITS 4

uint32_t held_size(int64_t tokens)
{
    uint32_t bits, size;

    if (tokens <= 0)
        return 0;
    if (tokens >> SMALLEST_BITS == 0)
        return 1;
    bits = 63 - (uint32_t)__builtin_clzll((uint64_t)tokens);
    size =
        2 + 4 * (bits - SMALLEST_BITS) + ((uint32_t)(tokens >> (bits - 2)) & 3);
    return size < DISPATCH_SIZES ? size : DISPATCH_SIZES - 1;
}

void held_init(struct dispatch *d)
{
    TAILQ_INIT(&d->waiting);
    for (uint32_t i = 0; i < DISPATCH_SIZES; i++)
        TAILQ_INIT(&d->sizes[i]);
}

/* When a waiting request misses its TTFT SLO; INT64_MAX: never. */
static int64_t expiry_us(const struct dispatch_request *r)
{
    return r->slo_ttft_us && !r->accepted ? r->arrived_us + r->slo_ttft_us
                                          : INT64_MAX;
}

void held_add(struct dispatch *d, struct dispatch_request *request)
{
    request->waits = true;
    request->reach = reach_add(&d->reach, &request->ask);
    line_add(&d->lines[request->place], &request->line);
    d->share.tenants[request->place].waiting++;
    d->share.tenants[request->place].patient += !request->slo_ttft_us;
    TAILQ_INSERT_TAIL(&d->waiting, request, entry);
    TAILQ_INSERT_TAIL(&d->sizes[request->size], request, by_size);
    if (d->in_round && !d->next[request->size])
        d->next[request->size] = request;
    d->n_waiting++;
    d->n_for_link += request->for_link;
    d->n_for_queue += request->for_queue;
    if (expiry_us(request) < d->next_expiry_us)
        d->next_expiry_us = expiry_us(request);
}

void held_remove(struct dispatch *d, struct dispatch_request *request)
{
    request->waits = false;
    reach_remove(&d->reach, request->reach);
    held_tried(d, request);
    if (request == TAILQ_FIRST(&d->waiting))
        d->passed_tokens = 0;
    TAILQ_REMOVE(&d->waiting, request, entry);
    TAILQ_REMOVE(&d->sizes[request->size], request, by_size);
    line_remove(&d->lines[request->place], &request->line);
    d->share.tenants[request->place].waiting--;
    d->share.tenants[request->place].patient -= !request->slo_ttft_us;
    d->n_waiting--;
    d->n_for_link -= request->for_link;
    d->n_for_queue -= request->for_queue;
}

void held_lacks(struct dispatch *d, struct dispatch_request *request,
                bool for_link, bool for_queue)
{
    if (request->waits) {
        d->n_for_link = d->n_for_link + for_link - request->for_link;
        d->n_for_queue = d->n_for_queue + for_queue - request->for_queue;
    }
    request->for_link = for_link;
    request->for_queue = for_queue;
    d->for_link |= for_link;
}

void held_reaches(struct dispatch *d, struct dispatch_request *request)
{
    if (!request->waits)
        return;
    reach_remove(&d->reach, request->reach);
    request->reach = reach_add(&d->reach, &request->ask);
}

void held_begin(struct dispatch *d)
{
    for (uint32_t i = 0; i < DISPATCH_SIZES; i++)
        d->next[i] = TAILQ_FIRST(&d->sizes[i]);
}

struct dispatch_request *held_next(const struct dispatch *d, uint32_t limit)
{
    struct dispatch_request *best = TAILQ_FIRST(&d->waiting);

    if (best && d->next[best->size] == best)
        return best;
    best = NULL;
    for (uint32_t i = 0; i < limit; i++)
        if (d->next[i] && (!best || d->next[i]->line.seq < best->line.seq))
            best = d->next[i];
    return best;
}

void held_tried(struct dispatch *d, const struct dispatch_request *request)
{
    if (d->next[request->size] == request)
        d->next[request->size] = TAILQ_NEXT(request, by_size);
}

struct dispatch_request *held_expired(struct dispatch *d, int64_t now_us)
{
    struct dispatch_request *r;
    int64_t next_us = INT64_MAX;

    if (now_us < d->next_expiry_us ||
        (d->scheduler && !d->unpredicted && schedule_admits_late(d->scheduler)))
        return NULL;
    TAILQ_FOREACH(r, &d->waiting, entry)
    {
        if (expiry_us(r) <= now_us)
            return r;
        if (expiry_us(r) < next_us)
            next_us = expiry_us(r);
    }
    d->next_expiry_us = next_us;
    return NULL;
}
