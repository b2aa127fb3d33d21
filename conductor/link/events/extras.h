/* An event's extra_keys and lora_id, which make blocks of equal tokens differ;
 * the values have no names. */
#ifndef CONDUCTOR_LINK_EVENTS_EXTRAS_H
#define CONDUCTOR_LINK_EVENTS_EXTRAS_H

#include "conductor/link/events/batch.h"

/* Readers at the values; zeroed = absent. */
struct kv_event_extras {
    struct unpack keys, lora_id;
};

/*
 * Completes a stored event whose other fields have been read: its adapter, from
 * lora_id if it has no name, its salt and its extras.
 *   digests  (n_hashes of the event), written if the event gets extras.
 */
void kv_event_extras_read(struct kv_event_extras *extras,
                          struct kv_event *event, uint64_t *digests);

#endif
