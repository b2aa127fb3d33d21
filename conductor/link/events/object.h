/* What the name of a store's object says. */
#ifndef CONDUCTOR_LINK_EVENTS_OBJECT_H
#define CONDUCTOR_LINK_EVENTS_OBJECT_H

#include "conductor/link/events/unpack.h"

/*
 * An object's name has the hash of its block in hexadecimal: the last 16 digits
 * of the (first) longest run of them are what engines tell as a number.
 *   part  a digest of the rest of the name: which part of the block it is.
 * Returns whether there are 16 digits; else nothing is written. O(name.n).
 */
bool kv_object_name(struct unpack_text name, uint64_t *hash, uint16_t *part);

#endif
