/* The transfer as a whole: start and end, the tick, forgetting a request. */
#include "workers/transfer/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/listener.h"
#include "workers/transfer/internal.h"

/* Longest frame of a pipeline stage or of keys. */
#define FRAME_BYTES (4u << 20)

/* Sets the limits of a connection: the longest frame is FRAME_BYTES, or has the
 * tokens of a whole window. */
static void set_limits(struct transfer *t)
{
    const struct engine_kv_layout *layout = t->config.layout;
    uint32_t longest = FRAME_BYTES;

    if (longest < 4 * layout->window_tokens)
        longest = 4 * layout->window_tokens;
    t->limits = (struct frame_conn_limits){
        .payload_bytes = longest + 4096,
        .output_watermark_bytes = TRANSFER_WATERMARK_BYTES,
        .output_limit_bytes =
            TRANSFER_WATERMARK_BYTES + (size_t)longest + (1u << 20),
    };
    wire_buf_init(&t->buf, (size_t)longest + 8192);
}

/* Continues with FETCHes that wait for checksums of a block. */
static void on_sums(void *arg)
{
    struct transfer *t = arg;
    struct inbound *in;

    TAILQ_FOREACH(in, &t->inbounds, link)
    {
        serve_pump(in);
    }
    t->ops->released(t->arg);
}

int transfer_new(const struct transfer_config *config,
                 const struct transfer_ops *ops, void *arg,
                 struct transfer **out, char *err, size_t err_bytes)
{
    struct transfer *t = calloc(1, sizeof(*t));

    if (!t)
        return error_say(err, err_bytes, -ENOMEM, "out of memory");
    t->config = *config;
    t->hello = *config->hello;
    t->hello.kind = PROTO_PEER_WORKER_PEER;
    t->ops = ops;
    t->arg = arg;
    t->peer_ops = &outbound_ops;
    TAILQ_INIT(&t->peers);
    TAILQ_INIT(&t->inbounds);
    strangers_init(&t->strangers);
    LIST_INIT(&t->guests);
    LIST_INIT(&t->routes);
    set_limits(t);
    t->errands = errands_new(config->loop);
    t->sums =
        layer_sums_new(t->errands, config->store, config->layout, on_sums, t);
    if (!t->errands || !t->sums || transports_open(t) < 0) {
        transfer_free(t);
        return error_say(err, err_bytes, -ENOMEM,
                         "no memory or threads for transports");
    }
    char why[400];
    int rc =
        listener_new(config->loop, config->listen_host, config->listen_port,
                     inbound_accept, t, &t->listener, why, sizeof(why));
    if (rc < 0) {
        snprintf(err, err_bytes, "listen %s", why);
        transfer_free(t);
        return rc;
    }
    t->hello.peer_port = listener_port(t->listener);
    *out = t;
    return 0;
}

void transfer_free(struct transfer *t)
{
    if (!t)
        return;
    while (!TAILQ_EMPTY(&t->peers))
        peer_free(t, TAILQ_FIRST(&t->peers));
    while (!TAILQ_EMPTY(&t->inbounds))
        inbound_free(t, TAILQ_FIRST(&t->inbounds));
    listener_free(t->listener);
    transports_close(t);
    errands_free(t->errands);
    route_free_all(t);
    guest_free_all(t);
    layer_sums_free(t->sums);
    wire_buf_fini(&t->buf);
    free(t);
}

uint16_t transfer_port(const struct transfer *t)
{
    return listener_port(t->listener);
}

void transfer_tick(struct transfer *t, int64_t now_us)
{
    struct peer *p;
    struct inbound *in;

    TAILQ_FOREACH(p, &t->peers, link)
    {
        outbound_tick(p, now_us);
    }
    TAILQ_FOREACH(in, &t->inbounds, link)
    {
        inbound_tick(in, now_us);
    }
}

void transfer_forget(struct request *r)
{
    push_drop(r);
    receive_drop(r);
}

void transfer_held(struct transfer *t, uint64_t key)
{
    uint32_t id = kv_store_find_key(t->config.store, key);

    if (id != KV_BLOCK_NONE)
        layer_sums_held(t->sums, id);
}
