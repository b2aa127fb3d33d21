#include "tests/unit/transfer_rig.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "workers/transfer/engine/shm/slab.h"

#define KEY_SEED 5

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "transfer_rig: %s\n", what);
    exit(1);
}

static void poke(void *arg)
{
    struct site *s = arg;

    event_active(s->poke, 0, 0);
}

static int take(void *arg, struct request *r)
{
    struct site *s = arg;

    if (kv_store_alloc(s->store, r->blocks.n_needed, r->blocks.ids) < 0)
        return -1;
    for (uint32_t i = 0; i < r->blocks.n_needed; i++)
        request_append(r, s->store, r->blocks.ids[i]);
    return 0;
}

static void on_poke(evutil_socket_t fd, short what, void *arg)
{
    struct site *s = arg;

    (void)fd;
    (void)what;
    if (s->r)
        loader_poke(s->loader, take, s);
}

static void on_load_failed(void *arg, struct request *r, const char *why)
{
    (void)arg;
    (void)r;
    must(false, why);
}

static const struct loader_ops loader_ops = {.poke = poke,
                                             .failed = on_load_failed};

static struct request *on_find(void *arg, uint64_t id)
{
    (void)arg;
    (void)id;
    return NULL;
}

static const struct transfer_ops transfer_ops = {.find = on_find,
                                                 .released = poke};

static void *kv_alloc(void *arg, size_t bytes)
{
    struct site *s = arg;

    s->slab_bytes = bytes;
    return s->way == SITE_SHM ? shm_slab_new(bytes, &s->slab_fd)
                              : engine_kv_alloc(s->engine, bytes);
}

static void kv_free(void *arg, void *memory)
{
    struct site *s = arg;

    if (s->way == SITE_SHM)
        shm_slab_free(memory, s->slab_bytes, s->slab_fd);
    else
        engine_kv_free(s->engine, memory);
}

void site_init(struct site *s, struct event_base *base,
               const struct engine_kv_layout *layout, uint32_t n_blocks,
               enum site_way way)
{
    char err[256];
    const struct engine_config engine = {.kind = "cpu",
                                         .shape = model_find("tiny")};
    static const char *const ways[] = {"none", "tcp", "shm"};
    const struct msg_hello hello = {.magic = PROTO_MAGIC,
                                    .version_min = PROTO_VERSION,
                                    .version_max = PROTO_VERSION,
                                    .kind = PROTO_PEER_WORKER,
                                    .role = PROTO_ROLE_BOTH,
                                    .capabilities = PROTO_CAP_FETCH_TCP |
                                                    PROTO_CAP_TRANSPORTS,
                                    .name = "rig",
                                    .block_tokens = layout->block_tokens};

    *s = (struct site){
        .base = base, .layout = *layout, .way = way, .slab_fd = -1};
    s->poke = event_new(base, -1, 0, on_poke, s);
    s->engine = engine_new(&engine, err, sizeof(err));
    must(s->engine, err);
    const struct kv_store_config store = {
        .capacity_blocks = n_blocks,
        .block_tokens = layout->block_tokens,
        .block_bytes = layout->block_bytes,
        .event_capacity = 1024,
        .memory = {kv_alloc, kv_free, NULL, s},
    };
    must(kv_store_new(&store, &s->store) == 0, "no memory for blocks");
    const struct loader_config loader = {.base = base,
                                         .store = s->store,
                                         .layout = &s->layout,
                                         .now_us = clock_now_us};
    s->loader = loader_new(&loader, &loader_ops, s);
    const struct transfer_config transfer = {
        .base = base,
        .store = s->store,
        .layout = &s->layout,
        .loader = s->loader,
        .listen_host = "127.0.0.1",
        .hello = &hello,
        .fetch_timeout_us = 5000000,
        .push_timeout_us = 5000000,
        .streams = 2,
        .transports = ways[way],
        .slab_fd = s->slab_fd,
    };
    must(transfer_new(&transfer, &transfer_ops, s, &s->transfer, err,
                      sizeof(err)) == 0,
         err);
}

void site_fini(struct site *s)
{
    transfer_free(s->transfer);
    loader_free(s->loader);
    kv_store_free(s->store);
    engine_free(s->engine);
    event_free(s->poke);
}

static struct request *new_request(const struct site *s, uint32_t n_blocks)
{
    uint32_t n = n_blocks * s->layout.block_tokens + 1;
    uint32_t *tokens = calloc(n, sizeof(*tokens));

    must(tokens, "no memory");
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = i * 7 % 251;
    const struct request_spec spec = {.id = 1,
                                      .key_seed = KEY_SEED,
                                      .tokens = (const uint8_t *)tokens,
                                      .n_tokens = n,
                                      .max_tokens = 1,
                                      .block_tokens = s->layout.block_tokens};
    struct request *r = request_new(&spec);
    must(r, "no memory");
    free(tokens);
    return r;
}

/* Word i of block b of the prompt. */
static uint64_t word_of(uint32_t b, uint64_t i)
{
    return (i + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)b << 56;
}

static bool same(const struct site *s, const void *block, uint32_t b)
{
    const uint64_t *words = block;

    for (uint64_t i = 0; i < s->layout.block_bytes / 8; i++)
        if (words[i] != word_of(b, i))
            return false;
    return true;
}

void site_hold(struct site *s, uint32_t n_blocks)
{
    struct request *r = new_request(s, n_blocks);
    uint32_t parent = KV_BLOCK_NONE;

    must(kv_store_alloc(s->store, n_blocks, r->blocks.ids) == 0, "no room");
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint32_t id = r->blocks.ids[b];
        uint64_t *words = kv_store_data(s->store, id);
        uint32_t held;

        for (uint64_t i = 0; i < s->layout.block_bytes / 8; i++)
            words[i] = word_of(b, i);
        must(kv_store_commit(s->store, id, parent, r->prompt.keys[b],
                             r->prompt.tokens + b * s->layout.block_tokens,
                             &held) == KV_COMMITTED,
             "not held");
        parent = id;
    }
    for (uint32_t b = 0; b < n_blocks; b++)
        kv_store_release(s->store, r->blocks.ids[b]);
    request_free(r);
}

void site_begin(struct site *s, uint16_t port, uint32_t n_blocks,
                enum load_mode mode)
{
    const struct load_request plan = {
        .mode = mode,
        .n_sources = 1,
        .sources = {
            {transfer_source(s->transfer, "127.0.0.1", port), 0, n_blocks}}};

    must(plan.sources[0].source, "no source");
    s->r = new_request(s, n_blocks);
    must(loader_add(s->loader, s->r, &plan) == 0, "no memory");
    on_poke(-1, 0, s);
}

bool site_done(const struct site *s)
{
    return !s->r->load.job;
}

uint32_t site_came(const struct site *s, bool compare)
{
    const struct request *r = s->r;
    uint32_t b = 0;

    while (b < r->prompt.n_reusable && r->load.origin[b] == BLOCK_FETCHED &&
           (!compare || same(s, r->blocks.data[b], b)))
        b++;
    return b;
}

void site_drop(struct site *s)
{
    loader_forget(s->r);
    request_release(s->r, s->store);
    request_free(s->r);
    s->r = NULL;
}
