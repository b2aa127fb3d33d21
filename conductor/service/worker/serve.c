/*
 * Requests that native workers serve (see struct instance_ops), and the frames
 * that they are sent.
 *
 * PREFILLs leave in the order of the decisions, because estimates assume that
 * order in each queue. A PREFILL that waits for its decode worker's
 * DECODE_READY holds up the next ones for at most ORDER_PATIENCE_US.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/core/index/block_key.h"
#include "conductor/service/internal.h"
#include "proto/stage.h"

#define ORDER_PATIENCE_US 5000

/* Without a plan (Algorithm 1) KV is fetched from one instance; the worker
 * loads from its own disk by itself. */
static void fetch_source(struct service_request *request,
                         const struct prefill_estimate *plan)
{
    if (plan->fetch_from != POOL_NO_INSTANCE &&
        plan->used_blocks > plan->local_blocks)
        request->attempt.sources[request->attempt.n_sources++] =
            (struct request_source){plan->fetch_from, plan->local_blocks,
                                    plan->used_blocks, false};
}

/* Takes over the plan's pieces, the highest blocks if there are too many: the
 * worker computes the rest. The lowest piece is extended below the split, in
 * case the computing is late. */
void request_plan_sources(struct service_request *request,
                          const struct schedule_decision *d)
{
    const struct load_plan *plan = &d->plan;
    uint32_t first = 0;

    request->attempt.n_sources = 0;
    request->attempt.load_mode = PROTO_LOAD_AUTO;
    if (!d->chosen.planned) {
        fetch_source(request, &d->chosen);
        return;
    }
    request->attempt.load_mode = (uint8_t)(PROTO_LOAD_COMPUTE + plan->mode);
    if (plan->n_pieces > MSG_SOURCES_MAX)
        first = plan->n_pieces - MSG_SOURCES_MAX;
    for (uint32_t i = first; i < plan->n_pieces; i++) {
        const struct load_piece *piece = &plan->pieces[i];
        const struct schedule_source *from = &d->sources[piece->source];
        uint32_t lowest = from->from_block > d->chosen.local_blocks
                              ? from->from_block
                              : d->chosen.local_blocks;

        request->attempt.sources[request->attempt.n_sources++] =
            (struct request_source){from->instance,
                                    i == 0 ? lowest : piece->from_block,
                                    piece->to_block, from->tier == TIER_SHARED};
    }
}

/* Adds the sources that are still registered. */
static void fill_sources(const struct service_request *request,
                         struct msg_prefill *m)
{
    m->load_mode = request->attempt.load_mode;
    for (uint32_t i = 0; i < request->attempt.n_sources; i++) {
        const struct request_source *from = &request->attempt.sources[i];
        const struct worker *f = worker_of(request->service, from->instance);
        struct msg_source *source = &m->sources[m->n_sources];

        if (!f)
            continue;
        if (from->instance == request->attempt.prefill) {
            source->kind =
                from->shared ? PROTO_SOURCE_SHARED : PROTO_SOURCE_DISK;
        } else {
            source->kind = PROTO_SOURCE_PEER;
            snprintf(source->host, sizeof(source->host), "%s", f->host);
            source->port = f->hello.peer_port;
        }
        source->from_block = from->from_block;
        source->to_block = from->to_block;
        m->n_sources++;
    }
}

/* Returns the us until the first token is due, at least 1; 0 = no SLO. */
static uint64_t due_in_us(const struct service_request *request)
{
    int64_t due_us =
        schedule_due_us(&request->dispatch.ask, &request->attempt.plan);
    int64_t left_us = due_us - loop_now_us(request->service->loop);

    if (due_us == 0)
        return 0;
    return left_us > 1 ? (uint64_t)left_us : 1;
}

/* Returns the us until its blocks are expected; 0 = they are there. */
static uint64_t ready_in_us(const struct service_request *request)
{
    int64_t left_us =
        request->attempt.plan.ready_us - loop_now_us(request->service->loop);

    return left_us > 0 ? (uint64_t)left_us : 0;
}

/* Returns the end layer, exclusive, of stage i of n. */
static uint32_t stage_end(uint32_t layers, uint32_t i, uint32_t n)
{
    return (uint32_t)((uint64_t)layers * (i + 1) / n);
}

/* Packs a PREFILL_GROUP for the attempt's lent workers. False: there are none,
 * or one is gone. */
static bool pack_group(const struct service_request *request,
                       const struct msg_prefill *prefill)
{
    struct service *s = request->service;
    const struct schedule_lent *lent = &request->attempt.lent;
    uint32_t layers = worker_of(s, request->attempt.prefill)->hello.layers;
    struct msg_prefill_group m = {
        .chunk_tokens = SCHEDULE_CHUNK_TOKENS,
        .to_layer = stage_end(layers, 0, lent->n + 1),
        .n_members = (uint8_t)lent->n,
        .prefill = *prefill,
    };

    for (uint32_t i = 0; i < lent->n; i++) {
        const struct worker *w = worker_of(s, lent->members[i]);
        struct msg_member *member = &m.members[i];

        if (!w)
            return false;
        snprintf(member->host, sizeof(member->host), "%s", w->host);
        member->port = w->hello.peer_port;
        member->to_layer = stage_end(layers, i + 1, lent->n + 1);
    }
    m.prefill.load_mode = PROTO_LOAD_COMPUTE;
    m.prefill.n_sources = 0;
    if (lent->n > 0)
        msg_prefill_group_pack(&s->native.out, request->attempt.id, &m);
    return lent->n > 0;
}

static void send_prefill(struct service_request *request,
                         const struct worker *p)
{
    struct service *s = request->service;
    struct worker *d = worker_of(s, request->attempt.decode);
    struct msg_prefill m = {
        .key_seed = request->prompt.key_seed,
        .max_tokens = request->prompt.max_tokens,
        .cost_us = (uint64_t)request->attempt.plan.prefill_us,
        .due_us = due_in_us(request),
        .ready_us = ready_in_us(request),
        .n_tokens = request->prompt.n_tokens,
        .tokens = (const uint8_t *)request->prompt.tokens,
    };
    if (d && d != p) {
        snprintf(m.decode_host, sizeof(m.decode_host), "%s", d->host);
        m.decode_port = d->hello.peer_port;
    }
    fill_sources(request, &m);
    wire_buf_reset(&s->native.out);
    if (!pack_group(request, &m))
        msg_prefill_pack(&s->native.out, request->attempt.id, &m);
    worker_link_send(p->link, &s->native.out);
}

/* Takes the request out of the line of its prefill worker. No-op if it was
 * sent. */
static void unsend(struct service_request *request)
{
    struct worker *p = worker_of(request->service, request->attempt.prefill);

    if (p && request->attempt.is_unsent)
        TAILQ_REMOVE(&p->unsent, request, unsent);
    request->attempt.is_unsent = false;
}

void request_flush_unsent(struct worker *worker)
{
    struct service_request *request, *next;

    for (request = TAILQ_FIRST(&worker->unsent); request; request = next) {
        next = TAILQ_NEXT(request, unsent);
        if (request->attempt.cleared) {
            unsend(request);
            send_prefill(request, worker);
        } else if (loop_now_us(request->service->loop) -
                       request->attempt.planned_us <
                   ORDER_PATIENCE_US) {
            return;
        }
    }
}

void request_clear(struct service_request *request)
{
    struct worker *p = worker_of(request->service, request->attempt.prefill);

    request->attempt.cleared = true;
    if (p)
        request_flush_unsent(p);
}

/* Announces to the decode worker first: it may refuse, and KV that arrives must
 * find the request announced. */
static int serve_send(struct service_request *request)
{
    struct service *s = request->service;
    struct worker *p = worker_of(s, request->attempt.prefill);
    struct worker *d = worker_of(s, request->attempt.decode);

    if (!p)
        return 0; /* on_left() finds this request */
    request->attempt.is_unsent = true;
    request->attempt.cleared = false;
    TAILQ_INSERT_TAIL(&p->unsent, request, unsent);
    if (!d || d == p) {
        request_clear(request);
        return 0;
    }
    struct msg_decode m = {
        .n_tokens = request->prompt.n_tokens,
        .max_tokens = request->prompt.max_tokens,
        .prompt_digest = block_key_prompt_digest(request->prompt.tokens,
                                                 request->prompt.n_tokens,
                                                 request->prompt.key_seed),
    };
    wire_buf_reset(&s->native.out);
    msg_decode_pack(&s->native.out, request->attempt.id, &m);
    worker_link_send(d->link, &s->native.out);
    return 0;
}

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

void request_send_cancel(struct service *s, uint32_t id, uint64_t attempt_id)
{
    struct worker *w = worker_of(s, id);

    if (!w)
        return;
    wire_buf_reset(&s->native.out);
    msg_empty_pack(&s->native.out, FRAME_CANCEL, attempt_id);
    worker_link_send(w->link, &s->native.out);
}

static void serve_abort(struct service_request *request)
{
    const struct request_attempt *a = &request->attempt;
    struct service *s = request->service;
    struct worker *p = worker_of(s, a->prefill);

    unsend(request);
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
