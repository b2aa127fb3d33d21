/* Serves requests with native workers: see struct instance_ops. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "conductor/service/internal.h"

static int serve_take(struct service_request *request,
                      const struct service_request_params *p)
{
    size_t bytes = p->n_tokens * sizeof(*p->tokens);

    request->prompt.known_by = SERVICE_BY_TOKENS;
    request->dispatch.may_hold = true;
    request->prompt.tokens = malloc(bytes);
    if (!request->prompt.tokens ||
        request_compute_keys(request, p->tokens, p->n_tokens))
        return -ENOMEM;
    memcpy(request->prompt.tokens, p->tokens, bytes);
    return 0;
}

static int serve_send(struct service_request *request)
{
    request_send(request);
    return 0;
}

void request_send_cancel(struct service *s, uint32_t id, uint64_t attempt_id)
{
    struct worker *w = worker_of(s, id);

    if (!w)
        return;
    wire_buf_reset(&s->out);
    msg_empty_pack(&s->out, FRAME_CANCEL, attempt_id);
    worker_link_send(w->link, &s->out);
}

static void serve_abort(struct service_request *request)
{
    const struct request_attempt *a = &request->attempt;
    struct service *s = request->service;
    struct worker *p = worker_of(s, a->prefill);

    request_unsend(request);
    if (p)
        request_flush_unsent(p); /* lets requests behind it go now */
    request_send_cancel(s, a->prefill, a->id);
    if (a->decode != a->prefill)
        request_send_cancel(s, a->decode, a->id);
}

/* Returns the worker whose progress the request now depends on. */
static uint32_t expected_of(const struct service_request *request)
{
    bool at_prefill =
        request->attempt.cleared && (request->state == REQUEST_SCHEDULED ||
                                     request->state == REQUEST_PREFILLING);

    return at_prefill || !request->attempt.decode ? request->attempt.prefill
                                                  : request->attempt.decode;
}

static void serve_fail_silent(struct service_request *request, int64_t now_us)
{
    const struct service *s = request->service;
    int64_t limit_us = s->config.request_timeout_ms * 1000;
    char why[MSG_TEXT_MAX];

    if (!request->attempt.id || now_us - request->attempt.heard_us < limit_us ||
        (request->output.n_tokens &&
         now_us - request->output.last_token_us < limit_us))
        return;
    uint32_t id = expected_of(request);
    const struct worker *w = worker_of(s, id);
    snprintf(why, sizeof(why),
             "worker %s made no progress for %lld ms (request_timeout_ms)",
             w ? w->hello.name : "?", (long long)s->config.request_timeout_ms);
    log_warn("%s: %s", request->request_id, why);
    request_instance_lost(request, id, why);
}

/* Nothing to free: the prompt was counted when the worker reported the end of
 * its prefill, and the request has no memory of its own here. */
static void serve_nothing(struct service_request *)
{
}

const struct instance_ops native_ops = {
    .take = serve_take,
    .send = serve_send,
    .abort = serve_abort,
    .count = serve_nothing,
    .fail_silent = serve_fail_silent,
    .free = serve_nothing,
    .tells_begin = true,
    .hands_over = true,
};
