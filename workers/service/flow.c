/* Callbacks of the step loop, the transfers and the loader about requests. */
#include "base/loop/loop.h"
#include "workers/service/internal.h"

/* --- the step loop ----------------------------------------------------- */

static void on_started(void *arg, struct request *r)
{
    struct worker *w = arg;
    struct msg_prefill_started m = {.queue_us = (uint64_t)request_queue_us(r)};

    msg_prefill_started_pack(&w->out, r->id, &m);
    worker_send(w, r->conductor);
    if (r->group)
        pipeline_begin(r, r->turn.started_us);
    if (r->push.host[0] &&
        transfer_push(w->transfer, r, r->turn.started_us) < 0)
        r->push.failed = true; /* reported when the prefill ends */
}

static void send_prefill_done(struct worker *w, const struct request *r,
                              int64_t now_us)
{
    uint32_t bt = w->layout->block_tokens;
    uint32_t loaded = r->load.n_fetched + r->load.n_disk + r->load.n_shared;
    struct msg_prefill_done m = {
        .first_token = r->last_token,
        .local_tokens = r->load.n_local * bt,
        .fetched_tokens = r->load.n_fetched * bt,
        .disk_tokens = r->load.n_disk * bt,
        .shared_tokens = r->load.n_shared * bt,
        .computed_tokens = r->prompt.n_tokens - (r->load.n_local + loaded) * bt,
        .queue_us = (uint64_t)request_queue_us(r),
        .fetch_us = (uint64_t)r->load.fetch_us,
        .fetch_bytes = r->load.fetch_bytes,
        .prefill_us =
            (uint64_t)(now_us - r->turn.started_us - r->turn.stood_us),
        .load_us = (uint64_t)r->load.us,
        .disk_bytes = r->load.disk_bytes,
        .shared_bytes = r->load.shared_bytes,
        .load_mode = loaded > 0 ? (uint8_t)(PROTO_LOAD_COMPUTE + r->load.mode)
                                : PROTO_LOAD_COMPUTE,
    };

    msg_prefill_done_pack(&w->out, r->id, &m);
    worker_send(w, r->conductor);
}

static void send_done(struct worker *w, const struct request *r)
{
    struct msg_done m = {.output_tokens = r->n_output};

    worker_send_tokens(w); /* DONE comes last */
    msg_done_pack(&w->out, r->id, &m);
    worker_send(w, r->conductor);
}

static void on_prefilled(void *arg, struct request *r)
{
    struct worker *w = arg;
    int64_t now_us = loop_now_us(w->loop);

    send_prefill_done(w, r, now_us);
    if (r->max_tokens == 1) {
        send_done(w, r);
        worker_drop(w, r);
    } else if (r->push.failed) {
        worker_fail(w, r, PROTO_E_PEER,
                    "no connection to the decode worker could be made, or "
                    "it takes no KV");
    } else {
        r->push.since_us = now_us;
    }
}

static void on_token(void *arg, struct request *r)
{
    struct worker *w = arg;

    w->token_of[w->n_tokens] = r->conductor;
    w->tokens[w->n_tokens++] = (struct msg_token){
        .request_id = r->id, .index = r->n_output - 1, .token = r->last_token};
}

static void on_finished(void *arg, struct request *r)
{
    struct worker *w = arg;

    send_done(w, r);
    worker_drop(w, r);
}

static void on_failed(void *arg, struct request *r, const char *why)
{
    worker_fail(arg, r, PROTO_E_INTERNAL, why);
}

static void on_removed(void *arg, struct request *r)
{
    worker_free_request(arg, r);
}

static uint32_t on_chunk(void *arg, struct request *r, uint32_t most)
{
    struct worker *w = arg;

    return loader_chunk(w->loader, r, most);
}

static void on_stalled(void *arg, struct request *r)
{
    struct worker *w = arg;

    loader_stalled(w->loader, r);
}

const struct batch_ops worker_batch_ops = {
    .started = on_started,
    .chunk = on_chunk,
    .stalled = on_stalled,
    .prefilled = on_prefilled,
    .token = on_token,
    .finished = on_finished,
    .failed = on_failed,
    .removed = on_removed,
};

/* --- transfers --------------------------------------------------------- */

/* Handles a transfer's end; `why` it failed, NULL = it succeeded. */
static void on_transfer_ended(void *arg, struct request *r, const char *why)
{
    if (why)
        worker_fail(arg, r, PROTO_E_PEER, why);
    else
        worker_drop(arg, r);
}

static uint32_t on_layers_done(void *arg, const struct request *r)
{
    struct worker *w = arg;

    if (!r->step.under_way || r->step.staged || r->dead ||
        !batch_thread_busy(w->thread))
        return 0;
    uint32_t n = batch_thread_layers_done(w->thread, r->step.segment);
    if (!r->step.gated)
        return n;
    /* KV of earlier tokens may arrive after these are computed. */
    uint32_t came = layer_gate_layers(&r->step.gate);
    return came < n ? came : n;
}

static struct request *on_find(void *arg, uint64_t id)
{
    struct worker *w = arg;

    return request_find(&w->requests, id);
}

static void on_receive_begin(void *arg, struct request *r)
{
    struct worker *w = arg;

    TAILQ_INSERT_TAIL(&w->kv_waits, r, link);
    worker_grant(w);
}

static void on_received(void *arg, struct request *r)
{
    struct worker *w = arg;

    w->n_arriving--;
    if (r->n_output < r->max_tokens) {
        batch_add_decode(w->batch, r);
        worker_poke(w);
        return;
    }
    /* The first token was the whole answer. */
    request_set_state(r, REQUEST_ENDED);
    send_done(w, r);
    worker_drop(w, r);
}

static void on_released(void *arg)
{
    worker_poke(arg);
}

const struct transfer_ops worker_transfer_ops = {
    .push_ended = on_transfer_ended,
    .layers_done = on_layers_done,
    .find = on_find,
    .receive_begin = on_receive_begin,
    .received = on_received,
    .receive_failed = on_transfer_ended,
    .released = on_released,
    .stage_frame = worker_stage_frame,
    .stage_writable = pipeline_stage_writable,
    .stage_closed = pipeline_stage_closed,
};

static bool grant(struct worker *w, struct request *r)
{
    if (kv_store_alloc(w->store, r->blocks.n_needed, r->blocks.ids) < 0)
        return false;
    for (uint32_t i = 0; i < r->blocks.n_needed; i++)
        request_append(r, w->store, r->blocks.ids[i]);
    TAILQ_REMOVE(&w->kv_waits, r, link);
    /* Cannot fail: `r` waits, and its sender is connected. */
    (void)!transfer_grant(w->transfer, r);
    return true;
}

void worker_grant(struct worker *w)
{
    while (!TAILQ_EMPTY(&w->kv_waits) && grant(w, TAILQ_FIRST(&w->kv_waits)))
        ;
}

/* --- loads ------------------------------------------------------------- */

static void on_load_failed(void *arg, struct request *r, const char *why)
{
    if (!worker_copy_gives_up(arg, r))
        on_failed(arg, r, why);
}

const struct loader_ops worker_loader_ops = {
    .poke = on_released, /* a push may wait for the loaded KV */
    .failed = on_load_failed,
};
