/*
 * Headers and members that only Conductor may send to an engine: which of its
 * ranks, which other engine, where two of a pair meet, whose KV. With them a
 * client could choose single engines, get parameters of other prompts into
 * them, or have a sidecar send a prompt to an address of the client's own. One
 * table for headers and members of bodies. Pure.
 *
 *   header, member of a body    taken out: proxies and SDKs set some on all
 *                               requests, and the request is as good without
 *   in an object in the body,   refused, as nothing is taken out there
 *   field of a form, and all
 *   of it where another
 *   gateway asks
 */
#ifndef CONDUCTOR_FRONT_OPENAI_FORWARD_STEER_H
#define CONDUCTOR_FRONT_OPENAI_FORWARD_STEER_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a request's header is taken out. name (n) is borrowed; case does not
 * count, and '_' equals '-', as for many servers. */
bool steer_header(const char *name, size_t n);

/*
 * Whether a member at the top of a body is taken out.
 *   keyed  keys are required: takes out names of things that an engine keeps,
 *          too, which may be another tenant's.
 */
bool steer_member(const char *name, bool keyed);

/* Whether engines look for such members in the object of this top-level
 * member. */
bool steer_carries(const char *name);

/* Returns the member's name, static, if such an object, or a form, must not
 * have it; NULL = it may. */
const char *steer_nested(const char *name);

#endif
