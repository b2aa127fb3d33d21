/*
 * A browser lets a page read another origin's answer only if the answer allows
 * it, and asks first with OPTIONS whether the page may send a key or JSON. Both
 * depend on the list of origins alone; keys decide which clients may ask.
 */
#include "conductor/front/cors.h"

#include <string.h>
#include <strings.h>

/* Headers that a page may read beside the body. */
#define EXPOSED                                            \
    "retry-after, retry-after-ms, x-conductor-decode, "    \
    "x-conductor-predicted-ttft-ms, x-conductor-prefill, " \
    "x-conductor-request-id, x-request-id"
/* How long, in seconds, a browser need not ask again. */
#define MAX_AGE "600"

static bool is_on(const struct front *front)
{
    return front->options.cors_origins && *front->options.cors_origins;
}

static bool is_listed(const char *list, struct http_slice origin)
{
    for (list += strspn(list, ", "); *list; list += strspn(list, ", ")) {
        size_t n = strcspn(list, ", ");

        if (n == origin.n && memcmp(list, origin.at, n) == 0)
            return true;
        list += n;
    }
    return false;
}

static void add(struct http_conn *conn, const char *name,
                struct http_slice value)
{
    http_pass_header(conn, &(struct http_header){{name, strlen(name)}, value});
}

/* Answers a preflight: may the page send such a request? */
static void answer_preflight(const struct front_call *call,
                             struct http_slice method, bool may)
{
    const struct http_slice *headers =
        http_find(call->head, "access-control-request-headers");

    if (!may) {
        http_refuse(call->conn, 403, "origin_not_allowed", NULL,
                    "header origin: pages of this origin may not send "
                    "requests: cors_origins does not list it");
        return;
    }
    add(call->conn, "Access-Control-Allow-Methods", method);
    if (headers)
        add(call->conn, "Access-Control-Allow-Headers", *headers);
    http_add_header(call->conn, "Access-Control-Max-Age", MAX_AGE);
    http_reply(call->conn, 204, NULL, "", 0);
}

/* Adds the headers. Returns whether the page may read the answer. */
static bool cors_tell(const struct front_call *call)
{
    const char *list = call->front->options.cors_origins;
    const struct http_slice *origin = http_find(call->head, "origin");
    bool all, may;

    if (!is_on(call->front))
        return false;
    all = strcmp(list, "*") == 0;
    if (!all) /* for caches in between, with or without an Origin */
        http_add_header(call->conn, "Vary", "Origin");
    if (!origin)
        return false;
    may = all || is_listed(list, *origin);
    if (may) {
        add(call->conn, "Access-Control-Allow-Origin",
            all ? (struct http_slice){"*", 1} : *origin);
        http_add_header(call->conn, "Access-Control-Expose-Headers", EXPOSED);
    }
    return may;
}

void cors_tell_early(const struct front_call *call)
{
    const char *list = call->front->options.cors_origins;

    cors_tell(call);
    if (is_on(call->front) && !http_find(call->head, "origin") &&
        !strpbrk(list, ", ")) {
        http_add_header(call->conn, "Access-Control-Allow-Origin", list);
        http_add_header(call->conn, "Access-Control-Expose-Headers", EXPOSED);
    }
}

bool cors_answer(const struct front_call *call)
{
    const struct http_slice *method;
    bool may = cors_tell(call);

    if (!is_on(call->front) || !http_find(call->head, "origin"))
        return false;
    method = http_is(call->head->method, "OPTIONS")
                 ? http_find(call->head, "access-control-request-method")
                 : NULL;
    if (method)
        answer_preflight(call, *method, may);
    return method;
}

bool cors_decides(const struct front *front, struct http_slice name)
{
    return is_on(front) && http_begins_fold(name, "access-control-");
}
