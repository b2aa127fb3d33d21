/*
 * Tells by their names the headers that pass between clients and engines. Pure.
 *
 * Some only Conductor may send to an engine: which of its ranks, which other
 * engine, where two of a pair meet, whose KV. With them a client could choose
 * single engines, get parameters of other prompts into them, or have a sidecar
 * send a prompt to an address of the client's own. The same of members of
 * bodies: member.h.
 */
#ifndef CONDUCTOR_FRONT_OPENAI_BODY_STEER_H
#define CONDUCTOR_FRONT_OPENAI_BODY_STEER_H

#include "conductor/http/parse.h"

/* Returns whether a request's header is taken out. name (n) is borrowed; case
 * does not count, and '_' equals '-', as for many servers. */
bool steer_header(const char *name, size_t n);

/* Return whether a request's header, or an answer's, is for the next party,
 * too.
 */
bool steer_goes_on(struct http_slice name);
bool steer_comes_back(struct http_slice name);

#endif
