/* The step loop without a conductor. */
#include "workers/step/alone.h"

#include <errno.h>
#include <stdlib.h>

#include "base/loop/loop.h"
#include "workers/step/batch.h"
#include "workers/step/thread.h"

#define EVENTS_MAX 1024u

struct step_alone {
    const struct engine_kv_layout *layout;
    struct loop *loop;
    struct kv_store *store;
    struct batch *batch;
    struct batch_thread *thread;
    uint64_t next_id;
    int64_t done_us; /* time of the first token; 0 = not yet */
    uint32_t cached_tokens;
    int rc; /* of the last step */
};

static void forget(struct step_alone *s, struct request *r)
{
    if (!batch_remove(s->batch, r))
        return;
    request_release(r, s->store);
    request_free(r);
}

static void on_started(void *, struct request *)
{
}

static void on_prefilled(void *arg, struct request *r)
{
    struct step_alone *s = arg;

    s->done_us = loop_now_us(s->loop);
    s->cached_tokens = r->load.n_local * s->layout->block_tokens;
    forget(s, r);
}

static void on_failed(void *arg, struct request *r, const char *)
{
    forget(arg, r);
}

/* The callbacks left out are for requests that load or decode. */
static const struct batch_ops batch_ops = {
    .started = on_started, .prefilled = on_prefilled, .failed = on_failed};

static void on_done(void *arg, int rc, int64_t)
{
    struct step_alone *s = arg;

    s->rc = rc;
    loop_stop(s->loop);
}

static void on_progress(void *)
{
}

static const struct batch_thread_ops thread_ops = {.done = on_done,
                                                   .progress = on_progress};

struct step_alone *step_alone_new(struct engine *engine, uint32_t n_blocks,
                                  uint32_t max_batch)
{
    struct step_alone *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->layout = engine_kv_layout(engine);
    struct kv_store_config store = {
        .capacity_blocks = n_blocks,
        .block_tokens = s->layout->block_tokens,
        .block_bytes = s->layout->block_bytes,
        .event_capacity = EVENTS_MAX,
        .memory = batch_thread_memory(engine),
    };
    struct batch_config batch = {
        .layout = s->layout,
        .step_tokens = s->layout->step_tokens,
        .max_batch = max_batch,
        .max_prefills = 1,
        .max_queue = 1,
    };
    s->loop = loop_new();
    if (!s->loop || kv_store_new(&store, &s->store) < 0)
        goto fail;
    batch.store = s->store;
    s->batch = batch_new(&batch, &batch_ops, s);
    s->thread = batch_thread_new(s->loop, engine, batch_max_segments(&batch),
                                 &thread_ops, s);
    if (s->batch && s->thread)
        return s;
fail:
    step_alone_free(s);
    return NULL;
}

void step_alone_free(struct step_alone *s)
{
    if (!s)
        return;
    batch_thread_free(s->thread);
    batch_free(s->batch);
    kv_store_free(s->store);
    if (s->loop)
        loop_free(s->loop);
    free(s);
}

int step_alone_step(struct step_alone *s, struct engine_segment *segments,
                    uint32_t n)
{
    batch_thread_submit(s->thread, segments, n, false);
    while (batch_thread_busy(s->thread))
        if (loop_run(s->loop) < 0)
            return -EIO;
    return s->rc;
}

int step_alone_prefill(struct step_alone *s, const uint32_t *tokens,
                       uint32_t n_tokens, uint32_t *cached_tokens, double *us)
{
    int64_t begin_us = loop_now_us(s->loop);
    const struct request_spec spec = {
        .id = ++s->next_id,
        .tokens = (const uint8_t *)tokens,
        .n_tokens = n_tokens,
        .max_tokens = 1,
        .block_tokens = s->layout->block_tokens,
    };
    struct request *r = request_new(&spec);
    struct engine_segment *segments;
    int rc = r ? 0 : -ENOMEM;

    s->done_us = 0;
    if (rc == 0 && (rc = batch_enqueue(s->batch, r)) < 0)
        request_free(r);
    while (rc == 0 && s->done_us == 0) {
        uint32_t n = batch_form(s->batch, loop_now_us(s->loop), &segments);

        if (n == 0) {
            forget(s, r); /* the store has no room for the prompt */
            return -ENOSPC;
        }
        rc = step_alone_step(s, segments, n);
        batch_complete(s->batch, rc);
    }
    *us = (double)(s->done_us - begin_us);
    *cached_tokens = s->cached_tokens;
    return rc;
}
