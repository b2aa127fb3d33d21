/* Checks the conductors' frames, and begins and cancels requests. */
#include <errno.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/service/internal.h"

/* Refuses a request. Returns 0. */
static int turn_away(struct conductor *from, uint64_t id, int code,
                     const char *why)
{
    log_warn("request %llu refused: %s", (unsigned long long)id, why);
    worker_send_failed(from->worker, from, id, (uint16_t)code, why);
    return 0;
}

/* Does the checks common to PREFILL and DECODE. Returns 0, or an error code
 * with `text`. decodes: the answer's tokens need blocks here. */
static int check_request(const struct worker *w, uint64_t id, uint32_t n_tokens,
                         uint32_t max_tokens, bool decodes,
                         char text[MSG_TEXT_MAX])
{
    uint32_t window = w->layout->window_tokens;

    if (request_find(&w->requests, id))
        return error_say(text, MSG_TEXT_MAX, PROTO_E_DUPLICATE,
                         "the request id is in use");
    if (n_tokens == 0 || max_tokens == 0)
        return error_say(
            text, MSG_TEXT_MAX, PROTO_E_INVALID,
            "%u prompt tokens and max_tokens %u: both must be 1 or more",
            n_tokens, max_tokens);
    uint32_t here = decodes ? max_tokens : 1; /* answer tokens computed here */
    if ((uint64_t)n_tokens + here - 1 > window)
        return error_say(
            text, MSG_TEXT_MAX, PROTO_E_INVALID,
            "%u prompt tokens and %u to answer do not fit the window of "
            "%u tokens",
            n_tokens, here, window);
    struct kv_store_stats stats;
    kv_store_stats(w->store, &stats);
    uint32_t blocks = request_blocks(n_tokens, here, w->layout->block_tokens);
    if (blocks > stats.capacity_blocks)
        return error_say(text, MSG_TEXT_MAX, PROTO_E_CAPACITY,
                         "%u KV blocks are needed, this worker has %u", blocks,
                         stats.capacity_blocks);
    return PROTO_OK;
}

static int check_prefill(const struct conductor *from, uint64_t id,
                         const struct msg_prefill *m, bool decodes,
                         char text[MSG_TEXT_MAX])
{
    const struct worker *w = from->worker;

    if (!(from->role & PROTO_ROLE_PREFILL))
        return error_say(text, MSG_TEXT_MAX, PROTO_E_INVALID,
                         "PREFILL, but the role is decode");
    if (decodes && !(from->role & PROTO_ROLE_DECODE))
        return error_say(text, MSG_TEXT_MAX, PROTO_E_INVALID,
                         "no decode worker is named, and the role is prefill");
    int code = check_request(w, id, m->n_tokens, m->max_tokens, decodes, text);
    if (code)
        return code;
    for (uint32_t i = 0; i < m->n_tokens; i++) {
        uint32_t token = wire_u32_at(m->tokens, i);

        if (token < w->layout->vocab)
            continue;
        return error_say(
            text, MSG_TEXT_MAX, PROTO_E_INVALID,
            "token %u is %u: ids must be below the vocabulary of %u", i, token,
            w->layout->vocab);
    }
    return PROTO_OK;
}

/* Makes the request of a frame. Returns NULL if it was refused. */
static struct request *make_request(struct conductor *from,
                                    struct request_spec spec)
{
    spec.conductor = from;
    spec.block_tokens = from->worker->layout->block_tokens;
    struct request *r = request_new(&spec);

    if (r)
        r->turn.arrival_us = loop_now_us(from->worker->loop);
    else
        turn_away(from, spec.id, PROTO_E_BUSY, "out of memory");
    return r;
}

/* Begins the prefill `m`. Returns NULL if it was refused. */
static struct request *begin_prefill(struct conductor *from, uint64_t id,
                                     const struct msg_prefill *m)
{
    struct worker *w = from->worker;
    char text[MSG_TEXT_MAX];
    bool decodes = !m->decode_host[0] && m->max_tokens > 1;
    int code = check_prefill(from, id, m, decodes, text);

    if (code) {
        turn_away(from, id, code, text);
        return NULL;
    }
    struct request *r =
        make_request(from, (struct request_spec){.id = id,
                                                 .key_seed = m->key_seed,
                                                 .tokens = m->tokens,
                                                 .n_tokens = m->n_tokens,
                                                 .max_tokens = m->max_tokens,
                                                 .decodes_here = decodes});
    if (!r)
        return NULL;
    r->turn.cost_us = (int64_t)m->cost_us;
    r->turn.has_slo = m->due_us > 0;
    if (r->turn.has_slo)
        r->turn.deadline_us = r->turn.arrival_us + (int64_t)m->due_us;
    r->turn.expected_us = r->turn.arrival_us + (int64_t)m->ready_us;
    if (batch_enqueue(w->batch, r) < 0) {
        request_free(r);
        snprintf(text, sizeof(text), "the queue is full: %u prefills wait",
                 w->options->max_queue);
        turn_away(from, id, PROTO_E_BUSY, text);
        return NULL;
    }
    if (m->max_tokens > 1) {
        snprintf(r->push.host, sizeof(r->push.host), "%s", m->decode_host);
        r->push.port = m->decode_port;
    }
    request_insert(&w->requests, r);
    worker_poke(w);
    return r;
}

static int on_prefill(struct conductor *from, uint64_t id,
                      const uint8_t *payload, size_t len)
{
    struct msg_prefill m;

    if (msg_prefill_unpack(payload, len, &m))
        return -EBADMSG;
    struct request *r = begin_prefill(from, id, &m);
    if (r)
        worker_begin_load(from->worker, r, &m);
    return 0;
}

static int on_prefill_group(struct conductor *from, uint64_t id,
                            const uint8_t *payload, size_t len)
{
    struct msg_prefill_group m;

    if (msg_prefill_group_unpack(payload, len, &m))
        return -EBADMSG;
    struct request *r = begin_prefill(from, id, &m.prefill);
    if (r)
        worker_lead(from->worker, r, &m);
    return 0;
}

static int on_decode(struct conductor *from, uint64_t id,
                     const uint8_t *payload, size_t len)
{
    struct worker *w = from->worker;
    struct msg_decode m;
    char text[MSG_TEXT_MAX];

    if (msg_decode_unpack(payload, len, &m))
        return -EBADMSG;
    if (!(from->role & PROTO_ROLE_DECODE))
        return turn_away(from, id, PROTO_E_INVALID,
                         "DECODE, but the role is prefill");
    int code = check_request(w, id, m.n_tokens, m.max_tokens, true, text);
    if (code)
        return turn_away(from, id, code, text);
    if (w->n_arriving >= w->options->max_queue)
        return turn_away(from, id, PROTO_E_BUSY,
                         "too many decodes are announced");
    struct request *r = make_request(
        from, (struct request_spec){.id = id,
                                    .n_tokens = m.n_tokens,
                                    .max_tokens = m.max_tokens,
                                    .prompt_digest = m.prompt_digest,
                                    .decodes_here = true});
    if (!r)
        return 0;
    request_insert(&w->requests, r);
    w->n_arriving++;
    msg_empty_pack(&w->out, FRAME_DECODE_READY, id);
    worker_send(w, from);
    return 0;
}

static int on_role(struct conductor *from, const uint8_t *payload, size_t len)
{
    struct msg_role m;

    if (msg_role_unpack(payload, len, &m))
        return -EBADMSG;
    if (!worker_is_led_by(from)) {
        log_warn("ROLE of conductor %s:%u is ignored: another one leads",
                 from->at.host, from->at.port);
        worker_turn(from); /* announces the actual role */
        return 0;
    }
    log_info("the role is %s from now on; it was %s", proto_role_name(m.role),
             proto_role_name(from->worker->role));
    worker_set_role(from, m.role);
    return 0;
}

int worker_on_frame(void *conductor, const struct frame_header *h,
                    const uint8_t *payload)
{
    struct conductor *from = conductor;
    struct worker *w = from->worker;
    struct request *r;

    switch (h->type) {
    case FRAME_PREFILL:
        return on_prefill(from, h->request_id, payload, h->length);
    case FRAME_PREFILL_GROUP:
        return on_prefill_group(from, h->request_id, payload, h->length);
    case FRAME_DECODE:
        return on_decode(from, h->request_id, payload, h->length);
    case FRAME_CANCEL:
        if (h->length != 0)
            return -EBADMSG;
        worker_cancel_copy(from, h->request_id);
        r = request_find(&w->requests, h->request_id);
        if (r && r->conductor == from) {
            log_debug("request %llu cancelled while %s",
                      (unsigned long long)r->id, request_state_name(r->state));
            worker_drop(w, r);
        }
        return 0;
    case FRAME_INVENTORY:
        if (h->length != 0)
            return -EBADMSG;
        worker_begin_inventory(from);
        return 0;
    case FRAME_LEAVE:
        if (h->length != 0)
            return -EBADMSG;
        if (!from->leave_due)
            return -EPROTO;
        worker_leave_answered(from);
        return 0;
    case FRAME_COPY:
        return worker_on_copy(from, h->request_id, payload, h->length);
    case FRAME_DROP:
        return worker_is_led_by(from) ? worker_on_drop(w, payload, h->length)
                                      : 0;
    case FRAME_ROLE:
        return on_role(from, payload, h->length);
    case FRAME_LEAD:
        return worker_take_lead(from, payload, h->length);
    case FRAME_CONDUCTORS:
        return worker_take_conductors(from, payload, h->length);
    default:
        return -EPROTO;
    }
}
