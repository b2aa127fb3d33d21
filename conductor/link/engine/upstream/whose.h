/*
 * Whose answer a connection brings: an engine may send a second answer late,
 * when the connection has another request by then. So the answer must name its
 * request: in X-Request-Id, or as the id that its body begins with, which ends
 * with it (vLLM: "cmpl-" or "chatcmpl-" before it). Pure.
 */
#ifndef CONDUCTOR_LINK_ENGINE_UPSTREAM_WHOSE_H
#define CONDUCTOR_LINK_ENGINE_UPSTREAM_WHOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "conductor/http/parse.h"

/* Bytes of an answer's body that are looked at. */
#define WHOSE_BYTES_MAX 512

/* An id that is compared: letters, digits, '.', '_', ':' and '-'. */
#define WHOSE_ID_MAX 200

enum whose {
    WHOSE_OWN,     /* the answer names the request */
    WHOSE_OTHER,   /* it names another one */
    WHOSE_NOBODYS, /* it names none */
    WHOSE_MORE,    /* more of the body is needed to tell */
};

/* The value of X-Request-Id among header lines with their CR LF, borrowed.
 * False: there is none; n is 0 where it is none that can be compared. O(n). */
bool whose_id(const char *headers, struct http_slice *id);

/*
 * Whose answer this is.
 *   head   its head
 *   begin  the first n bytes of its body, without framing; all: there are no
 *          more
 *   id     of the request; n 0: nothing tells
 * O(n).
 */
enum whose whose_answer(const struct http_head *head, const char *begin,
                        size_t n, bool all, struct http_slice id);

#endif
