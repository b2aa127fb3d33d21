/* Metrics of each engine. */

#include "base/loop/loop.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/engine/engine.h"

static const struct {
    const char *name, *label, *type, *help; /* NULL = the one before */
} lines[] = {
    {"requests_total", "", "counter", "Requests sent to the engine."},
    {"timed_prefills_total", "", "counter",
     "Requests with a measured prefill time, from which costs are learned: "
     "streamed requests, and requests that the engine served alone."},
    {"failures_total", "", "counter",
     "Requests and health checks that failed on the engine."},
    {"answers_total", "class=\"2xx\"", "counter",
     "Answers of the engine, by class of status."},
    {"answers_total", "class=\"3xx\"", "counter", NULL},
    {"answers_total", "class=\"4xx\"", "counter", NULL},
    {"answers_total", "class=\"5xx\"", "counter", NULL},
    {"cached_tokens_total", "source=\"predicted\"", "counter",
     "Cached prompt tokens, as predicted and as reported by the engine, over "
     "answers that report them."},
    {"cached_tokens_total", "source=\"told\"", "counter", NULL},
    {"connections", "state=\"busy\"", "gauge",
     "Connections to the engine, by state."},
    {"connections", "state=\"kept\"", "gauge", NULL},
    {"other_model", "", "gauge",
     "1 while the engine's list of models lacks the model of its entry."},
    {"key_refused", "", "gauge",
     "1 while the engine refuses the API key of its configuration entry."},
    {"running", "", "gauge",
     "Requests that the engine reports as running; -1 = not reported."},
    {"waiting", "", "gauge",
     "Requests that the engine reports as waiting; -1 = not reported."},
    {"kv_usage_ratio", "", "gauge",
     "Share of its KV that the engine reports as in use; -1 = not reported."},
    {"kv_blocks", "", "gauge",
     "Size of the engine's predicted cache, in blocks."},
    {"block_tokens", "", "gauge",
     "Tokens per KV block of the engine, as far as known."},
    {"events_state", "", "gauge",
     "State of the engine's KV events: 0 = complete, 1 = none arrive, 2 = some "
     "are lost, 3 = a replay is running; -1 = no events are expected."},
    {"events_total", "", "counter", "KV events received from the engine."},
    {"events_last", "", "gauge",
     "Number of the last KV event message received from the engine's first "
     "rank; -1 = none yet."},
    {"unkept_blocks", "", "gauge",
     "Blocks in the engine's KV events that are not recorded: more than 4 "
     "times its KV blocks."},
    {"events_age_seconds", "", "gauge",
     "Time since the engine's last KV event message; -1 = none yet."},
    {"unheard_requests", "", "gauge",
     "Requests with new blocks that ended since the engine's last KV event."},
    {"event_replays_total", "result=\"asked\"", "counter",
     "Replays of KV events requested from the engine, and failed replays."},
    {"event_replays_total", "result=\"failed\"", "counter", NULL},
    {"event_faults_total", "fault=\"malformed\"", "counter",
     "Faults in the engine's KV events: malformed message, message too slow to "
     "process, gap in the numbers, messages lost for good, restart, "
     "reconnection, blocks of another size, tokens that do not fill their "
     "blocks, unknown event tag, unknown rank, unknown parent block, unknown "
     "removed block."},
    {"event_faults_total", "fault=\"too_long\"", "counter", NULL},
    {"event_faults_total", "fault=\"gap\"", "counter", NULL},
    {"event_faults_total", "fault=\"lost\"", "counter", NULL},
    {"event_faults_total", "fault=\"restart\"", "counter", NULL},
    {"event_faults_total", "fault=\"reconnect\"", "counter", NULL},
    {"event_faults_total", "fault=\"block_size\"", "counter", NULL},
    {"event_faults_total", "fault=\"tokens\"", "counter", NULL},
    {"event_faults_total", "fault=\"unknown_tag\"", "counter", NULL},
    {"event_faults_total", "fault=\"rank\"", "counter", NULL},
    {"event_faults_total", "fault=\"unknown_parent\"", "counter", NULL},
    {"event_faults_total", "fault=\"unknown_hash\"", "counter", NULL},
};

#define LINES (sizeof(lines) / sizeof(lines[0]))

static double last_message(const struct engine *e)
{
    uint64_t first, last;

    return e->events.feed && kv_feed_known(e->events.feed, 0, &first, &last)
               ? (double)last
               : -1;
}

static double value_of(const struct engine *e, size_t line)
{
    struct kv_feed_stats k = {0};

    if (e->events.feed)
        k = kv_feed_stats(e->events.feed);
    const double values[LINES] = {
        (double)e->count.sent,
        (double)e->count.timed,
        (double)e->count.failures,
        (double)e->count.status[2],
        (double)e->count.status[3],
        (double)e->count.status[4],
        (double)e->count.status[5],
        (double)e->count.predicted_tokens,
        (double)e->count.told_tokens,
        (double)upstream_busy(e->upstream),
        (double)upstream_idle(e->upstream),
        e->list.other_model,
        e->health.key_refused,
        e->report.running,
        e->report.waiting,
        e->report.kv_usage_ratio,
        predicted_capacity(e->predicted),
        e->block_tokens,
        e->events.feed ? (double)engine_events_state(e) : -1,
        (double)k.events,
        last_message(e),
        (double)k.map.unkept,
        k.last_event_us
            ? 1e-6 * (double)(loop_now_us(e->service->loop) - k.last_event_us)
            : -1,
        (double)e->events.n_unheard,
        (double)k.replays,
        (double)k.replays_failed,
        (double)k.malformed,
        (double)k.too_long,
        (double)k.gaps,
        (double)k.lost,
        (double)k.restarts,
        (double)k.reconnects,
        (double)k.map.wrong_size,
        (double)k.map.wrong_tokens,
        (double)k.unknown_events,
        (double)k.other_ranks,
        (double)k.map.waited,
        (double)k.map.unknown_removed,
    };

    return values[line];
}

uint64_t engines_unkept(const struct service *s)
{
    uint64_t n = 0;

    for (uint32_t k = 0; k < pool_slots(s->pool); k++) {
        const struct engine *e = engine_at(s, k);

        if (e && e->events.feed)
            n += kv_map_stats(kv_feed_map(e->events.feed)).unkept;
    }
    if (s->engines.store_feed)
        n += kv_map_stats(kv_feed_map(s->engines.store_feed)).unkept;
    return n;
}

size_t engine_metrics(void)
{
    return LINES;
}

int engine_metric_begin(size_t i, struct text_buf *out)
{
    return lines[i].help && text_buf_printf(out,
                                            "# HELP conductor_engine_%s %s\n"
                                            "# TYPE conductor_engine_%s %s\n",
                                            lines[i].name, lines[i].help,
                                            lines[i].name, lines[i].type) < 0;
}

int engine_metric_line(const struct service *s, uint32_t slot, size_t i,
                       struct text_buf *out)
{
    const struct engine *e = engine_at(s, slot);
    char label[2 * POOL_NAME_BYTES];

    if (!e || e->replaced)
        return 0;
    metrics_escape(e->config->name, label);
    return text_buf_printf(out,
                           "conductor_engine_%s{instance=\"%s\"%s%s} %.17g\n",
                           lines[i].name, label, *lines[i].label ? "," : "",
                           lines[i].label, value_of(e, i)) < 0;
}
