/* Pages in browsers that ask models, as CORS has it (the Fetch standard). */
#ifndef CONDUCTOR_FRONT_CORS_H
#define CONDUCTOR_FRONT_CORS_H

#include "conductor/front/internal.h"

/* cors_answer(call): says in the answer to come what a page of the request's
 * Origin may see of it. Returns true: a browser asked whether a page may send a
 * request, and was answered. Where no origins are configured it does nothing.
 */
bool cors_answer(const struct front_call *call);

/* cors_tell(call): the same but for the browser's question. Returns whether
 * such a page may read the answer. */
bool cors_tell(const struct front_call *call);

/* cors_tell_early(call): the same of an answer before the head is whole. Where
 * nobody knows who asks, it says that of all origins, or of the only one that
 * is listed; of several there is none to name. */
void cors_tell_early(const struct front_call *call);

/* cors_decides(front, name): whether such a header of an engine's answer is
 * left out, as the conductor's own one says it. */
bool cors_decides(const struct front *front, struct http_slice name);

#endif
