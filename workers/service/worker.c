/* Makes, wires and frees the worker. */
#include "workers/service/worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bug.h"
#include "base/dns.h"
#include "base/error.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "base/stream/stream.h"
#include "base/supervisor.h"
#include "base/tls.h"
#include "workers/disk/tier/tier.h"
#include "workers/memory.h"
#include "workers/service/internal.h"

#define EVENTS_MAX 65536u
#define TICK_US 100000
#define OUT_BYTES (16u << 20)

static void on_poke(void *arg)
{
    worker_go_on(arg);
}

static void on_tick(void *arg)
{
    struct worker *w = arg;

    int64_t now_us = loop_now_us(w->loop);

    transfer_tick(w->transfer, now_us);
    pipeline_tick(w->pipeline, now_us);
    worker_disk_poke(w);
    worker_conductors_tick(w, now_us);
    worker_shared_tick(w);
    worker_leave_look(w);
    worker_fail_broken(w);
    const char *broken = kv_store_broken(w->store);
    if (broken)
        bug("KV store: %s", broken);
}

static void on_inventory(void *arg)
{
    worker_go_on_inventory(arg);
}

/* --- making and freeing ------------------------------------------------ */

static int make_store(struct worker *w, char *err, size_t err_bytes)
{
    struct kv_store_config c = {
        .capacity_blocks = worker_memory_blocks(w->options, w->layout),
        .block_tokens = w->layout->block_tokens,
        .block_bytes = w->layout->block_bytes,
        .event_capacity = EVENTS_MAX,
        .memory = worker_slab_memory(w),
    };
    double need_mib =
        (double)c.capacity_blocks * (double)c.block_bytes / 1048576.0;
    int64_t from_us = loop_now_us(w->loop);
    int rc = kv_store_new(&c, &w->store);
    double s = (double)(loop_now_us(w->loop) - from_us) / 1e6;
    if (rc == 0 && s >= 1)
        log_info("worker %s: the machine took %.1f s to give %.0f MiB for KV",
                 w->options->name, s, need_mib);
    if (rc < 0)
        snprintf(err, err_bytes, "the KV store of %.0f MiB: %s%s%s", need_mib,
                 strerror(-rc), *engine_error(w->engine) ? ": " : "",
                 engine_error(w->engine));
    return rc;
}

static int make_batch(struct worker *w)
{
    const struct worker_options *o = w->options;
    struct batch_config c = {
        .store = w->store,
        .layout = w->layout,
        .step_tokens = w->layout->step_tokens,
        .max_batch = o->max_batch,
        .max_prefills = o->max_prefills,
        .max_queue = o->max_queue,
    };

    w->batch = batch_new(&c, &worker_batch_ops, w);
    w->tokens = calloc(o->max_batch, sizeof(*w->tokens));
    w->one_s = calloc(o->max_batch, sizeof(*w->one_s));
    w->token_of = calloc(o->max_batch, sizeof(*w->token_of));
    if (!w->batch || !w->tokens || !w->one_s || !w->token_of)
        return -ENOMEM;
    w->thread = batch_thread_new(w->loop, w->engine, batch_max_segments(&c),
                                 &worker_thread_ops, w);
    return w->thread ? 0 : -ENOMEM;
}

static int make_loader(struct worker *w, const struct cost_model *cost)
{
    struct loader_config c = {
        .loop = w->loop,
        .store = w->store,
        .layout = w->layout,
        .engine = w->engine,
        .cost = cost,
        .bytes_per_s = w->options->load_gbps * 1e9 / 8,
        .now_us = loop_now_us,
    };

    w->loader = loader_new(&c, &worker_loader_ops, w);
    return w->loader ? 0 : -ENOMEM;
}

static void fill_hello(const struct worker *w, struct msg_hello *m)
{
    const struct worker_options *o = w->options;
    struct kv_store_stats stats;
    struct kv_store_stats disk = {0};

    kv_store_stats(w->store, &stats);
    if (worker_disk_tier(w))
        kv_store_stats(disk_tier_index(worker_disk_tier(w)), &disk);
    *m = (struct msg_hello){
        .magic = PROTO_MAGIC,
        .version_min = PROTO_VERSION,
        .version_max = PROTO_VERSION,
        .kind = PROTO_PEER_WORKER,
        .role = w->role,
        .capabilities =
            PROTO_CAP_TRANSPORTS |
            (w->layout->activation_bytes > 0 ? PROTO_CAP_STAGES : 0u),
        .fingerprint = w->layout->fingerprint,
        .block_tokens = w->layout->block_tokens,
        .window_tokens = w->layout->window_tokens,
        .vocab = w->layout->vocab,
        .kv_capacity_blocks = stats.capacity_blocks,
        .kv_bytes_per_token = w->layout->block_bytes / w->layout->block_tokens,
        .disk_capacity_blocks = disk.capacity_blocks,
        .max_batch = o->max_batch,
        .layers = w->layout->layers,
    };
    snprintf(m->name, sizeof(m->name), "%s", o->name);
    snprintf(m->engine, sizeof(m->engine), "%s", engine_kind(w->engine));
    snprintf(m->model, sizeof(m->model), "%s", o->model);
    /* Other workers cannot connect to a wildcard address. */
    if (strcmp(o->listen.host, "0.0.0.0") && strcmp(o->listen.host, "::"))
        snprintf(m->peer_host, sizeof(m->peer_host), "%s", o->listen.host);
}

static int make_connections(struct worker *w, char *err, size_t err_bytes)
{
    const struct worker_options *o = w->options;
    struct msg_hello hello;

    fill_hello(w, &hello);
    struct transfer_config c = {
        .loop = w->loop,
        .stream_loop = w->stream_loop,
        .dns = w->dns,
        .secret = w->secret,
        .store = w->store,
        .layout = w->layout,
        .loader = w->loader,
        .listen_host = o->listen.host,
        .listen_port = o->listen.port,
        .hello = &hello,
        .fetch_timeout_us = (int64_t)o->fetch_timeout_ms * 1000,
        .push_timeout_us = (int64_t)o->push_timeout_ms * 1000,
        .transports = o->transports,
        .streams = o->streams,
        .card = engine_card(w->engine),
        .slab_fd = w->slab_fd,
        .rdma_devices = o->rdma_devices,
        .rdma_slice_bytes = o->rdma_slice_kib * 1024,
    };
    int rc =
        transfer_new(&c, &worker_transfer_ops, w, &w->transfer, err, err_bytes);
    if (rc < 0)
        return rc;
    hello.peer_port = transfer_port(w->transfer);
    rc = worker_pipeline_start(w, &hello);
    if (rc < 0)
        return rc;
    if (*engine_device(w->engine))
        log_info("worker %s: engine %s: %s", o->name, engine_kind(w->engine),
                 engine_device(w->engine));
    log_info("worker %s: listening for workers on %s:%u", o->name,
             o->listen.host, hello.peer_port);
    supervisor_say("READY=1");
    return worker_conductors_start(w, &hello) ? -ENOMEM : 0;
}

static int make_timers(struct worker *w)
{
    loop_timer_init(w->loop, &w->poke, on_poke, w);
    loop_timer_init(w->loop, &w->tick, on_tick, w);
    loop_timer_init(w->loop, &w->inventory, on_inventory, w);
    loop_timer_init(w->loop, &w->copy_next, on_poke, w);
    return loop_timer_repeat(&w->tick, TICK_US);
}

/* Loads the authorities that certify conductors (--tls-ca). */
static int trust(struct worker *w, char *err, size_t err_bytes)
{
    char why[400];

    if (!w->options->tls_ca)
        return 0;
    w->tls = tls_new(w->options->tls_ca, false, why, sizeof(why));
    return w->tls ? 0
                  : error_say(err, err_bytes, -EINVAL, "--tls-ca %.200s: %s",
                              w->options->tls_ca, why);
}

struct worker *worker_new(struct loop *loop,
                          const struct worker_options *options,
                          const struct secret *secret, struct engine *engine,
                          const struct cost_model *cost, char *err,
                          size_t err_bytes)
{
    struct worker *w = calloc(1, sizeof(*w));

    snprintf(err, err_bytes, "out of memory");
    if (!w)
        return NULL;
    w->options = options;
    w->role = options->role;
    w->link_ops = &worker_link_ops;
    w->loop = loop;
    w->stream_loop = stream_loop_new(loop);
    w->dns = dns_new(loop, "");
    w->secret = secret;
    w->engine = engine;
    w->layout = engine_kv_layout(engine);
    request_table_init(&w->requests);
    TAILQ_INIT(&w->kv_waits);
    TAILQ_INIT(&w->copies);
    TAILQ_INIT(&w->conductors);
    wire_buf_init(&w->out, OUT_BYTES);
    if (trust(w, err, err_bytes) < 0 || !w->stream_loop || !w->dns ||
        worker_disk_open(w, err, err_bytes) < 0 ||
        make_store(w, err, err_bytes) < 0 || make_timers(w) < 0 ||
        worker_disk_start(w) < 0 || make_batch(w) < 0 ||
        make_loader(w, cost) < 0 || worker_shared_open(w, err, err_bytes) < 0 ||
        make_connections(w, err, err_bytes) < 0) {
        worker_free(w);
        return NULL;
    }
    return w;
}

void worker_free(struct worker *w)
{
    if (!w)
        return;
    batch_thread_free(w->thread); /* first: it writes to the blocks */
    w->thread = NULL;
    if (w->batch && batch_in_step(w->batch))
        batch_abandon(w->batch);
    if (w->pipeline && pipeline_in_turn(w->pipeline))
        pipeline_turned(w->pipeline, -ECANCELED);
    if (w->transfer)
        worker_drop_all(w, NULL);
    worker_conductors_free(w);
    tls_free(w->tls);
    transfer_free(w->transfer);
    pipeline_free(w->pipeline);
    stream_loop_free(w->stream_loop);
    worker_disk_close(w); /* completes running reads */
    worker_shared_close(w);
    dns_free(w->dns);
    loader_free(w->loader);
    batch_free(w->batch);
    kv_store_free(w->store);
    loop_timer_stop(&w->poke);
    loop_timer_stop(&w->tick);
    loop_timer_stop(&w->inventory);
    loop_timer_stop(&w->copy_next);
    wire_buf_fini(&w->out);
    free(w->tokens);
    free(w->one_s);
    free(w->token_of);
    free(w);
}

int worker_exit_status(const struct worker *w)
{
    return w->exit_status;
}
