/* See draw.h. */
#include "tools/replay/study/sweep/draw.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "traces/generate.h"
#include "traces/random.h"
#include "traces/trace.h"

/* Limits of the search for a rate. */
#define RATE_START 4.0
#define RATE_MIN 1e-3
#define RATE_MAX 1e5
#define RATE_STEPS_MAX 12
#define RATE_TOLERANCE 0.03

/* Returns a number in [0, 1). */
static double uniform(struct random_state *random)
{
    return (double)(random_u64(random) >> 11) * 0x1p-53;
}

static double in_range(struct random_state *random,
                       const struct sweep_range *range)
{
    return range->least + (range->most - range->least) * uniform(random);
}

/* Returns a number uniform on a logarithmic scale, for ranges that span orders
 * of magnitude. */
static double in_log_range(struct random_state *random,
                           const struct sweep_range *range)
{
    const struct sweep_range logs = {log(range->least), log(range->most)};

    return exp(in_range(random, &logs));
}

/* Draws the optional features, only if the description has them. */
static void draw_optional(const struct sweep_description *d,
                          struct random_state *random, struct sweep_draw *draw)
{
    if (d->asks > 0) {
        bool asks = uniform(random) < d->asks;

        draw->max_tokens =
            (uint32_t)lround(in_log_range(random, &d->max_tokens)) * asks;
    }
    if (d->mixed > 0) {
        bool mixed = uniform(random) < d->mixed;

        draw->mixed_nodes = in_range(random, &d->mixed_nodes) * mixed;
        draw->mixed_cost = in_log_range(random, &d->mixed_cost);
        draw->mixed_memory = in_log_range(random, &d->mixed_memory);
    }
    if (d->small > 0) {
        bool small = uniform(random) < d->small;

        draw->cache = in_log_range(random, &d->cache) * small;
    }
}

/* Draws every number in every case, so that a changed share changes nothing
 * else. */
void sweep_draw(const struct sweep_description *d, uint64_t seed,
                uint64_t number, struct sweep_draw *draw)
{
    struct random_state random;

    random_init(&random, random_mix(seed) + random_mix(number + 1));
    *draw = (struct sweep_draw){.number = number};
    /* JSON can hold it exactly; never 0. */
    draw->seed = 1 + (random_u64(&random) >> 12);
    draw->hardware =
        &d->hardware[random_below(&random, (uint32_t)d->n_hardware)];
    draw->trace = &d->traces[random_below(&random, (uint32_t)d->n_traces)];
    draw->requests = (uint64_t)llround(in_range(&random, &d->requests));
    draw->nodes = (uint32_t)lround(in_log_range(&random, &d->nodes));
    draw->balance = in_log_range(&random, &d->balance);
    draw->link_gbps = in_log_range(&random, &d->link_gbps);
    draw->load = in_range(&random, &d->load);
    draw->slo_ttft_s = in_log_range(&random, &d->slo_ttft_s);
    draw->aggregated = uniform(&random) < d->aggregated;
    draw->disks = uniform(&random) < d->disks && !draw->aggregated &&
                  draw->hardware->tiers[TIER_DISK].capacity_tokens > 0;
    bool unequal = uniform(&random) < d->unequal;
    draw->slow_nodes = in_range(&random, &d->slow_nodes) * unequal;
    draw->slow_speed = in_range(&random, &d->slow_speed);
    bool errors = uniform(&random) < d->errors;
    draw->prefill_error_sigma =
        in_range(&random, &d->prefill_error_sigma) * errors;
    draw->decode_error_sigma =
        in_range(&random, &d->decode_error_sigma) * errors;
    if (d->slo_tbt_s.most > 0)
        draw->slo_tbt_s = in_log_range(&random, &d->slo_tbt_s);
    draw_optional(d, &random, draw);
}

struct replay_stream_options sweep_source(const struct sweep_draw *draw,
                                          uint64_t i, double rate)
{
    bool generated = draw->trace->like[0] != '\0';

    return (struct replay_stream_options){
        .path = generated ? draw->trace->name : draw->trace->file,
        .like = generated ? draw->trace->like : NULL,
        .like_seed = draw->seed + i,
        .like_rate = rate,
        .ties_seed = i == 0 || generated ? 0 : draw->seed + i,
        .requests = draw->requests,
        .block_tokens = TRACE_BLOCK_TOKENS,
        .length_scale = draw->trace->length_scale,
        .regular_only = true};
}

/* Makes the cluster, except node counts per role and speeds. */
static struct cluster make_cluster(const struct sweep_draw *draw)
{
    const struct sweep_hardware *h = draw->hardware;
    struct cluster c = {
        .layers = h->layers,
        .block_tokens = TRACE_BLOCK_TOKENS / draw->trace->length_scale,
        .kv_bytes_per_token = h->kv_bytes_per_token,
        .cost.range = {.uncached_max_tokens = TRACE_TOKENS_MAX,
                       .cached_max_tokens = TRACE_TOKENS_MAX,
                       .batch_max = 1 << 16,
                       .kv_tokens_max = INT64_C(1) << 40},
        .order = "fifo",
        .step_tokens = h->step_tokens,
        .mix_requests = draw->aggregated,
        .max_waiting = 1023,
        .pipeline_stages = 1,
        .prefix_cache = true,
        .decode_kv_tokens = h->kv_tokens,
        .decode_max_batch = h->max_batch,
        .link_bytes_per_s = draw->link_gbps * 1e9 / 8,
        .links_shared = true,
        .layerwise = true,
        .kvcache_balancing_threshold = 1.0,
        .reality = {.prefill_error_sigma = draw->prefill_error_sigma,
                    .decode_error_sigma = draw->decode_error_sigma,
                    .max_tokens_fixed = draw->max_tokens}};

    snprintf(c.name, sizeof(c.name), "case-%llu",
             (unsigned long long)draw->number);
    memcpy(c.cost.prefill, h->prefill_us, sizeof(c.cost.prefill));
    memcpy(c.cost.decode, h->decode_us, sizeof(c.cost.decode));
    memcpy(c.tiers, h->tiers, sizeof(c.tiers));
    if (!draw->disks)
        c.tiers[TIER_DISK] = (struct cluster_tier){0};
    if (draw->aggregated) {
        memset(c.tiers, 0, sizeof(c.tiers));
        c.tiers[TIER_DEVICE].capacity_tokens = h->kv_tokens;
    }
    return c;
}

/* Splits the nodes in proportion to the work, times the balance. */
static void split_nodes(const struct sweep_draw *draw,
                        const struct sweep_work *work, struct cluster *c)
{
    double share = work->prefill_s / (work->prefill_s + work->decode_s);
    long prefill = lround(draw->nodes * share * draw->balance);

    if (draw->aggregated) {
        c->coupled_nodes = draw->nodes;
        return;
    }
    prefill = prefill < 1 ? 1 : prefill;
    prefill = prefill < (long)draw->nodes ? prefill : (long)draw->nodes - 1;
    c->prefill_nodes = (uint32_t)prefill;
    c->decode_nodes = draw->nodes - c->prefill_nodes;
}

/* Makes the first nodes of each role slow, at least one that prefills. */
static void slow_down(const struct sweep_draw *draw, struct cluster *c)
{
    uint32_t n_first = c->prefill_nodes + c->coupled_nodes;
    long slow = lround(n_first * draw->slow_nodes);
    long slow_decodes = lround(c->decode_nodes * draw->slow_nodes);

    if (!(draw->slow_nodes > 0.0))
        return;
    slow = slow < 1 ? 1 : slow;
    c->reality.n_speeds = cluster_nodes(c);
    for (uint32_t i = 0; i < c->reality.n_speeds; i++) {
        bool is_slow =
            i < n_first ? i < slow : i - n_first < (uint32_t)slow_decodes;

        c->reality.node_speed[i] = is_slow ? draw->slow_speed : 1.0;
    }
}

/* Returns `tokens` times a factor, in whole blocks, at least one. */
static int64_t scaled(int64_t tokens, double times, const struct cluster *c)
{
    int64_t blocks = llround((double)tokens * times / c->block_tokens);

    return (blocks < 1 ? 1 : blocks) * c->block_tokens;
}

/* Gives the last nodes of a role, at least one, other costs and memory. */
static void add_group(const struct sweep_draw *draw, struct cluster *c,
                      bool decodes, uint32_t n_nodes)
{
    struct cluster_group *g = &c->groups[c->n_groups];
    long n = lround(n_nodes * draw->mixed_nodes);

    if (!(draw->mixed_nodes > 0.0) || n_nodes == 0)
        return;
    n = n < 1 ? 1 : n;
    *g = (struct cluster_group){.decodes = decodes,
                                .first = n_nodes - (uint32_t)n,
                                .nodes = (uint32_t)n,
                                .has_prefill = !decodes,
                                .has_decode = decodes || c->coupled_nodes > 0};
    for (size_t i = 0; i < COST_MODEL_PREFILL_TERMS; i++)
        g->prefill_us[i] = c->cost.prefill[i] * draw->mixed_cost;
    for (size_t i = 0; i < COST_MODEL_DECODE_TERMS; i++)
        g->decode_us[i] = c->cost.decode[i] * draw->mixed_cost;
    for (unsigned t = 0; t < BLOCK_TIERS && !decodes; t++) {
        g->has_tier[t] = c->tiers[t].capacity_tokens > 0;
        g->tiers[t] = c->tiers[t];
        if (g->has_tier[t])
            g->tiers[t].capacity_tokens =
                scaled(c->tiers[t].capacity_tokens, draw->mixed_memory, c);
    }
    if (g->has_decode)
        g->decode_kv_tokens =
            scaled(c->decode_kv_tokens, draw->mixed_memory, c);
    c->n_groups++;
}

/* Reduces the memory to the device, with room for at least two of the longest
 * requests; four on coupled nodes, whose decodes share it. */
static void shrink_caches(const struct sweep_draw *draw,
                          const struct sweep_work *work, struct cluster *c)
{
    uint32_t nodes = c->prefill_nodes + c->coupled_nodes;
    int64_t least = (c->coupled_nodes > 0 ? 4 : 2) * work->longest_tokens;
    int64_t tokens =
        scaled(work->touched_tokens, draw->cache / (double)nodes, c);

    if (!(draw->cache > 0))
        return;
    if (tokens < least)
        tokens = scaled(least, 1.0, c) + c->block_tokens;
    if (c->coupled_nodes > 0)
        c->decode_kv_tokens = tokens;
    memset(c->tiers, 0, sizeof(c->tiers));
    c->tiers[TIER_DEVICE].capacity_tokens = tokens;
}

/* Returns whether a trace's rate scales only the starts of sessions, so that
 * replaying it faster is not equivalent. */
static bool has_sessions(const struct sweep_trace *t)
{
    const struct trace_workload_facts *facts;

    for (size_t i = 0; (facts = trace_workload_facts(i)); i++)
        if (strcmp(facts->name, t->like) == 0)
            return facts->sessions;
    return false;
}

static int read_work(const struct sweep_case *made, struct sweep_work *work,
                     char error[SWEEP_ERROR_BYTES])
{
    const struct replay_stream_options source =
        sweep_source(&made->draw, 0, made->rate);

    return sweep_work_read(&source, &made->cluster, work, error,
                           SWEEP_ERROR_BYTES);
}

/*
 * Searches the session rate that gives the drawn load. The load grows with the
 * square root of the rate while sessions only begin, and in proportion once as
 * many end. So each step uses the slope of the last two.
 */
static int search_rate(struct sweep_case *made, struct sweep_work *work,
                       char error[SWEEP_ERROR_BYTES])
{
    double slope = 1.0, last_rate = 0.0, last_load = 0.0;
    int rc = 0;

    made->rate = RATE_START;
    for (int i = 0; rc == 0; i++) {
        rc = read_work(made, work, error);
        if (rc != 0)
            break;
        made->load = sweep_work_least_s(work, &made->cluster) / work->span_s;
        double off = log(made->draw.load / made->load);
        if (i == RATE_STEPS_MAX || fabs(off) < RATE_TOLERANCE)
            break;
        if (i > 0 && fabs(log(made->rate / last_rate)) > 1e-6)
            slope = log(made->load / last_load) / log(made->rate / last_rate);
        slope = fmin(fmax(slope, 0.3), 3.0);
        last_rate = made->rate;
        last_load = made->load;
        made->rate *= exp(off / slope);
        made->rate = fmin(fmax(made->rate, RATE_MIN), RATE_MAX);
    }
    return rc;
}

/* Sets the speed, or the rate, that gives the load. */
static int set_load(struct sweep_case *made, char error[SWEEP_ERROR_BYTES])
{
    struct sweep_work work;
    int rc;

    made->speed = 1.0;
    if (has_sessions(made->draw.trace))
        return search_rate(made, &work, error);
    rc = read_work(made, &work, error);
    if (rc != 0)
        return rc;
    made->load = made->draw.load;
    made->speed =
        made->load * work.span_s / sweep_work_least_s(&work, &made->cluster);
    return 0;
}

int sweep_case_make(const struct sweep_draw *draw, struct sweep_case *made,
                    char error[SWEEP_ERROR_BYTES])
{
    struct sweep_work work;

    *made = (struct sweep_case){.draw = *draw, .cluster = make_cluster(draw)};
    int rc = read_work(made, &work, error);
    if (rc != 0)
        return rc;
    split_nodes(draw, &work, &made->cluster);
    shrink_caches(draw, &work, &made->cluster);
    slow_down(draw, &made->cluster);
    add_group(draw, &made->cluster, false,
              made->cluster.prefill_nodes + made->cluster.coupled_nodes);
    add_group(draw, &made->cluster, true, made->cluster.decode_nodes);
    rc = set_load(made, error);
    return rc != 0 ? rc : cluster_check(&made->cluster, error);
}
