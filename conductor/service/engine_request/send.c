/* Sends a request to an engine: its headers and its body. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "conductor/service/engine/engine.h"

#define RANK_HEADER "X-data-parallel-rank: "

/* Removes the lines that begin with `name` from a client's headers. */
static void drop_lines(char *headers, const char *name)
{
    char *to = headers, *end;

    for (char *at = headers; *at; at = end) {
        end = strchr(at, '\n');
        end = end ? end + 1 : at + strlen(at);
        if (strncasecmp(at, name, strlen(name)) == 0)
            continue;
        memmove(to, at, (size_t)(end - at));
        to += end - at;
    }
    *to = '\0';
}

char *forward_headers(const struct engine *e, const char *headers,
                      const char *key, const char *id)
{
    const char *own = e->authorization[0] ? e->authorization : key;
    size_t n =
        strlen(headers) + strlen(own) + strlen(id) + TRACEPARENT_BYTES + 100;
    int64_t rank = e->config->dp_rank;
    char *text = malloc(n), *at;

    if (!text)
        return NULL;
    at = stpcpy(stpcpy(text, headers), own);
    stpcpy(stpcpy(stpcpy(at, "x-request-id: "), id), "\r\n");
    if (rank < 0)
        return text;
    size_t used = strlen(text);
    snprintf(text + used, n - used, RANK_HEADER "%lld\r\n", (long long)rank);
    return text;
}

/* Writes the trace header, so that the engine's spans become children of the
 * attempt's. forward_headers() has left room. */
static void set_trace(const struct service_request *request, char *headers)
{
    char own[TRACEPARENT_BYTES];

    spans_traceparent(request, own);
    if (!*own)
        return;
    drop_lines(headers, "traceparent:");
    if (spans_is_new(request))
        drop_lines(headers, "tracestate:");
    stpcpy(stpcpy(stpcpy(headers + strlen(headers), "traceparent: "), own),
           "\r\n");
}

char *forward_compose(const struct service_request *request)
{
    const struct forward *f = request->forward;
    char *headers = forward_headers(f->engine, f->what.headers,
                                    f->what.authorization, request->request_id);

    if (headers)
        set_trace(request, headers);
    return headers;
}

int forward_ask(struct service_request *request, const char *body, size_t n)
{
    struct forward *f = request->forward;

    f->headers = forward_compose(request);
    if (f->headers)
        f->exchange = upstream_send(
            f->engine->upstream,
            &(struct upstream_request){
                .method = f->what.method,
                .path = f->what.path,
                .headers = f->headers,
                .body = body,
                .n = n,
                .holds_head = f->what.stream,
                .repeats = f->what.prompt && !request->by->two_legs,
            },
            f->ops, request);
    if (!f->exchange)
        return -ENOMEM;
    f->engine->count.sent++;
    return 0;
}
