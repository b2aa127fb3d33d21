/* Answers which instances of a model hold a prompt's blocks. */
#include <errno.h>
#include <stdlib.h>

#include "conductor/core/index/block_key.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/ticket/ticket.h"

/* Returns the block key of an engine's hash; 0 = not published. Tries slot
 * *first first, and sets *first to the slot where it was found. */
static uint64_t key_of(const struct service *s, uint64_t hash, uint32_t *first)
{
    uint32_t n = pool_slots(s->pool);

    for (uint32_t i = 0; s->engines.by_slot && i < n; i++) {
        uint32_t slot = (*first + i) % n;
        const struct engine *e = s->engines.by_slot[slot];
        uint64_t seed, key;

        if (!e || !e->events.feed)
            continue;
        key = kv_map_key(kv_feed_map(e->events.feed), hash, &seed);
        if (key) {
            *first = slot;
            return key;
        }
    }
    return 0;
}

void hashes_keys(const struct service *s, const uint64_t *hashes, size_t n,
                 uint64_t seed, uint64_t *keys)
{
    uint32_t first = 0;
    size_t i = 0;

    while (i < n && (keys[i] = key_of(s, hashes[i], &first)))
        i++;
    /* No instance has a block behind a hash that no engine has published. */
    for (; i < n; i++)
        keys[i] = block_key_with(seed, hashes[i], seed);
}

/* Returns the *n keys of the question, owned by the caller; NULL = out of
 * memory. */
static uint64_t *keys_of(const struct service *s,
                         const struct service_question *q, size_t *n)
{
    uint32_t block_tokens = (uint32_t)s->config.block_tokens, first = 0;
    size_t most = q->hashes ? q->n : q->n / block_tokens;
    uint64_t *keys = malloc((most + 1) * sizeof(*keys));

    *n = 0;
    if (!keys)
        return NULL;
    if (!q->hashes)
        *n = block_keys_compute(
            q->tokens, q->n, block_tokens,
            block_key_seed(s->config.model, q->adapter, q->salt), keys);
    else
        while (*n < most && (keys[*n] = key_of(s, q->hashes[*n], &first)))
            ++*n;
    return keys;
}

/* Returns the number of leading blocks held in one of these tiers. */
static uint32_t leading(const struct prefix_match *m, uint32_t slot,
                        unsigned tiers)
{
    uint32_t end = m->blocks[slot];

    /* Ends at the first run outside these tiers, searching from the last. */
    for (uint32_t r = m->last_run[slot]; r != 0; r = m->runs[r].before)
        if (!(m->runs[r].tiers & tiers))
            end = m->runs[r].first_block;
    return end;
}

static int rank_of(const struct service *s, uint32_t slot)
{
    const struct engine *e =
        s->engines.by_slot ? s->engines.by_slot[slot] : NULL;

    return e && e->config->dp_rank > 0 ? (int)e->config->dp_rank : 0;
}

static void write_all(const struct service *s, struct service_holdings *out)
{
    const struct prefix_match *m = &s->tickets.held;
    uint32_t block_tokens = (uint32_t)s->config.block_tokens;

    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *in = pool_at(s->pool, slot);

        if (!in || m->blocks[slot] == 0)
            continue;
        out->at[out->n++] = (struct service_holding){
            .name = in->name,
            .rank = rank_of(s, slot),
            .device =
                block_tokens * leading(m, slot, BLOCK_TIER_BIT(TIER_DEVICE)),
            .host = block_tokens * leading(m, slot,
                                           BLOCK_TIER_BIT(TIER_DEVICE) |
                                               BLOCK_TIER_BIT(TIER_HOST)),
            .all = block_tokens * m->blocks[slot],
        };
    }
}

int service_ask_index(struct service *s, const struct service_question *q,
                      struct service_holdings *out)
{
    uint32_t slots = prefix_index_max_instances(s->index);
    size_t n;
    uint64_t *keys = keys_of(s, q, &n);

    *out = (struct service_holdings){0};
    if (!keys || (!s->tickets.held.blocks &&
                  prefix_match_init(&s->tickets.held, slots))) {
        free(keys);
        return -ENOMEM;
    }
    prefix_index_match(s->index, keys, n, &s->tickets.held);
    free(keys);
    if (s->engines.store)
        schedule_share(s->pool, service_store_slot(s), TIER_DISK,
                       &s->tickets.held);
    out->at = calloc((size_t)pool_slots(s->pool) + 1, sizeof(*out->at));
    if (!out->at)
        return -ENOMEM;
    write_all(s, out);
    return 0;
}

void service_holdings_fini(struct service_holdings *holdings)
{
    free(holdings->at);
    *holdings = (struct service_holdings){0};
}

void service_listeners(const struct service *s, service_listener_fn *each,
                       void *arg)
{
    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++) {
        const struct pool_instance *in = pool_at(s->pool, slot);
        const struct engine *e =
            s->engines.by_slot ? s->engines.by_slot[slot] : NULL;

        if (!in)
            continue;
        each(arg, &(struct service_listener){
                      .name = in->name,
                      .rank = rank_of(s, slot),
                      .endpoint = e ? e->config->kv_events : "",
                      .replay = e ? e->config->kv_replay : "",
                      .state = e && e->events.feed
                                   ? kv_feed_state_name(engine_events_state(e))
                                   : "none",
                      .kind = e ? engine_kind_name(e->config->kind) : "native",
                      .blocks = prefix_index_held(s->index, slot),
                  });
    }
}
