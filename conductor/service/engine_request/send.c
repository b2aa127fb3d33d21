/* Sends a request to an engine: its headers and its body; and takes what a new
 * request has for engines (see struct instance_ops). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "conductor/connector/pair.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/ticket/ticket.h"

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

/* Guesses a prompt's tokens: one for four bytes of the body, as in English. In
 * a larger body most bytes are no prompt text: sounds, pictures, or further
 * prompts. */
static uint32_t guess_tokens(const struct service_forward *f)
{
    size_t n = f->n / 4;

    if (f->looks || n == 0)
        return 1;
    return n < SCHEDULE_PIECE_TOKENS ? (uint32_t)n : SCHEDULE_PIECE_TOKENS;
}

/* Returns a bit for each group of engines whose pairs cannot share the request.
 */
static uint32_t apart(const struct service_forward *f)
{
    return f->prompt ? pair_apart(f->pairs) : UINT32_MAX;
}

/* Returns the most tokens to decode. One token needs no decode leg, unless a
 * prefill engine cannot answer alone. */
static int64_t decoded_tokens(const struct service *s, uint32_t max_tokens)
{
    for (uint32_t i = 0; max_tokens == 1 && i < pool_slots(s->pool); i++) {
        const struct engine *e = engine_at(s, i);
        const struct pair_protocol *pair =
            e ? pair_protocol(e->config->kv_connector) : NULL;

        if (pair && !pair->alone)
            return 2;
    }
    return max_tokens;
}

/* Sets the block keys of a prompt of tokens, or of an engine's hashes. */
static int set_keys(struct service_request *request,
                    const struct service_request_params *p)
{
    const struct service_forward *f = p->forward;
    struct request_prompt *prompt = &request->prompt;

    prompt->known_by = f->n_hashes ? SERVICE_BY_HASHES
                       : f->ids    ? SERVICE_BY_TOKENS
                                   : SERVICE_BY_BYTES;
    if (!f->hashes)
        return request_compute_keys(request, p->tokens, p->n_tokens);
    prompt->n_keys = f->n_hashes;
    prompt->keys = malloc((prompt->n_keys + 1) * sizeof(*prompt->keys));
    if (!prompt->keys)
        return -ENOMEM;
    hashes_keys(request->service, f->hashes, prompt->n_keys, prompt->key_seed,
                prompt->keys);
    return 0;
}

int forward_take(struct service_request *request,
                 const struct service_request_params *p)
{
    const struct service *s = request->service;
    const struct service_forward *what = p->forward;
    struct dispatch_request *d = &request->dispatch;
    struct forward *f = request->forward = calloc(1, sizeof(*f));

    if (!f || set_keys(request, p))
        return -ENOMEM;
    if (p->n_tokens == 0)
        request->prompt.n_tokens = guess_tokens(what);
    f->what = *what;
    f->what.hashes = NULL;
    text_copy(f->cache_salt, sizeof(f->cache_salt), what->cache_salt);
    text_copy(f->adapter, sizeof(f->adapter), p->adapter ? p->adapter : "");
    if (!what->ticket)
        request->method = what->method;
    d->ask.only =
        kept_find(&s->requests.kept, what->owner, what->kept, what->n_kept);
    d->ask.max_output_tokens = decoded_tokens(s, p->max_tokens);
    d->ask.whole = apart(what);
    if (what->looks)
        d->slo_ttft_us = d->slo_tbt_us = 0;
    return 0;
}
