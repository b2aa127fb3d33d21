/* Decodes batches of KV events: their outer forms. */
#include "conductor/link/events/batch.h"

#include <errno.h>
#include <stdlib.h>

#include "conductor/link/events/decoder.h"

struct kv_decoder *kv_decoder_new(void)
{
    struct kv_decoder *d = calloc(1, sizeof(*d));

    if (!d)
        return NULL;
    d->events = malloc(KV_BATCH_EVENTS_MAX * sizeof(*d->events));
    d->hashes = malloc(KV_BATCH_HASHES_MAX * sizeof(*d->hashes));
    d->extras = malloc(KV_BATCH_HASHES_MAX * sizeof(*d->extras));
    d->tokens = malloc(KV_BATCH_TOKENS_MAX * sizeof(*d->tokens));
    if (!d->events || !d->hashes || !d->extras || !d->tokens) {
        kv_decoder_free(d);
        return NULL;
    }
    return d;
}

void kv_decoder_free(struct kv_decoder *d)
{
    if (!d)
        return;
    free(d->events);
    free(d->hashes);
    free(d->extras);
    free(d->tokens);
    free(d);
}

static bool read_events(struct kv_decoder *d, struct kv_batch *batch)
{
    struct unpack *u = &d->u;
    uint32_t n;

    if (!unpack_array(u, &n))
        return false;
    if (n > KV_BATCH_EVENTS_MAX)
        return unpack_fail(u, "fewer events in one message");
    for (uint32_t i = 0; i < n; i++)
        if (!decoder_event(d, &batch->n_unknown))
            return false;
    return true;
}

static bool read_rank(struct unpack *u, struct kv_batch *batch)
{
    if (unpack_nil(u))
        return true;
    batch->has_rank = true;
    return unpack_integer(u, &batch->rank);
}

/* [time, events, rank, ...]; the rank may be missing. */
static bool read_array_batch(struct kv_decoder *d, struct kv_batch *batch)
{
    struct unpack *u = &d->u;
    uint32_t n;

    if (!unpack_array(u, &n))
        return false;
    if (n < 2)
        return unpack_fail(u, "a time and a list of events");
    return unpack_seconds(u, &batch->time_s) && read_events(d, batch) &&
           (n < 3 || (read_rank(u, batch) && unpack_skip(u, n - 3)));
}

static const struct unpack_text events_name = {"events", 6};
static const struct unpack_text time_name = {"ts", 2};
static const struct unpack_text rank_name = {"data_parallel_rank", 18};

static bool read_map_batch(struct kv_decoder *d, struct kv_batch *batch)
{
    struct unpack *u = &d->u;
    bool has_events = false, ok;
    uint32_t n;

    if (!unpack_map(u, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct unpack_text key;

        if (!unpack_text(u, &key))
            return false;
        if (unpack_text_same(key, events_name) && !has_events) {
            has_events = true;
            ok = read_events(d, batch);
        } else if (unpack_text_same(key, rank_name))
            ok = read_rank(u, batch);
        else if (unpack_text_same(key, time_name))
            ok = unpack_seconds(u, &batch->time_s);
        else
            ok = unpack_skip(u, 1);
        if (!ok)
            return false;
    }
    return has_events || unpack_fail(u, "events");
}

int kv_decoder_batch(struct kv_decoder *d, const void *bytes, size_t n,
                     struct kv_batch *batch, struct kv_batch_error *error)
{
    struct kv_batch read = {0};
    bool ok;

    unpack_init(&d->u, bytes, n);
    d->n_events = d->n_hashes = d->n_tokens = 0;
    ok = unpack_peek(&d->u) == UNPACK_MAP ? read_map_batch(d, &read)
                                          : read_array_batch(d, &read);
    if (ok && d->u.at != d->u.end)
        ok = unpack_fail(&d->u, "the end of the message");
    if (!ok) {
        *error =
            (struct kv_batch_error){.offset = (size_t)(d->u.at - d->u.start),
                                    .expected = d->u.expected};
        return -EINVAL;
    }
    read.events = d->events;
    read.n_events = (uint32_t)d->n_events;
    *batch = read;
    return 0;
}
