/*
 * Writes one value as JSON or as msgpack, in one pass: the caller gives the
 * number of members of each map and array beforehand. Pure.
 */
#ifndef CONDUCTOR_FRONT_GATEWAY_PACKED_H
#define CONDUCTOR_FRONT_GATEWAY_PACKED_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/json/text_buf.h"

struct packed {
    struct text_buf *out; /* keeps the first error */
    bool msgpack;
    bool comma; /* JSON: the next value needs a comma */
};

/* Begin and end a map or an array of n members. */
void packed_map(struct packed *p, uint32_t n);
void packed_map_end(struct packed *p);
void packed_array(struct packed *p, uint32_t n);
void packed_array_end(struct packed *p);

/* Writes the name of the next member of a map. */
void packed_key(struct packed *p, const char *name);

void packed_text(struct packed *p, const char *text);
void packed_number(struct packed *p, uint64_t n);

/* Write a member: name and value. */
void packed_text_of(struct packed *p, const char *name, const char *text);
void packed_number_of(struct packed *p, const char *name, uint64_t n);

#endif
