/* The gauges of each instance. */

#include <string.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/report/internal.h"

static const struct {
    const char *name, *help;
    bool of_workers; /* an engine does not tell it, and has no line */
} instance_gauges[] = {
    {.name = "ready",
     .help = "1 while the conductor sends requests to the instance."},
    {.name = "draining",
     .help =
         "1 while the instance finishes its requests and gets no new ones."},
    {.name = "prefills_waiting",
     .help = "Accepted prefills that have not started."},
    {.name = "prefills_running", .help = "Running prefills."},
    {.name = "estimated_wait_seconds",
     .help =
         "Time until a prefill that arrives now would start behind all waiting "
         "ones; -1 = no prediction."},
    {.name = "decodes",
     .help = "Requests that decode on the instance, or are assigned to decode "
             "there."},
    {.name = "kv_used_tokens",
     .help = "KV in use, in tokens, cached blocks included.",
     .of_workers = true},
    {.name = "kv_pinned_tokens",
     .help = "KV used by requests, in tokens; other KV can be evicted.",
     .of_workers = true},
    {.name = "kv_capacity_tokens",
     .help = "KV capacity, in tokens.",
     .of_workers = true},
    {.name = "prefill_correction_ratio",
     .help = "Observed prefill time divided by predicted prefill time."},
    {.name = "link_bytes_per_second",
     .help = "Smoothed rate at which the instance sends blocks."},
    {.name = "disk_used_tokens",
     .help = "KV on the instance's disk, in tokens.",
     .of_workers = true},
    {.name = "disk_bytes_per_second",
     .help = "Rate at which the instance reads its disk; 0 = no disk.",
     .of_workers = true},
    {.name = "blocks", .help = "Indexed blocks of the instance."},
    {.name = "shared_store_up",
     .help = "1 while the instance reads from the shared store; 0 = it has "
             "none, the "
             "store is down, or other workers use another store.",
     .of_workers = true},
    {.name = "shared_bytes_per_second",
     .help = "Rate at which the instance reads from the shared store.",
     .of_workers = true},
    {.name = "shared_put_blocks",
     .help = "Blocks that the instance has put into the shared store.",
     .of_workers = true},
    {.name = "shared_missed_blocks",
     .help = "Blocks that the instance found missing or damaged in the shared "
             "store.",
     .of_workers = true},
    {.name = "shared_failed_puts",
     .help = "Blocks that the instance failed to put into the shared store.",
     .of_workers = true},
    {.name = "shared_losses",
     .help = "Lost connections of the instance to the shared store.",
     .of_workers = true},
    {.name = "path_bytes_per_second",
     .help = "Rate at which the instance receives blocks from "
             "another instance (from)."},
};

/* The last gauge has a line for each path. */
#define GAUGES (sizeof(instance_gauges) / sizeof(instance_gauges[0]))
#define PATHS (GAUGES - 1)

static double wait_s(const struct service *s, const struct pool_instance *in,
                     int64_t now_us)
{
    return s->costs.predicts
               ? (double)pool_queue_place(s->pool, in, 0, 0, 0, now_us)
                         .most_us /
                     1e6
               : -1.0;
}

/* Returns the value of the gauge at this index of instance_gauges. */
static double value_of(const struct service *s, const struct pool_instance *in,
                       size_t gauge, int64_t now_us)
{
    const struct worker *w = &s->native.workers[in->slot];
    double block_tokens = (double)s->config.block_tokens;
    const double values[PATHS] = {
        pool_takes_work(in),
        pool_shown_health(in) == HEALTH_DRAINING,
        (double)in->n_waiting,
        (double)in->n_running,
        gauge == 4 ? wait_s(s, in, now_us) : 0.0, /* only this one is costly */
        (double)in->n_decodes,
        (double)in->kv_used_tokens,
        (double)w->kv_pinned_blocks * block_tokens,
        (double)in->kv_capacity_tokens,
        in->correction.ratio,
        in->link_bytes_per_s,
        (double)w->disk_used_blocks * block_tokens,
        in->tier_bytes_per_s[TIER_DISK],
        (double)prefix_index_held(s->index, in->slot),
        shared_is_same(s, w),
        in->tier_bytes_per_s[TIER_SHARED],
        (double)w->shared.put_blocks,
        (double)w->shared.missed_blocks,
        (double)w->shared.failed_puts,
        (double)w->shared.went_away,
    };

    return values[gauge];
}

size_t report_gauges(void)
{
    return GAUGES;
}

int report_gauge_begin(size_t gauge, struct text_buf *out)
{
    const char *name = instance_gauges[gauge].name;

    return text_buf_printf(out,
                           "# HELP conductor_instance_%s %s\n"
                           "# TYPE conductor_instance_%s gauge\n",
                           name, instance_gauges[gauge].help, name) < 0;
}

/* Whether the entry has an engine of this name in /metrics. */
static bool has_lines(const struct fleet_entry *entry, const char *name)
{
    const struct engine *e;

    TAILQ_FOREACH(e, &entry->engines, of_entry)
    {
        if (!e->replaced && strcmp(e->own.name, name) == 0)
            return true;
    }
    return false;
}

int report_gauge_scouts(const struct models *models, size_t gauge,
                        struct text_buf *out)
{
    const struct fleet_entry *entry;
    const struct scout *s;
    char label[2 * ENGINE_NAME_MAX];
    int bad = 0;

    if (gauge > 1) /* ready, draining */
        return 0;
    TAILQ_FOREACH(entry, &models->fleet.entries, entry)
    {
        TAILQ_FOREACH(s, &entry->scouts, of_entry)
        {
            const char *name = s->wanted.name;
            bool drained = drains_has(&models->drains, name) ||
                           drains_has(&models->drains, entry->config.name);

            if (has_lines(entry, name))
                continue;
            metrics_escape(name, label);
            bad |= text_buf_printf(
                       out, "conductor_instance_%s{instance=\"%s\"} %d\n",
                       instance_gauges[gauge].name, label,
                       gauge == 1 && drained) < 0;
        }
    }
    return bad;
}

static int write_paths(const struct service *s, const struct pool_instance *in,
                       const char *label, struct text_buf *out)
{
    for (uint32_t i = 0; i < in->n_paths; i++) {
        const struct pool_path *path = &in->paths[i];
        const struct pool_instance *from = pool_get(s->pool, path->from);
        char other[2 * POOL_NAME_BYTES];

        if (!from)
            continue;
        metrics_escape(from->name, other);
        if (text_buf_printf(out,
                            "conductor_instance_%s{instance=\"%s\","
                            "from=\"%s\",transport=\"%s\"} %.9g\n",
                            instance_gauges[PATHS].name, label, other,
                            s->native.workers[in->slot].path_names[i],
                            path->bytes_per_s) < 0)
            return -1;
    }
    return 0;
}

int report_gauge_line(const struct service *s, uint32_t slot, size_t gauge,
                      int64_t now_us, struct text_buf *out)
{
    const struct pool_instance *in = pool_at(s->pool, slot);
    const struct engine *e = engine_at(s, slot);
    char label[2 * POOL_NAME_BYTES];

    if (!in || (e && (e->replaced || instance_gauges[gauge].of_workers)))
        return 0;
    metrics_escape(in->name, label);
    if (gauge == PATHS)
        return write_paths(s, in, label, out) < 0;
    return text_buf_printf(out, "conductor_instance_%s{instance=\"%s\"} %.9g\n",
                           instance_gauges[gauge].name, label,
                           value_of(s, in, gauge, now_us)) < 0;
}
