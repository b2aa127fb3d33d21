/*
 * Asks an engine for the tokens of a text or a chat: engines report their
 * blocks by token ids, so that only token ids find them in the index.
 *
 * The answer may take engine_tokenize_ms. After that the request goes on with
 * its tokens guessed from its bytes. An engine that was late, or could not be
 * reached, is not asked for 1 s, then 2 s, up to LATE_PAUSE_MAX_US; if it could
 * not be reached, the next engine is asked in the remaining time. Tokens of a
 * whole text are cached (token_cache.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/core/index/block_key.h"
#include "conductor/json/text_buf.h"
#include "conductor/link/upstream/tokens.h"
#include "conductor/service/engine/engine.h"

#define ANSWER_BYTES_MAX (64u << 20)
#define LATE_PAUSE_US 1000000
#define LATE_PAUSE_MAX_US 30000000

struct tokenizing {
    uint32_t engine; /* pool id of the engine asked */
    struct exchange *exchange;
    struct loop_timer timer;
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
    loop_timer_stop(&t->timer);
    text_buf_fini(&t->answer);
    free(t->headers);
    free(t);
}

/* Sets the prompt's tokens and block keys. Returns 0 or -ENOMEM. */
static int take_tokens(struct service_request *request, const uint32_t *tokens,
                       size_t n)
{
    const struct config *c = &request->service->config;
    struct request_prompt *p = &request->prompt;

    p->key_seed = block_key_seed(c->model, request->forward->adapter,
                                 request->forward->cache_salt);
    if (request_compute_keys(request, tokens, n))
        return -ENOMEM;
    request->dispatch.ask.keys = p->keys;
    request->dispatch.ask.n_keys = p->n_keys;
    request->dispatch.ask.n_tokens = p->n_tokens;
    request->forward->what.ids = true;
    if (p->known_by == SERVICE_BY_BYTES)
        p->known_by = SERVICE_BY_TOKENS;
    return 0;
}

/* Logs the 1st, 2nd, 4th, 8th, ... failure. e: the engine asked; NULL = none,
 * or it is gone. */
static void note_failure(struct service_request *request,
                         const struct engine *e, const char *why)
{
    struct service *s = request->service;
    uint64_t n = ++s->metrics.tokenize_failed;

    if (n & (n - 1))
        return;
    log_warn("%s: model %s: a prompt could not be tokenized: %s%s%s%s%s; its "
             "bytes are used instead (%llu so far)",
             request->request_id, s->config.model, e ? "engine " : "",
             e ? e->config->name : "", e ? ", asked for " : "",
             e ? e->config->tokenize_path : "", why, (unsigned long long)n);
}

/* Ends the question, and puts the request into the inbox, with tokens or
 * without. why_not: NULL = an answer came. */
static void finish(struct service_request *request, const char *why_not)
{
    struct service *s = request->service;
    struct tokenizing *t = request->forward->tokenizing;
    struct engine *e = engine_of(s, t->engine);
    uint32_t *tokens = NULL;
    char status[48];
    size_t n = 0;

    snprintf(status, sizeof(status), ": its answer, %d, holds no tokens",
             t->status);
    if (!why_not &&
        (t->status != 200 || t->answer.error ||
         openai_tokens_read(t->answer.data, t->answer.len, &tokens, &n) ||
         n == 0 || n > INT32_MAX || take_tokens(request, tokens, n)))
        why_not = status;
    if (!why_not) {
        if (e)
            e->tokenize_pause_us = 0;
        token_cache_add(s->requests.tokens, request->forward->what.tokenize,
                        request->forward->what.n_tokenize, tokens, n);
    }
    free(tokens);
    tokenize_abort(request);
    if (why_not)
        note_failure(request, e, why_not);
    else
        s->metrics.tokenized++;
    if (service_request_set_state(request, REQUEST_RECEIVED))
        request_receive(request);
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

/* Pauses questions to this engine. A question that fails during the pause does
 * not prolong it. */
static void pause_engine(struct service_request *request)
{
    struct engine *e =
        engine_of(request->service, request->forward->tokenizing->engine);
    int64_t now_us = loop_now_us(request->service->loop);

    if (!e || now_us < e->tokenize_after_us)
        return;
    e->tokenize_pause_us =
        e->tokenize_pause_us == 0 ? LATE_PAUSE_US : 2 * e->tokenize_pause_us;
    if (e->tokenize_pause_us > LATE_PAUSE_MAX_US)
        e->tokenize_pause_us = LATE_PAUSE_MAX_US;
    e->tokenize_after_us = now_us + e->tokenize_pause_us;
}

static void on_time(void *arg)
{
    pause_engine(arg);
    finish(arg, ": it did not answer in time");
}

/* Returns the next ready engine, in turn, that can tokenize and may serve the
 * request; NULL = none, or all pause. *wanted: the tokens are of use, as such
 * an engine exists and some engine publishes KV events. */
static struct engine *choose(const struct service_request *request,
                             bool *wanted)
{
    struct service *s = request->service;
    int64_t now_us = loop_now_us(s->loop);
    uint32_t n = pool_slots(s->pool);
    struct engine *found = NULL;
    bool heard = false;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = (s->requests.next_tokenizer + i) % n;
        struct engine *e = s->engines.by_slot[slot];

        if (!e)
            continue;
        heard = heard || e->events.heard;
        if (!found && *e->config->tokenize_path &&
            (!request->named || name_set_has(request->named, slot)) &&
            pool_takes_work(pool_get(s->pool, e->id))) {
            *wanted = true;
            found = now_us >= e->tokenize_after_us ? e : NULL;
        }
    }
    s->requests.next_tokenizer++;
    *wanted = *wanted && heard;
    return heard ? found : NULL;
}

bool service_tokenizes(const struct service *s)
{
    return s->config.engine_tokenize_ms && s->engines.n_heard &&
           s->engines.n_asked;
}

static bool ask(struct service_request *request, struct engine *e);

/* Asks the next engine if this one could not be reached. Its pause prevents a
 * second question to it. */
static void on_failed(void *arg, enum upstream_fault fault, const char *why)
{
    struct service_request *request = arg;
    struct tokenizing *t = request->forward->tokenizing;
    struct engine *next = NULL;
    bool wanted = false;
    char text[128];

    t->exchange = NULL;
    if (upstream_gone(fault)) {
        pause_engine(request);
        next = choose(request, &wanted);
    }
    if (next && ask(request, next))
        return;
    snprintf(text, sizeof(text), ": %s", why);
    finish(request, text);
}

static const struct upstream_ops tokenize_ops = {
    .answer = on_answer,
    .bytes = on_bytes,
    .ended = on_ended,
    .failed = on_failed,
};

/* Asks an engine. False: out of memory. */
static bool ask(struct service_request *request, struct engine *e)
{
    const struct service_forward *what = &request->forward->what;
    struct tokenizing *t = request->forward->tokenizing;
    const char *key =
        *e->authorization ? e->authorization : what->authorization;

    t->engine = e->id;
    t->status = 0;
    text_buf_clear(&t->answer);
    free(t->headers);
    t->headers = NULL;
    if (asprintf(&t->headers, "Content-Type: application/json\r\n%s", key) <
        0) {
        t->headers = NULL;
        return false;
    }
    t->exchange = upstream_send(e->upstream,
                                &(struct upstream_request){
                                    .method = "POST",
                                    .path = e->config->tokenize_path,
                                    .headers = t->headers,
                                    .body = what->tokenize,
                                    .n = what->n_tokenize,
                                },
                                &tokenize_ops, request);
    return t->exchange;
}

/* Takes the tokens from the cache. False: not there, or out of memory. */
static bool take_cached(struct service_request *request)
{
    const struct service_forward *what = &request->forward->what;
    struct service *s = request->service;
    size_t n;
    const uint32_t *tokens = token_cache_find(
        s->requests.tokens, what->tokenize, what->n_tokenize, &n);

    if (!tokens || take_tokens(request, tokens, n))
        return false;
    s->metrics.tokenize_cached++;
    return true;
}

bool tokenize_begin(struct service_request *request)
{
    const struct service_forward *what = &request->forward->what;
    struct service *s = request->service;
    int64_t us = s->config.engine_tokenize_ms * 1000;
    bool wanted = false;
    struct engine *e = what->tokenize && us ? choose(request, &wanted) : NULL;
    struct tokenizing *t;

    if (wanted && take_cached(request))
        return false;
    t = e ? calloc(1, sizeof(*t)) : NULL;
    if (!t) {
        if (wanted)
            note_failure(request, NULL, "no engine that answers in time");
        return false;
    }
    request->forward->tokenizing = t;
    text_buf_init(&t->answer, ANSWER_BYTES_MAX);
    loop_timer_init(s->loop, &t->timer, on_time, request);
    if (!ask(request, e) || loop_timer_start(&t->timer, us)) {
        tokenize_abort(request);
        return false;
    }
    request->state = REQUEST_TOKENIZING;
    return true;
}
