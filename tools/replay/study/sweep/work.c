/* See work.h. */
#include "tools/replay/study/sweep/work.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "traces/id_map.h"

#define IDS_MAX ((size_t)4 << 20)

/* Slots form a ring through slot 0, which holds no block: after it the most
 * recently used block, before it the next one to evict. */
struct slot {
    uint64_t id;
    uint32_t older, newer;
};

struct sweep_lru {
    struct id_map *slots; /* of each id; 0 = evicted */
    struct slot *ring;    /* (n), slot 0 included */
    size_t n, room;
    uint64_t capacity;
};

struct sweep_lru *sweep_lru_new(uint64_t capacity, size_t ids)
{
    struct sweep_lru *lru = calloc(1, sizeof(*lru));

    if (!lru)
        return NULL;
    lru->capacity = capacity < UINT32_MAX ? capacity : UINT32_MAX - 1;
    lru->slots = id_map_new(ids);
    if (lru->slots && array_reserve(lru->ring, lru->room, 1) == 0) {
        lru->ring[0] = (struct slot){0};
        lru->n = 1;
        return lru;
    }
    sweep_lru_free(lru);
    return NULL;
}

void sweep_lru_free(struct sweep_lru *lru)
{
    if (!lru)
        return;
    id_map_free(lru->slots);
    free(lru->ring);
    free(lru);
}

static void take_out(struct sweep_lru *lru, uint32_t i)
{
    struct slot *ring = lru->ring;

    ring[ring[i].older].newer = ring[i].newer;
    ring[ring[i].newer].older = ring[i].older;
}

static void put_newest(struct sweep_lru *lru, uint32_t i)
{
    struct slot *ring = lru->ring;

    ring[i].older = ring[0].older;
    ring[i].newer = 0;
    ring[ring[i].older].newer = i;
    ring[0].older = i;
}

/* Finds a slot for a new block: an unused one, or the oldest block's. */
static int find_slot(struct sweep_lru *lru, uint32_t *slot)
{
    if (lru->n <= lru->capacity) {
        if (array_reserve(lru->ring, lru->room, lru->n + 1) != 0)
            return -ENOMEM;
        *slot = (uint32_t)lru->n++;
        return 0;
    }
    *slot = lru->ring[0].newer;
    take_out(lru, *slot);
    return id_map_put(lru->slots, lru->ring[*slot].id, 0);
}

static int use(struct sweep_lru *lru, uint64_t id, uint64_t *new_blocks)
{
    const uint64_t *found = id_map_get(lru->slots, id);
    uint32_t slot = found ? (uint32_t)*found : 0;
    int rc = 0;

    if (slot > 0) {
        take_out(lru, slot);
        put_newest(lru, slot);
        return 0;
    }
    if (!found) {
        rc = id_map_put(lru->slots, id, 0);
        if (rc != 0)
            return rc == -ENOSPC ? 0 : rc;
        ++*new_blocks;
    }
    rc = find_slot(lru, &slot);
    if (rc != 0)
        return rc;
    lru->ring[slot].id = id;
    put_newest(lru, slot);
    return id_map_put(lru->slots, id, slot);
}

int sweep_lru_use(struct sweep_lru *lru, const uint64_t *ids, size_t n,
                  size_t *leading, uint64_t *new_blocks)
{
    size_t i = 0;
    int rc = 0;

    for (; i < n; i++) {
        const uint64_t *slot = id_map_get(lru->slots, ids[i]);

        if (!slot || *slot == 0)
            break;
    }
    *leading = i;
    for (i = n; rc == 0 && i > 0; i--)
        rc = use(lru, ids[i - 1], new_blocks);
    return rc;
}

/* Sums over the requests so far. */
struct sums {
    struct sweep_lru *cache;
    uint64_t n;
    int64_t first_us, last_us;
    double prefill_us;
    double steps; /* decode steps, counted per request */
    double kv_step_tokens;
    double input_tokens;
    uint64_t touched_blocks;
    int64_t longest_tokens;
};

/* Finds the leading blocks in the cache, and caches all of them. */
static int reused_blocks(struct sums *s, const struct trace_request *t,
                         uint32_t block_tokens, size_t *reused)
{
    size_t full = t->input_tokens / block_tokens;
    size_t most = (t->input_tokens - 1) / block_tokens;
    int rc;

    full = full < t->block_count ? full : t->block_count;
    rc = sweep_lru_use(s->cache, t->hash_ids, full, reused, &s->touched_blocks);
    *reused = *reused < most ? *reused : most;
    return rc;
}

/* Creates the cache of all nodes that prefill; infinite without nodes. */
static struct sweep_lru *make_cache(const struct cluster *c)
{
    uint32_t n = c->prefill_nodes + c->coupled_nodes;
    int64_t tokens = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct cluster_node node;

        cluster_node_at(c, i, &node);
        for (unsigned t = 0; t < BLOCK_TIERS; t++)
            tokens += node.tiers[t].capacity_tokens;
    }
    return sweep_lru_new(n == 0 ? UINT64_MAX
                                : (uint64_t)(tokens / c->block_tokens + 1),
                         IDS_MAX);
}

static int add(struct sums *s, const struct cluster *c,
               const struct trace_request *t)
{
    double output = t->output_tokens > 1 ? t->output_tokens - 1.0 : 0.0;
    size_t reused;
    int rc = reused_blocks(s, t, c->block_tokens, &reused);
    int64_t cached = (int64_t)reused * c->block_tokens;

    if (s->n++ == 0)
        s->first_us = t->arrival_us;
    s->last_us = t->arrival_us;
    s->prefill_us += (double)cost_model_prefill_us(
        &c->cost, t->input_tokens - cached, cached, NULL);
    s->steps += output;
    s->kv_step_tokens += output * (t->input_tokens + output / 2.0);
    s->input_tokens += t->input_tokens;
    if (s->longest_tokens < (int64_t)t->input_tokens + t->output_tokens)
        s->longest_tokens = (int64_t)t->input_tokens + t->output_tokens;
    return rc;
}

/* Returns the time in full batches: as many requests as memory and max_batch
 * allow. */
static double decode_us(const struct sums *s, const struct cluster *c)
{
    double kv = s->steps > 0 ? s->kv_step_tokens / s->steps : 1.0;
    double batch = (double)c->decode_kv_tokens / kv;

    if (batch > c->decode_max_batch)
        batch = c->decode_max_batch;
    if (batch < 1.0)
        batch = 1.0;
    return s->steps / batch *
           (c->cost.decode[0] + c->cost.decode[1] * batch +
            c->cost.decode[2] * batch * kv);
}

int sweep_work_read(const struct replay_stream_options *source,
                    const struct cluster *cluster, struct sweep_work *work,
                    char *error, size_t size)
{
    struct sums sums = {.cache = make_cache(cluster)};
    struct replay_stream_options options = *source;
    struct replay_stream *stream = NULL;
    struct trace_request request = {0};
    int rc = -ENOMEM;

    snprintf(error, size, "out of memory");
    options.quiet = true;
    if (sums.cache)
        rc = replay_stream_open(&options, &stream, error, size);
    while (rc == 0 && (rc = replay_stream_next(stream, &request)) == 1)
        rc = add(&sums, cluster, &request);
    if (rc == 0 && sums.last_us <= sums.first_us) {
        rc = -EINVAL;
        snprintf(error, size, "%s: no two requests at different times",
                 options.path);
    } else if (rc < 0 && stream && replay_stream_error(stream)[0] != '\0') {
        snprintf(error, size, "%s", replay_stream_error(stream));
    }
    if (rc == 0)
        *work = (struct sweep_work){
            .prefill_s = sums.prefill_us / 1e6,
            .decode_s = decode_us(&sums, cluster) / 1e6,
            .kv_bytes = sums.input_tokens * (double)cluster->kv_bytes_per_token,
            .span_s = (double)(sums.last_us - sums.first_us) / 1e6,
            .touched_tokens =
                (int64_t)sums.touched_blocks * cluster->block_tokens,
            .longest_tokens = sums.longest_tokens};
    trace_request_fini(&request);
    replay_stream_free(stream);
    sweep_lru_free(sums.cache);
    return rc;
}

/* Returns the speed of a role's k-th node, relative to the cost model. */
static double speed_of(const struct cluster *c, bool decodes, uint32_t k)
{
    uint32_t i = k + (decodes ? c->prefill_nodes : 0);
    double speed = i < c->reality.n_speeds ? c->reality.node_speed[i] : 1.0;

    for (uint32_t n = 0; n < c->n_groups; n++) {
        const struct cluster_group *g = &c->groups[n];

        if (g->decodes != decodes || k < g->first || k - g->first >= g->nodes ||
            !(decodes ? g->has_decode : g->has_prefill))
            continue;
        speed *= decodes ? (c->cost.decode[0] + c->cost.decode[1]) /
                               (g->decode_us[0] + g->decode_us[1])
                         : (c->cost.prefill[0] + c->cost.prefill[1]) /
                               (g->prefill_us[0] + g->prefill_us[1]);
    }
    return speed;
}

/* Returns the sum of the speeds of a role's n nodes. */
static double speeds(const struct cluster *c, bool decodes, uint32_t n)
{
    double sum = 0.0;

    for (uint32_t k = 0; k < n; k++)
        sum += speed_of(c, decodes, k);
    return sum;
}

double sweep_work_least_s(const struct sweep_work *work,
                          const struct cluster *cluster)
{
    const struct cluster *c = cluster;
    uint32_t links =
        c->prefill_nodes < c->decode_nodes ? c->prefill_nodes : c->decode_nodes;

    if (c->coupled_nodes > 0)
        return (work->prefill_s + work->decode_s) /
               speeds(c, false, c->coupled_nodes);
    double least_s = work->prefill_s / speeds(c, false, c->prefill_nodes);
    double other_s = work->decode_s / speeds(c, true, c->decode_nodes);
    least_s = other_s > least_s ? other_s : least_s;
    other_s = work->kv_bytes / (c->link_bytes_per_s * links);
    return other_s > least_s ? other_s : least_s;
}
