/* A request's frames to its workers.
 *
 * Prefill workers serve first come, first served, and the estimates count on
 * it: so PREFILLs leave in the order of the decisions, although some wait for
 * their decode worker's DECODE_READY. A decode worker that does not answer
 * holds the others up for ORDER_PATIENCE_US and no longer. */
#include "conductor/service/state.h"

#include "base/clock.h"
#include "conductor/core/index/block_key.h"

#include <stdio.h>

#define ORDER_PATIENCE_US 5000

/* Algorithm 1 loads all that it fetches from one instance; what the worker's
 * own disk holds it loads by itself. */
static void fetch_source(struct service_call *call,
                         const struct prefill_estimate *plan)
{
    if (plan->fetch_from != POOL_NO_INSTANCE &&
        plan->used_blocks > plan->local_blocks)
        call->sources[call->n_sources++] = (struct call_source){
            plan->fetch_from, plan->local_blocks, plan->used_blocks};
}

/* A plan's pieces go out as they are, the highest ones if there are too many:
 * what nobody is asked for is computed. The lowest may go on below the split,
 * in case the computing is late. */
void call_plan_sources(struct service_call *call,
                       const struct schedule_decision *d)
{
    const struct load_plan *plan = &d->plan;
    uint32_t first = 0;
    call->n_sources = 0;
    call->load_mode = PROTO_LOAD_AUTO;
    if (!d->chosen.planned) {
        fetch_source(call, &d->chosen);
        return;
    }
    call->load_mode = (uint8_t)(PROTO_LOAD_COMPUTE + plan->mode);
    if (plan->n_pieces > MSG_SOURCES_MAX)
        first = plan->n_pieces - MSG_SOURCES_MAX;
    for (uint32_t i = first; i < plan->n_pieces; i++) {
        const struct load_piece *piece = &plan->pieces[i];
        const struct schedule_source *from = &d->sources[piece->source];
        uint32_t lowest = from->from_block > d->chosen.local_blocks
                              ? from->from_block
                              : d->chosen.local_blocks;
        call->sources[call->n_sources++] = (struct call_source){
            from->instance, i == 0 ? lowest : piece->from_block,
            piece->to_block};
    }
}

/* The sources that are still there. */
static void fill_sources(const struct service_call *call, struct msg_prefill *m)
{
    m->load_mode = call->load_mode;
    m->split_block = call->plan.split_block;
    for (uint32_t i = 0; i < call->n_sources; i++) {
        const struct call_source *from = &call->sources[i];
        const struct worker *f = worker_of(call->service, from->instance);
        struct msg_source *source = &m->sources[m->n_sources];
        if (!f)
            continue;
        if (from->instance == call->prefill) {
            source->kind = PROTO_SOURCE_DISK;
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

static void send_prefill(struct service_call *call, const struct worker *p)
{
    struct service *s = call->service;
    struct worker *d = worker_of(s, call->decode);
    struct msg_prefill m = {
        .key_seed = call->key_seed,
        .max_tokens = call->max_tokens,
        .n_tokens = call->n_tokens,
        .tokens = (const uint8_t *)call->tokens,
    };
    if (d && d != p) {
        snprintf(m.decode_host, sizeof(m.decode_host), "%s", d->host);
        m.decode_port = d->hello.peer_port;
    }
    fill_sources(call, &m);
    wire_buf_reset(&s->out);
    msg_prefill_encode(&s->out, call->wire_id, &m);
    worker_link_send(p->link, &s->out);
}

void call_flush_unsent(struct worker *worker)
{
    struct service_call *call, *next;
    int64_t now_us = clock_now_us();
    for (call = TAILQ_FIRST(&worker->unsent); call; call = next) {
        next = TAILQ_NEXT(call, unsent);
        if (call->cleared) {
            call_unsend(call);
            send_prefill(call, worker);
        } else if (now_us - call->planned_us < ORDER_PATIENCE_US) {
            return;
        }
    }
}

void call_unsend(struct service_call *call)
{
    struct worker *p = worker_of(call->service, call->prefill);
    if (p && call->is_unsent)
        TAILQ_REMOVE(&p->unsent, call, unsent);
    call->is_unsent = false;
}

void call_clear(struct service_call *call)
{
    struct worker *p = worker_of(call->service, call->prefill);
    call->cleared = true;
    if (p)
        call_flush_unsent(p);
}

/* The decode worker is told first: it may refuse, and the KV that arrives
 * there must find the request announced. */
void call_send(struct service_call *call)
{
    struct service *s = call->service;
    struct worker *p = worker_of(s, call->prefill);
    struct worker *d = worker_of(s, call->decode);
    if (!p)
        return; /* its loss is on the way and finds this call */
    call->is_unsent = true;
    call->cleared = false;
    TAILQ_INSERT_TAIL(&p->unsent, call, unsent);
    if (!d || d == p) {
        call_clear(call);
        return;
    }
    struct msg_decode m = {
        .n_tokens = call->n_tokens,
        .max_tokens = call->max_tokens,
        .prompt_digest = block_key_prompt_digest(call->tokens, call->n_tokens,
                                                 call->key_seed),
    };
    wire_buf_reset(&s->out);
    msg_decode_encode(&s->out, call->wire_id, &m);
    worker_link_send(d->link, &s->out);
}
