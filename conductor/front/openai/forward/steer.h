/*
 * What only Conductor may say to an engine: which of its ranks, which other
 * engine, where two of a pair meet, whose KV. A client that says so chooses
 * single engines, gets parameters of other prompts into them, or has a sidecar
 * send a prompt to an address of the client's own. One table for headers and
 * members of bodies. Pure.
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

/* Whether a request's header is taken out. name (n) is borrowed; its case does
 * not count, and '_' is '-', as to many servers. */
bool steer_header(const char *name, size_t n);

/*
 * Whether a member at the top of a body is taken out.
 *   keyed  keys are required: members that name what an engine keeps, which
 *          may be another tenant's, count, too.
 */
bool steer_member(const char *name, bool keyed);

/* Whether a member at the top of a body holds an object in which engines look
 * for such members. */
bool steer_carries(const char *name);

/* The name, static, of a member that such an object, or a form, must not have;
 * NULL: it may have this one. */
const char *steer_nested(const char *name);

#endif
