/*
 * Engines that publish KV events: the index follows them instead of
 * predictions.
 *
 * Events name blocks by token ids, so they cover prompts with known ids.
 * Prompts known only by their bytes are predicted on these engines, too; the
 * two kinds of keys never collide. Until the first event, prompts with ids are
 * predicted as well, unless the configuration wants events alone.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/engine/engine.h"

#define BLOCKS_UNTOLD (UINT64_C(1) << 20)
#define WAITING_BYTES (16u << 20)
/* Requests after which an engine must have published an event by now. */
#define SILENT_REQUESTS 16u
/* This few are enough if the first ended SILENT_US ago: events come with the
 * engine's next step. */
#define SILENT_FEW 2u
#define SILENT_US 5000000
/* Pause before an engine is asked again for all its events because the index
 * lacks some. */
#define HEAL_PAUSE_US 10000000

static uint32_t slot_of(const struct engine *e)
{
    return pool_get(e->service->pool, e->id)->slot;
}

/* Handles the first event: drops the engine's predicted blocks. */
static void hear(struct engine *e)
{
    if (e->events.heard)
        return;
    e->events.heard = true;
    e->service->engines.n_heard++;
    log_info("engine %s publishes KV events", e->config->name);
    predicted_clear(e->predicted);
    prefix_index_cleared(e->service->index, slot_of(e));
}

static void on_stored(void *arg, enum block_tier tier, uint64_t parent_key,
                      const uint64_t *keys, size_t n)
{
    struct engine *e = arg;

    hear(e);
    if (kv_map_engine_tokens(kv_feed_map(e->events.feed)) != e->block_tokens)
        engine_take_size(e);
    prefix_index_stored(e->service->index, slot_of(e), tier, parent_key, keys,
                        n);
    e->service->metrics.block_events_stored += n;
    if (!TAILQ_EMPTY(&e->expected))
        expect_told(e);
}

static void on_removed(void *arg, enum block_tier tier, const uint64_t *keys,
                       size_t n)
{
    struct engine *e = arg;

    hear(e);
    prefix_index_removed(e->service->index, slot_of(e), tier, keys, n);
    e->service->metrics.block_events_removed += n;
}

static void on_cleared(void *arg)
{
    struct engine *e = arg;

    predicted_clear(e->predicted);
    prefix_index_cleared(e->service->index, slot_of(e));
    expect_until(e, INT64_MAX);
}

static uint64_t room_cost(void *arg)
{
    const struct engine *e = arg;

    return prefix_index_room_cost(e->service->index);
}

static const struct kv_map_sink sink = {
    .stored = on_stored,
    .removed = on_removed,
    .cleared = on_cleared,
};

int engine_listen(struct engine *e, char err[CONFIG_ERROR_MAX])
{
    const struct engine_config *c = e->config;
    struct service *s = e->service;
    struct kv_feed_config config = {
        .name = c->name,
        .endpoint = c->kv_events,
        .bind = c->kv_events_bind,
        .replay_endpoint = c->kv_replay,
        .topic = c->kv_topic,
        .ranks = (uint16_t)(c->dp_ranks ? c->dp_ranks : 1),
        .first_rank = (uint16_t)(c->dp_rank < 0 ? 0 : c->dp_rank),
        .only = c->dp_rank >= 0,
        .map = {.model = s->config.model,
                .block_tokens = (uint32_t)s->config.block_tokens,
                .engine_tokens = (uint32_t)c->block_tokens,
                .max_blocks = BLOCKS_UNTOLD,
                .max_waiting_bytes = WAITING_BYTES,
                .room_cost = room_cost,
                .seed = loop_random(s->loop)},
    };

    if (!*c->kv_events || c->index == ENGINE_INDEX_PREDICTED)
        return 0;
    if (s->engines.store) /* a store's blocks are not cut */
        config.map.engine_tokens = config.map.block_tokens;
    if (c->kv_blocks)
        config.map.max_blocks = 4 * (uint64_t)c->kv_blocks * config.ranks;
    if (!s->engines.feeds)
        s->engines.feeds = kv_feeds_new(s->loop);
    if (s->engines.feeds)
        e->events.feed = kv_feed_new(s->engines.feeds, &config, &sink, e);
    if (e->events.feed)
        return 0;
    return error_say(err, CONFIG_ERROR_MAX, -EINVAL, "kv_events %.100s: %s",
                     c->kv_events, strerror(errno));
}

static void tell_silence(struct engine *e, const char *since)
{
    if (e->events.silence_told)
        return;
    e->events.silence_told = true;
    log_warn("engine %s: no KV events arrive from %s %s", e->config->name,
             e->config->kv_events, since);
}

/* Asks the engine for all its events again, if the index had no room for some.
 */
static void heal(struct engine *e)
{
    int64_t now_us = loop_now_us(e->service->loop);

    if (!*e->config->kv_replay || now_us < e->events.heal_after_us ||
        !(prefix_index_incomplete(e->service->index, slot_of(e)) ||
          kv_map_incomplete(kv_feed_map(e->events.feed))))
        return;
    e->events.heal_after_us = now_us + HEAL_PAUSE_US;
    log_info("engine %s: the index lacks some of its blocks and has room for "
             "them: a replay of its KV events is requested",
             e->config->name);
    kv_feed_forget(e->events.feed);
}

void engine_unheard(struct engine *e)
{
    if (e->events.n_unheard++ == 0)
        e->events.unheard_since_us = loop_now_us(e->service->loop);
}

enum kv_feed_state engine_events_state(const struct engine *e)
{
    enum kv_feed_state state = kv_feed_stats(e->events.feed).state;

    if (e->events.silence_told)
        return KV_FEED_SILENT;
    return state == KV_FEED_SILENT ? KV_FEED_PARTIAL : state;
}

/* Whether an engine's events are missing. ever: it has published some
 * before. */
static bool is_silent(const struct engine *e, bool ever)
{
    if (e->events.n_unheard >= SILENT_FEW &&
        loop_now_us(e->service->loop) - e->events.unheard_since_us >= SILENT_US)
        return true;
    return (ever ? e->events.n_unheard : e->count.sent - e->count.excused) >=
           SILENT_REQUESTS;
}

static void hear_again(struct engine *e)
{
    if (e->events.silence_told)
        log_info("engine %s: its KV events arrive again", e->config->name);
    e->events.silence_told = false;
    e->events.n_unheard = 0;
}

void engine_check_events(struct engine *e)
{
    char since[128];
    uint64_t n;

    if (!e->events.feed)
        return;
    heal(e);
    n = kv_feed_stats(e->events.feed).messages;
    if (n != e->events.n_messages) {
        e->events.n_messages = n;
        hear_again(e);
    }
    if (!is_silent(e, n > 0))
        return;
    snprintf(since, sizeof(since), "%s %llu requests: %s",
             n ? "during the last" : "after",
             (unsigned long long)(n ? e->events.n_unheard
                                    : e->count.sent - e->count.excused),
             n ? "the index may be outdated"
             : e->config->index == ENGINE_INDEX_EVENTS
                 ? "its cache is unknown"
                 : "its cache is predicted");
    tell_silence(e, since);
}
