/* What tells blocks of equal tokens apart: extra_keys and lora_id of an event,
 * which say several things without naming them. */
#ifndef CONDUCTOR_LINK_EVENTS_EXTRAS_H
#define CONDUCTOR_LINK_EVENTS_EXTRAS_H

#include "conductor/link/events/batch.h"

/* Readers that stand in front of the values; zeroed where there is none. */
struct kv_event_extras {
    struct unpack keys, lora_id;
};

/*
 * Completes a stored event, all of whose other fields have been read: adapter
 * from lora_id where it has no name, salt, extras.
 *   digests  (n_hashes of the event), written if the event gets extras.
 */
void kv_event_extras_read(struct kv_event_extras *extras,
                          struct kv_event *event, uint64_t *digests);

#endif
