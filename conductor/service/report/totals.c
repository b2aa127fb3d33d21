/* Metrics of all models together. */
#include <inttypes.h>
#include <string.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/access/log.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/report/internal.h"
#include "conductor/service/spans/exporter.h"

void report_sums_begin(const struct models *models, struct report_sums *sums)
{
    memset(sums, 0, sizeof(*sums));
    sums->metrics = models->past.metrics;
    sums->pending_dropped = models->past.pending_dropped;
    sums->interrupted = models->past.interrupted;
    sums->evicted = models->past.index_evicted;
}

void report_sums_add(struct report_sums *sums, const struct service *s)
{
    struct prefix_index_stats x = prefix_index_stats(s->index);

    metrics_add(&sums->metrics, &s->metrics);
    sums->in_flight += s->requests.size - s->requests.n_free;
    sums->warm_jobs += s->native.warm.n_jobs;
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

static int put(struct text_buf *out, const char *name, const char *type,
               const char *help, double value)
{
    return text_buf_printf(out,
                           "# HELP conductor_%s %s\n"
                           "# TYPE conductor_%s %s\n"
                           "conductor_%s %.15g\n",
                           name, help, name, type, name, value) < 0;
}

static int put_spans(const struct models *models, struct text_buf *out)
{
    struct exporter_counts n = exporter_counts(models->exporter);

    return text_buf_printf(
               out,
               "# HELP conductor_otlp_spans_total Spans that the receiver took "
               "(sent) or refused (rejected), and spans dropped because the "
               "queue was full.\n"
               "# TYPE conductor_otlp_spans_total counter\n"
               "conductor_otlp_spans_total{result=\"sent\"} %" PRIu64 "\n"
               "conductor_otlp_spans_total{result=\"rejected\"} %" PRIu64 "\n"
               "conductor_otlp_spans_total{result=\"dropped\"} %" PRIu64 "\n",
               n.sent, n.rejected, n.dropped) < 0 ||
           put(out, "otlp_queue_bytes", "gauge",
               "Spans waiting to be sent, the running batch included.",
               (double)exporter_waiting(models->exporter));
}

static int put_index(const struct report_sums *x, struct text_buf *out)
{
    return put(out, "index_blocks", "gauge", "Distinct blocks in the index.",
               (double)x->keys) |
           put(out, "index_holders", "gauge",
               "Blocks in the index, counted once per instance that holds "
               "them.",
               (double)x->holders) |
           put(out, "index_bytes", "gauge", "Memory in use by the index.",
               (double)x->bytes) |
           put(out, "index_max_bytes", "gauge",
               "Limit on the memory of the index.", (double)x->bytes_max) |
           put(out, "index_evicted_blocks_total", "counter",
               "Blocks removed from the index to make room.",
               (double)x->evicted) |
           put(out, "index_unindexed_blocks", "gauge",
               "Upper bound on blocks of instances that the index had no room "
               "for.",
               (double)x->unindexed);
}

static int put_discovery(const struct models *models, struct text_buf *out)
{
    return text_buf_printf(
               out,
               "# HELP conductor_discovery_failures_total DNS look-ups of "
               "engines' hosts, and reads of engines_file, that failed.\n"
               "# TYPE conductor_discovery_failures_total counter\n"
               "conductor_discovery_failures_total{source=\"dns\"} %" PRIu64
               "\n"
               "conductor_discovery_failures_total{source=\"file\"} %" PRIu64
               "\n",
               models->fleet.lookups_failed,
               models->fleet.readings_failed) < 0 ||
           put(out, "discovery_empty_names", "gauge",
               "Hosts of engines with dns that have no address.",
               (double)fleet_empty_names(&models->fleet));
}

int report_sums_write(const struct models *models, const struct report_sums *x,
                      struct text_buf *out)
{
    return metrics_write(&x->metrics, out) |
           put(out, "requests_in_flight", "gauge", "Requests in flight.",
               (double)x->in_flight) |
           put(out, "warm_jobs", "gauge",
               "Refused prompts kept for computing in the background.",
               (double)x->warm_jobs) |
           put(out, "overhead_seconds", "gauge",
               "TTFT outside queue and prefill: median of the last 15 "
               "requests, the largest of all models.",
               (double)x->overhead_us / 1e6) |
           put(out, "pending_dropped_total", "counter",
               "Prefills not tracked for lack of memory: other requests could "
               "plan to reuse their blocks only after they were stored.",
               (double)x->pending_dropped) |
           put(out, "prefills_interrupted_total", "counter",
               "Interrupted prefills that have continued.",
               (double)x->interrupted) |
           put_index(x, out) | put_discovery(models, out) |
           put_spans(models, out) |
           put(out, "access_log_lost_total", "counter",
               "Lines of the access log lost because they could not be "
               "written.",
               (double)access_log_lost(models->access)) |
           put(out, "access_log_bytes", "gauge",
               "Bytes waiting to be written to the access log.",
               (double)access_log_waiting(models->access));
}
