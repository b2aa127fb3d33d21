/*
 * An engine's block size, and its effects where it differs from the index's:
 * how blocks of events are cut, how much of a cached prompt is reusable, and
 * how much the index cannot see.
 */
#include <stdio.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/core/index/block_cut.h"
#include "conductor/service/engine/engine.h"

/* Approximate memory of a block in the index. */
#define INDEXED_BYTES 24
/* Pause between two warnings about an engine's block size. */
#define DOUBT_PAUSE_US 60000000

static uint32_t index_tokens(const struct service *s)
{
    return (uint32_t)s->config.block_tokens;
}

bool engine_misfits(const struct service *s, const struct engine_config *c,
                    struct engine_clash *out)
{
    uint32_t size = (uint32_t)c->block_tokens;

    if (size == 0 || size == index_tokens(s) ||
        (!s->engines.store && block_cuts(size, index_tokens(s))))
        return false;
    out->key = "block_tokens";
    snprintf(out->why, sizeof(out->why),
             "%u: the index of model \"%s\" has blocks of %u%s", size, c->model,
             index_tokens(s),
             s->engines.store ? ", and the blocks of a store cannot be cut"
                              : ", and neither divides the other");
    return true;
}

/* Returns the block size by the configuration, else its events, else its
 * metrics, else the index's. */
static uint32_t size_of(const struct engine *e)
{
    int64_t told = e->report.block_tokens;

    if (e->config->block_tokens)
        return (uint32_t)e->config->block_tokens;
    if (e->events.heard)
        return kv_map_engine_tokens(kv_feed_map(e->events.feed));
    if (told > 0 && told <= ENGINE_BLOCK_TOKENS_MAX &&
        block_cuts((uint32_t)told, index_tokens(e->service)))
        return (uint32_t)told;
    return index_tokens(e->service);
}

/* Returns the most cached tokens of a prompt that the index cannot see. */
static uint32_t most_unseen(const struct engine *e)
{
    uint32_t index = index_tokens(e->service);

    return e->block_tokens < index ? index - e->block_tokens : 0;
}

uint32_t engine_unseen_tokens(const struct engine *e, uint32_t prompt_tokens,
                              int64_t cached_tokens)
{
    uint32_t last = prompt_tokens > 0 ? prompt_tokens - 1 : 0;
    int64_t rest = last - last % e->block_tokens - cached_tokens;
    uint32_t most = most_unseen(e);

    return rest < most ? rest < 0 ? 0 : (uint32_t)rest : most;
}

static void tell_size(const struct engine *e)
{
    uint32_t index = index_tokens(e->service);

    if (e->block_tokens < index)
        log_info(
            "engine %s has blocks of %u tokens, and the index of its model has "
            "%u: up to %u cached tokens of a prompt are not counted",
            e->config->name, e->block_tokens, index, most_unseen(e));
    else
        log_info("engine %s has blocks of %u tokens, and the index of its "
                 "model has %u: its cached tokens are counted in steps of %u",
                 e->config->name, e->block_tokens, index, e->block_tokens);
}

/* Converts `told` blocks of `size` tokens to blocks of the index, at most as
 * many as the index can hold; 0 = none told, or an impossible number. */
static uint32_t capacity_of(const struct engine *e, int64_t told, int64_t size)
{
    const struct config *c = &e->service->config;
    int64_t most = e->config->kv_blocks ? PREDICTED_BLOCKS_MAX
                                        : (c->index_mib << 20) / INDEXED_BYTES;

    if (told <= 0 || told > INT64_MAX / size)
        return 0;
    told = told * size / index_tokens(e->service);
    return (uint32_t)(told < most ? told : most);
}

/* Sets the size of the engine's predicted cache from the configuration, else
 * from the engine's report. */
static void take_capacity(struct engine *e)
{
    const struct engine_report *r = &e->report;
    int64_t told = e->config->kv_blocks ? e->config->kv_blocks : r->kv_blocks;
    int64_t size = e->config->kv_blocks || r->block_tokens <= 0
                       ? e->block_tokens
                       : r->block_tokens;
    uint32_t blocks = capacity_of(e, told, size);

    if (blocks == 0 || blocks == predicted_capacity(e->predicted) ||
        predicted_resize(e->predicted, blocks, engine_evicted, e))
        return;
    if (!e->config->kv_blocks)
        log_info("engine %s has %lld KV blocks of %lld tokens; the conductor "
                 "predicts up to %u cached blocks of %u tokens",
                 e->config->name, (long long)told, (long long)size, blocks,
                 index_tokens(e->service));
}

void engine_take_size(struct engine *e)
{
    uint32_t size = size_of(e);

    if (size != e->block_tokens) {
        e->block_tokens = size;
        pool_set_reuse(e->service->pool, e->id,
                       size / index_tokens(e->service));
        tell_size(e);
    }
    take_capacity(e);
}

void engine_doubt_size(struct engine *e)
{
    int64_t told = e->report.block_tokens,
            now_us = loop_now_us(e->service->loop);
    bool doubted = told > 0 && told != e->told_block_tokens &&
                   told != e->block_tokens && now_us >= e->doubt_after_us;

    if (doubted) {
        e->doubt_after_us = now_us + DOUBT_PAUSE_US;
        log_warn(
            "engine %s reports blocks of %lld tokens, but %u are assumed%s",
            e->config->name, (long long)told, e->block_tokens,
            told > ENGINE_BLOCK_TOKENS_MAX ? ": block_tokens is 1024 at most"
                                           : "");
    }
    e->told_block_tokens = told;
}
