#include "tests/unit/transfer_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/loop/loop.h"
#include "base/stream/stream.h"
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

    loop_defer(&s->poke);
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

static void on_poke(void *arg)
{
    struct site *s = arg;

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
    struct site *s = arg;

    if (s->pushed && s->pushed->id == id)
        return s->pushed;
    return s->received && s->received->id == id ? s->received : NULL;
}

static uint32_t on_layers_done(void *arg, const struct request *r)
{
    const struct site *s = arg;

    (void)r;
    return s->layers_done;
}

static void on_push_ended(void *arg, struct request *r, const char *why)
{
    struct site *s = arg;

    (void)r;
    s->push_over = true;
    snprintf(s->why, sizeof(s->why), "%s", why ? why : "");
}

static void on_receive_begin(void *arg, struct request *r)
{
    struct site *s = arg;

    must(take(s, r) == 0, "no room for what comes");
    must(transfer_grant(s->transfer, r) == 0, "not granted");
}

static void on_received(void *arg, struct request *r)
{
    struct site *s = arg;

    (void)r;
    s->receive_over = true;
}

static void on_receive_failed(void *arg, struct request *r, const char *why)
{
    on_received(arg, r);
    snprintf(((struct site *)arg)->why, sizeof(((struct site *)arg)->why), "%s",
             why);
}

static const struct transfer_ops transfer_ops = {
    .push_ended = on_push_ended,
    .layers_done = on_layers_done,
    .find = on_find,
    .receive_begin = on_receive_begin,
    .received = on_received,
    .receive_failed = on_receive_failed,
    .released = poke,
};

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

void site_init(struct site *s, struct loop *loop,
               const struct engine_kv_layout *layout, uint32_t n_blocks,
               enum site_way way)
{
    char err[256];
    const struct engine_config engine = {.kind = "cpu",
                                         .shape = model_find("tiny")};
    static const char *const ways[] = {"tcp", "shm"};
    const struct msg_hello hello = {.magic = PROTO_MAGIC,
                                    .version_min = PROTO_VERSION,
                                    .version_max = PROTO_VERSION,
                                    .kind = PROTO_PEER_WORKER,
                                    .role = PROTO_ROLE_BOTH,
                                    .capabilities = PROTO_CAP_TRANSPORTS,
                                    .name = "rig",
                                    .block_tokens = layout->block_tokens};

    *s = (struct site){
        .loop = loop, .layout = *layout, .way = way, .slab_fd = -1};
    loop_timer_init(loop, &s->poke, on_poke, s);
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
    const struct loader_config loader = {.loop = loop,
                                         .store = s->store,
                                         .layout = &s->layout,
                                         .now_us = loop_now_us};
    s->loader = loader_new(&loader, &loader_ops, s);
    s->stream_loop = stream_loop_new(loop);
    must(s->stream_loop, "no memory for streams");
    const struct transfer_config transfer = {
        .loop = loop,
        .stream_loop = s->stream_loop,
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
    stream_loop_free(s->stream_loop);
    loader_free(s->loader);
    kv_store_free(s->store);
    engine_free(s->engine);
    loop_timer_stop(&s->poke);
}

/* A prompt of n tokens. */
static struct request *new_prompt(const struct site *s, uint32_t n)
{
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

static struct request *new_request(const struct site *s, uint32_t n_blocks)
{
    return new_prompt(s, n_blocks * s->layout.block_tokens + 1);
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
    on_poke(s);
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

void site_announce(struct site *s, uint32_t n_tokens)
{
    struct request *like = new_prompt(s, n_tokens);
    const struct request_spec spec = {.id = like->id,
                                      .prompt_digest = like->prompt.digest,
                                      .n_tokens = n_tokens,
                                      .max_tokens = 1,
                                      .block_tokens = s->layout.block_tokens,
                                      .decodes_here = true};

    s->received = request_new(&spec);
    must(s->received, "no memory");
    s->receive_over = false;
    s->why[0] = '\0';
    request_free(like);
}

void site_push(struct site *s, uint16_t port, uint32_t n_tokens)
{
    struct request *r = new_prompt(s, n_tokens);

    /* The last pieces of the request before may just be coming back. */
    while (take(s, r) < 0)
        must(loop_turn(s->loop, -1) == 0, "no room");
    for (uint32_t b = 0; b < r->blocks.n; b++) {
        uint64_t *words = r->blocks.data[b];

        for (uint64_t i = 0; i < s->layout.block_bytes / 8; i++)
            words[i] = word_of(b, i);
    }
    snprintf(r->push.host, sizeof(r->push.host), "127.0.0.1");
    r->push.port = port;
    s->pushed = r;
    s->push_over = false;
    s->why[0] = '\0';
    s->layers_done = 0;
    must(transfer_push(s->transfer, r, clock_now_us()) == 0, "no push");
}

void site_push_poke(struct site *s)
{
    transfer_push_poke(s->transfer);
}

void site_push_end(struct site *s)
{
    s->pushed->n_output = 1;
    s->pushed->last_token = 1;
    site_push_poke(s);
}

static void drop(struct site *s, struct request **r)
{
    if (!*r)
        return;
    transfer_forget(*r);
    request_release(*r, s->store);
    request_free(*r);
    *r = NULL;
}

void site_push_drop(struct site *s)
{
    drop(s, &s->pushed);
    drop(s, &s->received);
}

static bool same_row(const struct site *s, const struct request *a,
                     const struct request *b, uint32_t layer, uint32_t token)
{
    const struct engine_kv_layout *l = &s->layout;
    uint32_t i = token / l->block_tokens, slot = token % l->block_tokens;

    for (int which = ENGINE_K; which <= ENGINE_V; which++)
        if (memcmp(engine_kv_row(l, a->blocks.data[i], layer,
                                 (enum engine_which)which, slot),
                   engine_kv_row(l, b->blocks.data[i], layer,
                                 (enum engine_which)which, slot),
                   l->kv_row_bytes))
            return false;
    return true;
}

bool site_push_same(const struct site *s, const struct site *to)
{
    for (uint32_t layer = 0; layer < s->layout.layers; layer++)
        for (uint32_t t = 0; t < to->received->prompt.n_tokens; t++)
            if (!same_row(s, s->pushed, to->received, layer, t))
                return false;
    return true;
}
