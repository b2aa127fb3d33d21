/* Reads the name of a store's object. */
#ifndef CONDUCTOR_LINK_EVENTS_OBJECT_H
#define CONDUCTOR_LINK_EVENTS_OBJECT_H

#include "conductor/link/events/unpack.h"

/*
 * Reads the block's hash from an object's name: the last 16 digits of the
 * (first) longest run of hexadecimal digits, which equal the number in engines'
 * events.
 *   part  a digest of the rest of the name, which identifies the part of the
 *         block.
 * Returns false, with nothing written: there are no 16 digits. O(name.n).
 */
bool kv_object_name(struct unpack_text name, uint64_t *hash, uint16_t *part);

#endif
