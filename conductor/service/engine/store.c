/*
 * A store that all engines of a model read: Mooncake's, or another that
 * publishes KV events. It has a slot of its own in the index; behind an
 * engine's own blocks a match continues in the store, as in a disk of the
 * engine with the store's rate.
 *
 * Mooncake's master names objects, not tokens. A name contains a block's hash;
 * an engine's event, earlier or later, maps it to a block key.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/loop/loop.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/engine/engine.h"

#define WAITING_BYTES (16u << 20)

static void on_stored(void *arg, enum block_tier tier, uint64_t parent_key,
                      const uint64_t *keys, size_t n)
{
    struct service *s = arg;

    prefix_index_stored(s->index, service_store_slot(s), tier, parent_key, keys,
                        n);
}

static void on_removed(void *arg, enum block_tier tier, const uint64_t *keys,
                       size_t n)
{
    struct service *s = arg;

    prefix_index_removed(s->index, service_store_slot(s), tier, keys, n);
}

static void on_cleared(void *arg)
{
    struct service *s = arg;

    prefix_index_cleared(s->index, service_store_slot(s));
}

static uint64_t room_cost(void *arg)
{
    const struct service *s = arg;

    return prefix_index_room_cost(s->index);
}

static const struct kv_map_sink sink = {
    .stored = on_stored,
    .removed = on_removed,
    .cleared = on_cleared,
};

/* Returns the block key of a hash, as published by any engine; 0 = none. */
static uint64_t key_of(void *arg, uint64_t hash, uint64_t *seed)
{
    const struct service *s = arg;
    uint64_t key = 0;

    for (uint32_t i = 0; key == 0 && i < pool_slots(s->pool); i++)
        if (s->engines.by_slot[i] && s->engines.by_slot[i]->events.feed)
            key = kv_map_key(kv_feed_map(s->engines.by_slot[i]->events.feed),
                             hash, seed);
    return key;
}

int store_listen(struct service *s, char err[CONFIG_ERROR_MAX])
{
    const struct store_config *c = s->engines.store;
    struct kv_feed_config config = {
        .ranks = 1,
        .map = {.model = s->config.model,
                .block_tokens = (uint32_t)s->config.block_tokens,
                .max_waiting_bytes = WAITING_BYTES,
                .seed = loop_random(s->loop),
                .key_of = key_of,
                .room_cost = room_cost},
    };

    if (!c)
        return 0;
    config.name = c->name;
    config.endpoint = c->kv_events;
    config.bind = c->kv_events_bind;
    config.replay_endpoint = c->kv_replay;
    config.topic = c->kv_topic;
    config.map.max_blocks = (uint64_t)c->max_blocks;
    config.map.parts = (uint32_t)c->parts;
    s->engines.feeds = kv_feeds_new(s->loop);
    if (s->engines.feeds)
        s->engines.store_feed =
            kv_feed_new(s->engines.feeds, &config, &sink, s);
    if (s->engines.store_feed)
        return 0;
    return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                     "stores: %s: kv_events %.100s: %s", c->name, c->kv_events,
                     strerror(errno));
}

void store_share(struct engine *e)
{
    struct service *s = e->service;

    if (!s->engines.store)
        return;
    /* In tokens: service_make_scheduler() was given 1 byte per token. The rate
     * is at least 1, and the engine is there. */
    (void)!pool_set_tier_rate(s->pool, e->id, TIER_DISK,
                              (double)s->engines.store->tokens_per_s);
    if (e->events.feed)
        kv_map_follow(kv_feed_map(e->events.feed),
                      kv_feed_map(s->engines.store_feed));
}

static const struct {
    const char *name, *type, *help;
} lines[] = {
    {"blocks", "gauge", "Blocks of the store in the index."},
    {"objects", "gauge", "Objects (parts of blocks) that the store reports."},
    {"events_total", "counter", "KV events received from the store."},
    {"events_state", "gauge",
     "State of the store's KV events: 0 = complete, 1 = none yet, 2 = some are "
     "lost, 3 = a replay is running."},
    {"events_lost_total", "counter",
     "KV event messages of the store lost for good."},
};

int stores_write_metrics(const struct service *all, struct text_buf *out)
{
    char store[2 * POOL_NAME_BYTES];
    int bad = 0;

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        bool first = true;

        for (const struct service *s = all; s; s = s->next) {
            if (!s->engines.store_feed)
                continue;
            struct kv_feed_stats k = kv_feed_stats(s->engines.store_feed);
            const double values[] = {
                (double)prefix_index_held(s->index, service_store_slot(s)),
                (double)k.map.entries, (double)k.events, (double)k.state,
                (double)k.lost};

            metrics_escape(s->engines.store->name, store);
            if (first)
                bad |= text_buf_printf(out,
                                       "# HELP conductor_store_%s %s\n"
                                       "# TYPE conductor_store_%s %s\n",
                                       lines[i].name, lines[i].help,
                                       lines[i].name, lines[i].type) < 0;
            bad |=
                text_buf_printf(out, "conductor_store_%s{store=\"%s\"} %.17g\n",
                                lines[i].name, store, values[i]) < 0;
            first = false;
        }
    }
    return bad ? -ENOMEM : 0;
}
