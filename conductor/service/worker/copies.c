/*
 * See copies.h. A copy is a frame COPY to the receiving worker, with an attempt
 * id of its own; a worker has one at a time, and ends it with COPIED or FAILED.
 * A copy that is PATIENCE_US overdue is cancelled.
 */
#include "conductor/service/worker/copies.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/core/replication/replicas.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/models.h"

#define PATIENCE_US 15000000
/* Cap of a copy's expected time. */
#define COPY_MAX_US INT64_C(600000000)

struct copies {
    struct replication *core;
};

struct copies *copies_new(struct service *service)
{
    struct copies *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->core = replication_new(&service->dispatch,
                              pool_config(service->pool)->max_instances, 0,
                              loop_random(service->loop));
    if (c->core)
        return c;
    free(c);
    return NULL;
}

void copies_free(struct copies *copies)
{
    if (!copies)
        return;
    replication_free(copies->core);
    free(copies);
}

void copies_asked(const struct service_request *request, int64_t now_us)
{
    const struct service *s = request->service;

    if (s->native.links)
        replication_asked(s->native.copies->core, &request->dispatch.ask,
                          request->prompt.key_seed, now_us);
}

static uint64_t take_note(struct service *s, const struct replication_action *a)
{
    const struct pool_instance *from = pool_get(s->pool, a->from);
    const struct pool_instance *to = pool_get(s->pool, a->to);

    return notes_take(&s->native.copy_notes, a, from ? from->name : "",
                      to ? to->name : "", loop_now_us(s->loop));
}

/* Expected time of a copy at its ordered rate. */
static int64_t least_us(const struct worker *to,
                        const struct replication_action *a)
{
    double bytes = (double)(a->end_block - a->first_block) *
                   (double)to->hello.block_tokens *
                   (double)to->hello.kv_bytes_per_token;
    double us = bytes * 1e6 / (a->bytes_per_s + 1.0);

    return us < (double)COPY_MAX_US ? (int64_t)us : COPY_MAX_US;
}

static bool send_copy(struct service *s, const struct replication_action *a)
{
    struct worker *to = worker_of(s, a->to);
    const struct worker *from = worker_of(s, a->from);
    struct msg_copy m = {.key_seed = a->tag,
                         .bytes_per_s = (uint64_t)a->bytes_per_s + 1,
                         .from_block = a->first_block,
                         .n = a->end_block,
                         .keys = (const uint8_t *)a->keys};

    if (!to || !from || to->copy.attempt_id)
        return false;
    to->copy = (struct worker_copy){.attempt_id = s->requests.next_attempt++ *
                                                  s->requests.size,
                                    .id = a->id,
                                    .blocks = a->end_block - a->first_block,
                                    .note = take_note(s, a),
                                    .begun_us = loop_now_us(s->loop),
                                    .takes_us = least_us(to, a)};
    snprintf(m.host, sizeof(m.host), "%s", from->host);
    m.port = from->hello.peer_port;
    wire_buf_reset(&s->native.out);
    instances_pack_lead(s, to);
    msg_copy_pack(&s->native.out, to->copy.attempt_id, &m);
    worker_link_send(to->link, &s->native.out);
    return true;
}

static void send_drop(struct service *s, const struct replication_action *a)
{
    struct worker *w = worker_of(s, a->to);
    const struct msg_drop m = {.key = a->key,
                               .n = a->end_block - a->first_block};

    if (!w)
        return;
    take_note(s, a);
    wire_buf_reset(&s->native.out);
    instances_pack_lead(s, w);
    msg_drop_pack(&s->native.out, 0, &m);
    worker_link_send(w->link, &s->native.out);
}

static void go_on(struct service *s)
{
    struct replication *core = s->native.copies->core;
    struct replication_action a;

    while (replication_next(core, loop_now_us(s->loop), &a))
        if (a.kind == REPLICATION_DROP)
            send_drop(s, &a);
        else if (!send_copy(s, &a))
            replication_ended(core, a.id, 0, loop_now_us(s->loop));
    s->metrics.replication = *replication_counts(core);
}

static void ended(struct service *s, struct worker *w, uint32_t blocks)
{
    struct copies *c = s->native.copies;
    const struct worker_copy copy = w->copy;

    notes_ended(&s->native.copy_notes, copy.note, blocks);
    w->copy = (struct worker_copy){.attempt_id = 0};
    replication_ended(c->core, copy.id, blocks, loop_now_us(s->loop));
}

bool copies_frame(struct service *service, uint32_t id,
                  const struct frame_header *h, const uint8_t *payload, int *rc)
{
    struct worker *w = worker_of(service, id);
    struct msg_copied m;
    struct msg_error why;

    if (!w || w->copy.attempt_id == 0 || h->request_id != w->copy.attempt_id)
        return false;
    *rc = 0;
    if (h->type == FRAME_COPIED) {
        if (msg_copied_unpack(payload, h->length, &m))
            *rc = -EBADMSG;
        else if (m.blocks > w->copy.blocks)
            *rc = -EPROTO;
        else
            ended(service, w, m.blocks);
    } else if (h->type == FRAME_FAILED) {
        if (msg_error_unpack(payload, h->length, &why))
            *rc = -EBADMSG;
        else
            ended(service, w, 0);
    } else {
        *rc = -EPROTO;
    }
    if (*rc == 0)
        go_on(service);
    return true;
}

void copies_left(struct service *service, const struct worker *worker)
{
    if (worker->copy.attempt_id)
        notes_ended(&service->native.copy_notes, worker->copy.note, 0);
    replication_lost(service->native.copies->core, worker->id);
}

void copies_tick(struct service *service)
{
    int64_t now_us = loop_now_us(service->loop);

    if (!service->native.links || !cluster_leads(service->models->cluster))
        return;
    for (uint32_t i = 0; i < pool_slots(service->pool); i++) {
        struct worker *w = &service->native.workers[i];

        if (!w->link || w->copy.attempt_id == 0 ||
            now_us - w->copy.begun_us - w->copy.takes_us < PATIENCE_US)
            continue;
        log_warn("worker %s: a copy of %u blocks takes too long", w->hello.name,
                 w->copy.blocks);
        request_send_cancel(service, w->id, w->copy.attempt_id);
        ended(service, w, 0);
    }
    replication_pass(service->native.copies->core, now_us);
    go_on(service);
}

/* Writes an order as a JSON object. Returns 0, or not 0: out of memory. */
static int write_order(const struct service *s,
                       const struct replication_action *a, const char *comma,
                       struct text_buf *out)
{
    const struct pool_instance *from = pool_get(s->pool, a->from);
    const struct pool_instance *to = pool_get(s->pool, a->to);
    bool drop = a->kind == REPLICATION_DROP;
    char sender[2 * POOL_NAME_BYTES] = "", name[2 * POOL_NAME_BYTES];

    metrics_escape(to->name, name);
    if (from)
        metrics_escape(from->name, sender);
    return text_buf_printf(
               out, "%s{\"order\":\"%s\",%s%s%s\"to\":\"%s\",\"blocks\":%u}",
               comma, drop ? "drop" : "copy", drop ? "" : "\"from\":\"", sender,
               drop ? "" : "\",", name, a->end_block - a->first_block) < 0;
}

int copies_change(struct service *s, const uint64_t *keys, uint32_t n_keys,
                  uint64_t key_seed, uint32_t copies, struct text_buf *out)
{
    const char *comma = "";
    struct replicas r;
    int bad;

    replicas_change(s->dispatch.scheduler, keys, n_keys, key_seed, copies, &r);
    bad = text_buf_printf(out,
                          "{\"block_tokens\":%d,\"blocks\":%u,"
                          "\"holders\":%u,\"orders\":[",
                          (int)s->config.block_tokens, n_keys, r.holders) < 0;
    for (uint32_t i = 0; i < r.n; i++) {
        const struct replication_action *a = &r.orders[i];

        if (a->kind == REPLICATION_COPY && !send_copy(s, a))
            continue; /* busy with another copy, or cannot copy */
        if (a->kind == REPLICATION_DROP)
            send_drop(s, a);
        bad |= write_order(s, a, comma, out);
        comma = ",";
    }
    return bad | (text_buf_printf(out, "]}\n") < 0);
}

int models_copies(const struct models *models, struct text_buf *out)
{
    int bad = text_buf_printf(out, "{\"copies\":[") < 0;
    const char *comma = "";

    for (const struct service *s = models->first; s; s = s->next)
        bad |= notes_write(&s->native.copy_notes, s->model.name,
                           loop_now_us(s->loop), &comma, out);
    bad |= text_buf_printf(out, "]}\n") < 0;
    return bad ? -ENOMEM : 0;
}
