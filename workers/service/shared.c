/* Opens the worker's shared store, and connects it to the loop. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/tls.h"
#include "workers/service/internal.h"
#include "workers/shared/keeper.h"
#include "workers/shared/source.h"

/* Memory overhead in Redis: of one hash field, and of one block. */
#define FIELD_BYTES 64u
#define BLOCK_EXTRA_BYTES 256u

/* With WORKER_PUTS_EVICTED, 1 in UNPUT_SHARE blocks of memory need not be in
 * the shared store. */
#define UNPUT_SHARE 4u

struct worker_shared {
    struct worker *w;
    struct redis_url url;
    struct tls *tls; /* NULL = no TLS */
    char shown[REDIS_URL_MAX];
    struct shared_tier *tier;
    struct shared_keeper *keeper;
    uint64_t id; /* contents id of the keeper's notes */
};

static void on_turned(void *arg)
{
    struct worker_shared *s = arg;
    uint64_t id = shared_tier_id(s->tier);

    if (id != 0 && id != s->id)
        shared_keeper_forget(s->keeper);
    s->id = id ? id : s->id;
    worker_shared_tell(s->w, NULL);
    worker_poke(s->w);
}

static void on_stored(void *arg, const struct shared_known *blocks, uint32_t n)
{
    struct worker_shared *s = arg;

    for (uint32_t i = 0; i < n; i++) {
        struct msg_blocks_stored m = {
            .tier = PROTO_TIER_SHARED,
            .parent = blocks[i].parent_key,
            .n = 1,
            .keys = (const uint8_t *)&blocks[i].key,
        };

        msg_blocks_stored_pack(&s->w->out, 0, &m);
    }
    worker_send_all(s->w);
}

static void on_gone(void *arg, const uint64_t *keys, uint32_t n)
{
    struct worker_shared *s = arg;
    struct msg_blocks_removed m = {
        .tier = PROTO_TIER_SHARED, .n = n, .keys = (const uint8_t *)keys};

    msg_blocks_removed_pack(&s->w->out, 0, &m);
    worker_send_all(s->w);
}

static const struct shared_tier_ops tier_ops = {
    .turned = on_turned,
    .stored = on_stored,
    .gone = on_gone,
};

static void on_released(void *arg)
{
    struct worker_shared *s = arg;

    worker_poke(s->w);
}

static int read_url(struct worker_shared *s, char *err, size_t err_bytes)
{
    const struct worker_options *o = s->w->options;
    char why[256];

    if (redis_url_parse_servers(o->shared_store, &s->url, why, sizeof(why)) < 0)
        return error_say(err, err_bytes, -EINVAL, "--shared-store: %s", why);
    redis_url_shown(o->shared_store, s->shown, sizeof(s->shown));
    if (!o->shared_store_password_file)
        return 0;
    const char *cannot =
        file_read_key(o->shared_store_password_file, s->url.password,
                      sizeof(s->url.password));
    return cannot ? error_say(err, err_bytes, -EINVAL,
                              "--shared-store-password-file %.200s: %s",
                              o->shared_store_password_file, cannot)
                  : 0;
}

/* Loads the authorities that certify the store. */
static int trust(struct worker_shared *s, char *err, size_t err_bytes)
{
    const char *ca = s->w->options->shared_store_ca;
    char why[256];

    if (!s->url.tls)
        return ca ? error_say(err, err_bytes, -EINVAL,
                              "--shared-store-ca needs a rediss:// in "
                              "--shared-store")
                  : 0;
    s->tls = tls_new(ca ? ca : "", false, why, sizeof(why));
    return s->tls
               ? 0
               : error_say(err, err_bytes, -EINVAL,
                           "--shared-store-ca %.200s: %s", ca ? ca : "", why);
}

static uint64_t stored_bytes(const struct shared_shape *shape)
{
    return shape->block_bytes + shared_head_bytes(shape) +
           (uint64_t)(shape->layers + 1) * FIELD_BYTES + BLOCK_EXTRA_BYTES;
}

static int open_tier(struct worker_shared *s, char *err, size_t err_bytes)
{
    const struct worker *w = s->w;
    struct shared_tier_config c = {
        .loop = w->loop,
        .url = &s->url,
        .tls = s->tls,
        .shown = s->shown,
        .shape = {.fingerprint = w->layout->fingerprint,
                  .block_bytes = w->layout->block_bytes,
                  .block_tokens = w->layout->block_tokens,
                  .layers = w->layout->layers},
        .ttl_s = w->options->shared_store_ttl,
        .timeout_us = (int64_t)w->options->shared_store_timeout_ms * 1000,
    };

    c.max_blocks =
        ((uint64_t)w->options->shared_store_mib << 20) / stored_bytes(&c.shape);
    if (c.max_blocks == 0)
        return error_say(err, err_bytes, -EINVAL,
                         "--shared-store-mib %u: one block takes %.1f MiB",
                         w->options->shared_store_mib,
                         (double)stored_bytes(&c.shape) / 1048576.0);
    s->tier = shared_tier_new(&c, &tier_ops, s);
    return s->tier ? 0 : -ENOMEM;
}

int worker_shared_open(struct worker *w, char *err, size_t err_bytes)
{
    struct worker_shared *s;

    if (!w->options->shared_store)
        return 0;
    w->shared = s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->w = w;
    int rc = read_url(s, err, err_bytes);
    if (rc == 0)
        rc = trust(s, err, err_bytes);
    if (rc == 0)
        rc = open_tier(s, err, err_bytes);
    if (rc < 0)
        return rc;
    struct kv_store_stats memory;
    kv_store_stats(w->store, &memory);
    uint32_t most_unput = w->options->shared_store_put == WORKER_PUTS_ALL
                              ? 0
                              : memory.capacity_blocks / UNPUT_SHARE;
    s->keeper =
        shared_keeper_new(w->store, s->tier, most_unput, on_released, s);
    return s->keeper ? 0 : -ENOMEM;
}

void worker_shared_close(struct worker *w)
{
    struct worker_shared *s = w->shared;

    if (!s)
        return;
    shared_tier_free(s->tier);
    shared_keeper_free(s->keeper);
    tls_free(s->tls);
    explicit_bzero(&s->url, sizeof(s->url));
    free(s);
    w->shared = NULL;
}

void worker_shared_say(struct worker *w, struct conductor *to)
{
    if (!w->shared)
        return;
    const struct shared_tier_stats *stats = shared_tier_stats(w->shared->tier);
    const struct loader_source *s = shared_source(w->loader, w->shared->tier);
    struct msg_shared m = {
        .id = shared_tier_id(w->shared->tier),
        .bytes_per_s = s ? (uint64_t)loader_source_bytes_per_s(s) : 0,
        .put_blocks = stats->put_blocks,
        .missed_blocks = stats->missed_blocks + stats->damaged_blocks,
        .failed_puts = stats->put_failed,
        .went_away = stats->away,
    };

    msg_shared_pack(&w->out, 0, &m);
    if (to)
        worker_send(w, to);
    else
        worker_send_all(w);
}

void worker_shared_tell(struct worker *w, struct conductor *to)
{
    if (!w->shared)
        return;
    worker_shared_say(w, to);
    shared_tier_list(w->shared->tier);
}

void worker_shared_poke(struct worker *w)
{
    if (w->shared)
        shared_keeper_poke(w->shared->keeper);
}

void worker_shared_tick(struct worker *w)
{
    if (!w->shared)
        return;
    shared_tier_tick(w->shared->tier);
    shared_keeper_tick(w->shared->keeper);
}

struct shared_tier *worker_shared_tier(const struct worker *w)
{
    return w->shared ? w->shared->tier : NULL;
}
