/* The inside of a decoder, for the files that read batches and events. */
#ifndef CONDUCTOR_LINK_EVENTS_DECODER_H
#define CONDUCTOR_LINK_EVENTS_DECODER_H

#include "conductor/link/events/batch.h"

struct kv_decoder {
    struct kv_event *events; /* (KV_BATCH_EVENTS_MAX) */
    uint64_t *hashes;        /* (KV_BATCH_HASHES_MAX) */
    uint64_t *extras;        /* (KV_BATCH_HASHES_MAX), as the hashes */
    uint32_t *tokens;        /* (KV_BATCH_TOKENS_MAX) */
    size_t n_events, n_hashes, n_tokens;
    struct unpack u;
};

/*
 * Reads one event, in either form, and appends it to the decoder's events;
 * skips and counts an event with an unknown tag. Returns false if it is
 * malformed: the reader has failed.
 */
bool decoder_event(struct kv_decoder *decoder, uint32_t *n_unknown);

#endif
