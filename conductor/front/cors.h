/* CORS: pages in browsers that use the API (the Fetch standard). */
#ifndef CONDUCTOR_FRONT_CORS_H
#define CONDUCTOR_FRONT_CORS_H

#include "conductor/front/internal.h"

/* cors_answer(call): adds headers that say what a page of the request's Origin
 * may read of the answer. Returns true: it was a preflight, and was answered.
 * Does nothing if no origins are configured. */
bool cors_answer(const struct front_call *call);

/* cors_tell_early(call): adds the headers to an answer that is sent before the
 * head is complete; does not answer preflights. If no Origin is known, allows
 * all origins or the only one that is listed; if several are listed, none. */
void cors_tell_early(const struct front_call *call);

/* cors_decides(front, name): returns whether to leave a header of an engine's
 * answer out, since the conductor sets it. */
bool cors_decides(const struct front *front, struct http_slice name);

#endif
