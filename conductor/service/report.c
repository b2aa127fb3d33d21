/* What the service tells of itself: metrics and health. */
#include <errno.h>
#include <event2/buffer.h>
#include <string.h>

#include "base/clock.h"
#include "conductor/service/access/log.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"

static const struct {
    const char *name, *help;
} instance_gauges[] = {
    {"ready", "1 while the instance is given work."},
    {"draining", "1 while it ends its work and is well, but gets none."},
    {"prefills_waiting", "Accepted prefills that have not begun."},
    {"prefills_running", "Prefills under way."},
    {"decodes", "Requests that decode here, or will."},
    {"kv_used_tokens", "KV in use, cached blocks included."},
    {"kv_pinned_tokens", "KV in use by requests; the rest can be evicted."},
    {"kv_capacity_tokens", "KV room."},
    {"prefill_correction_ratio", "Observed over predicted prefill time."},
    {"link_bytes_per_second", "Smoothed rate of sending blocks."},
    {"disk_used_tokens", "KV on the instance's disk."},
    {"disk_bytes_per_second", "Rate of reading from its disk; 0: it has none."},
    {"blocks", "Blocks that the index knows to be here."},
};

#define GAUGES (sizeof(instance_gauges) / sizeof(instance_gauges[0]))

/* The gauge's value, in the order of the table. */
static double value_of(const struct service *s, const struct pool_instance *in,
                       size_t gauge)
{
    const struct worker *w = &s->workers[in->slot];
    double block_tokens = (double)s->config.block_tokens;
    const double values[GAUGES] = {
        pool_takes_work(in),
        pool_shown_health(in) == HEALTH_DRAINING,
        (double)in->n_waiting,
        (double)in->n_running,
        (double)in->n_decodes,
        (double)in->kv_used_tokens,
        (double)w->kv_pinned_blocks * block_tokens,
        (double)in->kv_capacity_tokens,
        in->correction.ratio,
        in->link_bytes_per_s,
        (double)w->disk_used_blocks * block_tokens,
        in->tier_bytes_per_s[TIER_DISK],
        (double)prefix_index_held(s->index, in->slot),
    };

    return values[gauge];
}

static int write_gauge(const struct service *s, size_t g, struct evbuffer *out)
{
    char label[2 * POOL_NAME_BYTES];
    int bad = 0;

    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        const struct pool_instance *in = pool_at(s->pool, i);

        if (!in || (s->forwards && s->engines[i]->replaced))
            continue;
        metrics_escape(in->name, label);
        bad |= evbuffer_add_printf(
                   out, "conductor_instance_%s{instance=\"%s\"} %.9g\n",
                   instance_gauges[g].name, label, value_of(s, in, g)) < 0;
    }
    return bad;
}

static int write_instances(const struct models *models, struct evbuffer *out)
{
    int bad = 0;

    for (size_t g = 0; g < GAUGES; g++) {
        const char *name = instance_gauges[g].name;

        bad |= evbuffer_add_printf(out,
                                   "# HELP conductor_instance_%s %s\n"
                                   "# TYPE conductor_instance_%s gauge\n",
                                   name, instance_gauges[g].help, name) < 0;
        for (const struct service *s = models->first; s; s = s->next)
            bad |= write_gauge(s, g, out);
    }
    return bad ? -ENOMEM : 0;
}

/* What all models have in flight, in memory, and in their indexes. */
struct sums {
    struct metrics metrics;
    uint64_t in_flight, warm_jobs, pending_dropped, interrupted;
    int64_t overhead_us; /* the longest */
    uint64_t keys, holders, bytes, bytes_max, evicted, unindexed;
};

static void sum_up(const struct models *models, struct sums *sums)
{
    memset(sums, 0, sizeof(*sums));
    sums->metrics = models->past.metrics;
    sums->pending_dropped = models->past.pending_dropped;
    sums->interrupted = models->past.interrupted;
    sums->evicted = models->past.index_evicted;
    for (const struct service *s = models->first; s; s = s->next) {
        struct prefix_index_stats x = prefix_index_stats(s->index);

        metrics_add(&sums->metrics, &s->metrics);
        sums->in_flight += s->table.size - s->table.n_free;
        sums->warm_jobs += s->warm.n_jobs;
        if (s->dispatch.overhead_us > sums->overhead_us)
            sums->overhead_us = s->dispatch.overhead_us;
        sums->pending_dropped += pool_pending_dropped(s->pool);
        sums->interrupted += pool_interrupted(s->pool);
        sums->keys += x.keys;
        sums->holders += x.holders;
        sums->bytes += x.bytes;
        sums->bytes_max += x.bytes_max;
        sums->evicted += x.evicted;
        sums->unindexed += x.unindexed + engines_unkept(s);
    }
}

int models_metrics(const struct models *models, struct evbuffer *out)
{
    struct sums sums;

    sum_up(models, &sums);
    int rc = metrics_write(&sums.metrics, out);
    if (rc)
        return rc;
    int n = evbuffer_add_printf(
        out,
        "# HELP conductor_requests_in_flight Requests not ended yet.\n"
        "# TYPE conductor_requests_in_flight gauge\n"
        "conductor_requests_in_flight %llu\n"
        "# HELP conductor_warm_jobs Refused prompts that are kept to be "
        "computed in the background.\n"
        "# TYPE conductor_warm_jobs gauge\n"
        "conductor_warm_jobs %llu\n"
        "# HELP conductor_overhead_seconds Time to first token outside queue "
        "and prefill, median of the last 15; the longest of all models.\n"
        "# TYPE conductor_overhead_seconds gauge\n"
        "conductor_overhead_seconds %.6f\n"
        "# HELP conductor_pending_dropped_total Prefills whose blocks no match "
        "could count on before they were stored, for lack of memory.\n"
        "# TYPE conductor_pending_dropped_total counter\n"
        "conductor_pending_dropped_total %llu\n"
        "# HELP conductor_prefills_interrupted_total How often a prefill went "
        "on that a shorter one had interrupted.\n"
        "# TYPE conductor_prefills_interrupted_total counter\n"
        "conductor_prefills_interrupted_total %llu\n"
        "# HELP conductor_index_blocks Distinct blocks in the index.\n"
        "# TYPE conductor_index_blocks gauge\n"
        "conductor_index_blocks %llu\n"
        "# HELP conductor_index_holders Blocks times their holders.\n"
        "# TYPE conductor_index_holders gauge\n"
        "conductor_index_holders %llu\n"
        "# HELP conductor_index_bytes Memory of the index in use.\n"
        "# TYPE conductor_index_bytes gauge\n"
        "conductor_index_bytes %llu\n"
        "# HELP conductor_index_max_bytes Its bound.\n"
        "# TYPE conductor_index_max_bytes gauge\n"
        "conductor_index_max_bytes %llu\n"
        "# HELP conductor_index_evicted_blocks_total Blocks of workers that "
        "left the index to make room.\n"
        "# TYPE conductor_index_evicted_blocks_total counter\n"
        "conductor_index_evicted_blocks_total %llu\n"
        "# HELP conductor_index_unindexed_blocks Blocks that workers hold and "
        "the index had no room for, at most.\n"
        "# TYPE conductor_index_unindexed_blocks gauge\n"
        "conductor_index_unindexed_blocks %llu\n",
        (unsigned long long)sums.in_flight, (unsigned long long)sums.warm_jobs,
        (double)sums.overhead_us / 1e6,
        (unsigned long long)sums.pending_dropped,
        (unsigned long long)sums.interrupted, (unsigned long long)sums.keys,
        (unsigned long long)sums.holders, (unsigned long long)sums.bytes,
        (unsigned long long)sums.bytes_max, (unsigned long long)sums.evicted,
        (unsigned long long)sums.unindexed);
    n = n < 0
            ? n
            : evbuffer_add_printf(
                  out,
                  "# HELP conductor_discovery_failures_total Look-ups of "
                  "engines' hosts, and readings of engines_file, that failed.\n"
                  "# TYPE conductor_discovery_failures_total counter\n"
                  "conductor_discovery_failures_total{source=\"dns\"} %llu\n"
                  "conductor_discovery_failures_total{source=\"file\"} %llu\n"
                  "# HELP conductor_discovery_empty_names Engines' hosts that "
                  "are looked up and have no address.\n"
                  "# TYPE conductor_discovery_empty_names gauge\n"
                  "conductor_discovery_empty_names %zu\n",
                  (unsigned long long)models->fleet.lookups_failed,
                  (unsigned long long)models->fleet.readings_failed,
                  fleet_empty_names(&models->fleet));
    n = n < 0 ? n
              : evbuffer_add_printf(
                    out,
                    "# HELP conductor_access_log_lost_total Lines that the "
                    "access log has not taken.\n"
                    "# TYPE conductor_access_log_lost_total counter\n"
                    "conductor_access_log_lost_total %llu\n",
                    (unsigned long long)access_log_lost(models->access));
    for (struct service *s = models->first; s; s = s->next)
        tenants_weigh(models->tenants, &s->dispatch, clock_now_us());
    if (n < 0 || tenants_write(models->tenants, out) ||
        write_instances(models, out))
        return -ENOMEM;
    if (engines_write_metrics(models->first, out))
        return -ENOMEM;
    return stores_write_metrics(models->first, out);
}

int models_explain(const struct models *models, const char *id,
                   struct evbuffer *out)
{
    int rc = -ENOENT;

    for (const struct service *s = models->first; s && rc == -ENOENT;
         s = s->next)
        rc = explain_write(s->explain, id, out);
    return rc;
}

int models_health(const struct models *models, struct evbuffer *out)
{
    uint32_t by_health[HEALTH_STATES] = {0}, prefill = 0, decode = 0;
    const struct fleet_entry *entry;
    const struct scout *scout; /* whose model is not known yet */
    uint32_t in_flight = 0;
    bool ready = false;

    for (const struct service *s = models->first; s; s = s->next) {
        for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
            const struct pool_instance *in = pool_at(s->pool, i);

            if (in)
                by_health[pool_shown_health(in)]++;
        }
        prefill += instances_count(s, ROLE_PREFILL);
        decode += instances_count(s, ROLE_DECODE);
        in_flight += s->table.size - s->table.n_free;
        ready = ready || service_ready(s);
    }
    TAILQ_FOREACH(entry, &models->fleet.entries, entry)
    {
        TAILQ_FOREACH(scout, &entry->scouts, of_entry)
        {
            by_health[HEALTH_STARTING]++;
        }
    }
    int n = evbuffer_add_printf(
        out,
        "{\"status\": \"%s\", \"instances\": {\"prefill\": %u, \"decode\": %u, "
        "\"starting\": %u, \"ready\": %u, \"draining\": %u, \"suspect\": %u}, "
        "\"requests_in_flight\": %u}\n",
        ready ? "ready" : "not ready", prefill, decode,
        by_health[HEALTH_STARTING], by_health[HEALTH_READY],
        by_health[HEALTH_DRAINING], by_health[HEALTH_SUSPECT], in_flight);
    return n < 0 ? -ENOMEM : 0;
}
