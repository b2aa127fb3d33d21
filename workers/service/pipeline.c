/* Groups that this worker leads, and stages that it computes for other
 * leaders. */
#include <errno.h>

#include "base/log.h"
#include "workers/service/internal.h"

static void on_progress(void *arg, struct request *r, uint32_t position)
{
    struct worker *w = arg;

    batch_group_progress(w->batch, r, position);
    transfer_push_poke(w->transfer);
}

static void on_prefilled(void *arg, struct request *r, uint32_t first_token)
{
    struct worker *w = arg;

    batch_group_prefilled(w->batch, r, first_token);
    worker_poke(w);
}

static void on_alone(void *arg, struct request *)
{
    worker_poke(arg);
}

static void on_removed(void *arg, struct request *r)
{
    worker_free_request(arg, r);
}

static void on_pipeline_poke(void *arg)
{
    worker_poke(arg);
}

static const struct pipeline_ops pipeline_ops = {
    .progress = on_progress,
    .prefilled = on_prefilled,
    .alone = on_alone,
    .removed = on_removed,
    .poke = on_pipeline_poke,
};

int worker_pipeline_start(struct worker *w, const struct msg_hello *hello)
{
    const struct pipeline_config c = {
        .loop = w->loop,
        .stream_loop = w->stream_loop,
        .dns = w->dns,
        .secret = w->secret,
        .store = w->store,
        .layout = w->layout,
        .hello = hello,
        .timeout_us = (int64_t)w->options->push_timeout_ms * 1000,
    };

    w->pipeline = pipeline_new(&c, &pipeline_ops, w);
    return w->pipeline ? 0 : -ENOMEM;
}

void worker_lead(struct worker *w, struct request *r,
                 const struct msg_prefill_group *m)
{
    int rc = pipeline_lead(w->pipeline, r, m);

    if (rc < 0)
        log_warn(
            "request %llu: this worker prefills it alone, without a group: %s",
            (unsigned long long)r->id,
            rc == -EINVAL  ? "its layers or chunks do not fit this worker"
            : rc == -EBUSY ? "it leads too many groups already"
                           : "out of memory");
}

int worker_stage_frame(void *arg, struct frame_conn *conn, struct stage **stage,
                       const struct frame_header *h, const uint8_t *payload)
{
    struct worker *w = arg;

    return pipeline_stage_frame(w->pipeline, conn, stage, h, payload);
}
