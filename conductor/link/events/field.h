/* The fields of one event, in either form. */
#ifndef CONDUCTOR_LINK_EVENTS_FIELD_H
#define CONDUCTOR_LINK_EVENTS_FIELD_H

#include "conductor/link/events/decoder.h"
#include "conductor/link/events/extras.h"

/* The fields of an event; FIELD_OTHER is skipped. */
enum event_field {
    FIELD_OTHER,
    FIELD_TYPE,
    FIELD_HASHES,
    FIELD_PARENT,
    FIELD_TOKENS,
    FIELD_BLOCK_SIZE,
    FIELD_LORA_ID,
    FIELD_MEDIUM,
    FIELD_LORA_NAME,
    FIELD_EXTRAS,
    FIELD_GROUP,
    FIELD_SPEC_KIND,
    FIELD_SALT,
    FIELD_OBJECT,
};

/* A name and its length. */
#define EVENT_NAME(text)       \
    {                          \
        text, sizeof(text) - 1 \
    }

/* An event whose values are interpreted once all of it has been read. */
struct raw_event {
    struct kv_event event;
    struct kv_event_extras extras;
    struct unpack_text object; /* name of a store's object; n 0 = none */
    bool has_hashes;
};

/*
 * Reads the value of a field, into the decoder's arrays where it is a list.
 * Returns false if it is malformed: the reader has failed.
 */
[[nodiscard]] bool event_field_read(struct kv_decoder *decoder,
                                    enum event_field field,
                                    struct raw_event *event);

#endif
