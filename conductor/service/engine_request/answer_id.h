/*
 * Finds the id under which an engine keeps an answer of /v1/responses: the `id`
 * of the answer's own object, or, in a stream, of `response` in the first
 * event. Ids elsewhere do not count: an engine may echo the client's text
 * there. Pure.
 */
#ifndef CONDUCTOR_SERVICE_ENGINE_REQUEST_ANSWER_ID_H
#define CONDUCTOR_SERVICE_ENGINE_REQUEST_ANSWER_ID_H

#include <stdbool.h>
#include <stddef.h>

#include "conductor/json/pieces.h"

#define ANSWER_ID_MAX JSON_PIECES_VALUE /* bytes; a longer one is not found */

/* Zeros before the first byte. */
struct answer_id {
    struct json_pieces json;
    bool over; /* it was found, or the first object has ended */
};

/* answer_id_read(a, bytes, n): the answer's next n bytes. Returns whether they
 * complete the id, which is then a->json.value (a->json.n), as it is spelled.
 * O(n) up to the end of the first object, O(1) behind it. */
bool answer_id_read(struct answer_id *a, const char *bytes, size_t n);

#endif
