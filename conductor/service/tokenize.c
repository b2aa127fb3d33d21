/*
 * What the tokens of a text or a chat are, asked of an engine: where the index
 * knows what engines say that they hold, only token ids find it.
 *
 * The question may take engine_tokenize_ms. Without an answer by then the
 * request goes on as it is known, by its bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "conductor/core/index/block_key.h"
#include "conductor/front/json/text_buf.h"
#include "conductor/front/openai/tokens.h"
#include "conductor/service/engine.h"

#define ANSWER_BYTES_MAX (64u << 20)

struct tokenizing {
    struct service_request *request;
    struct exchange *exchange;
    struct event *timer;
    struct text_buf answer;
    char *headers; /* owned */
    int status;
};

void tokenize_abort(struct service_request *request)
{
    struct tokenizing *t = request->forward->tokenizing;

    if (!t)
        return;
    request->forward->tokenizing = NULL;
    upstream_cancel(t->exchange);
    if (t->timer)
        event_free(t->timer);
    text_buf_fini(&t->answer);
    free(t->headers);
    free(t);
}

/* The request is known by these tokens from now on. Returns 0 or -ENOMEM. */
static int take_tokens(struct service_request *request, const uint32_t *tokens,
                       size_t n)
{
    const struct config *c = &request->service->config;
    struct request_prompt *p = &request->prompt;
    uint32_t block_tokens = (uint32_t)c->block_tokens;
    uint64_t *keys = malloc((n / block_tokens + 1) * sizeof(*keys));

    if (!keys)
        return -ENOMEM;
    free(p->keys);
    p->keys = keys;
    p->n_tokens = (uint32_t)n;
    p->key_seed = block_key_seed(c->model, request->forward->adapter,
                                 request->forward->cache_salt);
    p->n_keys = block_keys_compute(tokens, n, block_tokens, p->key_seed, keys);
    request->dispatch.ask.keys = keys;
    request->dispatch.ask.n_keys = p->n_keys;
    request->dispatch.ask.n_tokens = p->n_tokens;
    request->forward->what.ids = true;
    return 0;
}

/* It is over, with tokens or without: the inbox has the request next. */
static void finish(struct service_request *request, const char *why_not)
{
    struct service *s = request->service;
    struct tokenizing *t = request->forward->tokenizing;
    uint32_t *tokens = NULL;
    size_t n = 0;

    if (!why_not &&
        (t->status != 200 || t->answer.error ||
         openai_tokens_read(t->answer.data, t->answer.len, &tokens, &n) ||
         n == 0 || n > INT32_MAX || take_tokens(request, tokens, n)))
        why_not = "the answer holds no tokens";
    free(tokens);
    tokenize_abort(request);
    if (!why_not) {
        s->metrics.tokenized++;
    } else if (s->metrics.tokenize_failed++ == 0) {
        log_warn("%s: model %s: no tokens of a prompt: %s; it is known by its "
                 "bytes",
                 request->request_id, s->config.model, why_not);
    }
    if (!request_set_state(request, REQUEST_RECEIVED))
        return;
    TAILQ_INSERT_TAIL(&s->inbox, request, entry);
    event_active(s->inbox_event, EV_TIMEOUT, 0);
}

static void on_answer(void *arg, const struct http_head *head)
{
    struct service_request *request = arg;

    request->forward->tokenizing->status = head->status;
}

static void on_bytes(void *arg, const char *bytes, size_t n)
{
    struct service_request *request = arg;

    text_buf_add(&request->forward->tokenizing->answer, bytes, n);
}

static void on_ended(void *arg)
{
    struct service_request *request = arg;

    request->forward->tokenizing->exchange = NULL;
    finish(request, NULL);
}

static void on_failed(void *arg, enum upstream_fault fault, const char *why)
{
    struct service_request *request = arg;

    (void)fault;
    request->forward->tokenizing->exchange = NULL;
    finish(request, why);
}

static const struct upstream_ops tokenize_ops = {
    .answer = on_answer,
    .bytes = on_bytes,
    .ended = on_ended,
    .failed = on_failed,
};

static void on_time(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    finish(arg, "not in time");
}

/* A ready engine that tokenizes such prompts, one after the other; NULL: none,
 * or none whose events have come. */
static struct engine *choose(struct service *s, bool chat)
{
    uint32_t n = pool_slots(s->pool);
    struct engine *found = NULL;
    bool heard = false;

    for (uint32_t i = 0; i < n; i++) {
        struct engine *e = s->engines[(s->next_tokenizer + i) % n];

        if (!e)
            continue;
        heard = heard || e->heard;
        if (!found && *e->config->tokenize_path &&
            (!chat || e->config->kind != ENGINE_SGLANG) &&
            pool_get(s->pool, e->id)->health == HEALTH_READY)
            found = e;
    }
    s->next_tokenizer++;
    return heard ? found : NULL;
}

bool tokenize_begin(struct service_request *request)
{
    const struct service_forward *what = &request->forward->what;
    struct service *s = request->service;
    int64_t us = s->config.engine_tokenize_ms * 1000;
    struct timeval limit = {us / 1000000, us % 1000000};
    struct engine *e = what->tokenize && us ? choose(s, what->chat) : NULL;
    struct tokenizing *t = e ? calloc(1, sizeof(*t)) : NULL;
    static const char type[] = "Content-Type: application/json\r\n";
    const char *key;

    if (!t)
        return false;
    request->forward->tokenizing = t;
    t->request = request;
    text_buf_init(&t->answer, ANSWER_BYTES_MAX);
    key = *e->authorization ? e->authorization : what->authorization;
    t->headers = malloc(sizeof(type) + strlen(key));
    t->timer = event_new(s->base, -1, 0, on_time, request);
    if (t->headers) {
        memcpy(t->headers, type, sizeof(type));
        memcpy(t->headers + sizeof(type) - 1, key, strlen(key) + 1);
    }
    if (t->headers && t->timer)
        t->exchange = upstream_send(e->upstream,
                                    &(struct upstream_request){
                                        .method = "POST",
                                        .path = e->config->tokenize_path,
                                        .headers = t->headers,
                                        .body = what->tokenize,
                                        .n = what->n_tokenize,
                                    },
                                    &tokenize_ops, request);
    if (!t->exchange) {
        tokenize_abort(request);
        return false;
    }
    event_add(t->timer, &limit);
    request->state = REQUEST_TOKENIZING;
    return true;
}
