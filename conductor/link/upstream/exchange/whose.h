/*
 * Decides whether an answer belongs to the request on its connection: an engine
 * may send a second answer to an earlier request late. So an answer must name
 * its request: in X-Request-Id, or in the id at the start of its body, which
 * ends with the request's (vLLM puts "cmpl-" or "chatcmpl-" before it). Pure.
 */
#ifndef CONDUCTOR_LINK_UPSTREAM_EXCHANGE_WHOSE_H
#define CONDUCTOR_LINK_UPSTREAM_EXCHANGE_WHOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "conductor/http/parse.h"

/* Most bytes of an answer's body that are searched for the id. */
#define WHOSE_BYTES_MAX 512

/* Longest id compared; it has letters, digits, '.', '_', ':' and '-'. */
#define WHOSE_ID_MAX 200

enum whose {
    WHOSE_OWN,     /* the answer names the request */
    WHOSE_OTHER,   /* it names another request */
    WHOSE_NOBODYS, /* it names no request */
    WHOSE_MORE,    /* more of the body is needed */
};

/* Finds X-Request-Id among header lines with CR LF; *id is borrowed, with n 0
 * if it cannot be compared. Returns false: none found. O(n). */
bool whose_id(const char *headers, struct http_slice *id);

/*
 * Decides whose answer this is.
 *   head   its head
 *   begin  the first n bytes of its body, without framing; all: the whole body
 *   id     the request's; n 0 = none: WHOSE_NOBODYS
 * O(n).
 */
enum whose whose_answer(const struct http_head *head, const char *begin,
                        size_t n, bool all, struct http_slice id);

#endif
