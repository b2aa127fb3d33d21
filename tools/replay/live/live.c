/* conductor-replay live: a trace against a running server. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop/loop.h"
#include "tools/plot/plot.h"
#include "tools/replay/command.h"
#include "tools/replay/live/loop.h"
#include "tools/replay/live/target.h"
#include "tools/replay/report/report.h"
#include "tools/replay/trace/stream.h"
#include "traces/stats.h"

static const struct option_usage usage = {
    .name = "live",
    .synopsis = "--trace FILE [OPTIONS]",
    .text =
        "Sends the requests of a trace to a running conductor (or any server "
        "of the OpenAI\ncompletions API that takes token ids) at the trace's "
        "times, without waiting for\nanswers, and reports the results. TTFT "
        "counts from the time in the trace.\nA request of tenant N in the "
        "trace has the key tenant-N (Authorization: Bearer).\nEnds with 1 if a "
        "request failed; a 429 is a rejection, not a failure.\n--length-scale "
        "16 turns the trace's blocks of 512 tokens into blocks of 32: set "
        "the\nserver's block_tokens to the same, else hits are lost.",
    .examples =
        "  conductor-replay live --trace traces/sample.jsonl "
        "--length-scale 16\n"
        "  conductor-replay live --url http://127.0.0.1:8080 --trace "
        "conversation.jsonl.gz \\\n      --requests 500 --speed 2 --report "
        "r.json --requests-csv r.csv --plot r.svg\n",
};

struct settings {
    struct replay_stream_options source;
    struct replay_target target;
    const char *csv, *plot;
    double speed, slo_ttft_s, slo_tbt_s;
    double promised_s;  /* 0 = no TTFT SLO given */
    double effective_s; /* 0 = as promised */
    bool no_slo;        /* no limit was given */
};

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        REPLAY_TARGET_URL_SPEC(s->target),
        {"trace", OPTION_TEXT, &s->source.path, "FILE", 0, 0,
         "JSON lines, plain or gzip", .required = true},
        {"speed", OPTION_NUMBER, &s->speed, "X", 1e-3, 1e6,
         "speed relative to the trace: 2 sends twice as fast (default 1)"},
        REPLAY_SCALE_SPECS(s->source),
        {"requests", OPTION_COUNT, &s->source.requests, "N", 1, 1e12,
         "send at most N requests (default all)"},
        {"from", OPTION_COUNT, &s->source.from, "K", 0, 1e12,
         "skip the first K requests (default 0)"},
        {"slo-ttft", OPTION_NUMBER, &s->promised_s, "S", 0, 1e6,
         "TTFT limit of the report, in seconds; if given, also the TTFT that "
         "accepted requests were promised (default 30, no promise)"},
        {"slo-tbt", OPTION_NUMBER, &s->slo_tbt_s, "S", 0, 1e6,
         "TBT limit of the report, in seconds (default 0.2)"},
        {"effective-ttft", OPTION_NUMBER, &s->effective_s, "S", 1e-3, 1e6,
         "TTFT limit of the report alone (default that of --slo-ttft)"},
        REPLAY_TARGET_SPECS(s->target),
        {"requests-csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0,
         "write one line per request"},
        {"plot", OPTION_OUTPUT, &s->plot, "FILE", 0, 0,
         "draw TTFT over time, its distribution and its prediction (SVG)"},
    };
    if (replay_parse(&usage, OPTION_TABLE(specs), argc, argv, status) != 0)
        return -1;
    *status = REPLAY_EXIT_USAGE;
    return replay_stream_check(&s->source, usage.name);
}

/* Progress on stderr: one moving line on a terminal, or lines in a log. */
struct progress {
    size_t total;
    size_t completed, rejected, failed;
    uint64_t prompt_tokens, reused_tokens;
    int64_t ttft_sum_us;
    size_t ttft_count;
    size_t sent;
    bool on_terminal;
    int64_t start_us, shown_us; /* when a line was last written */
};

/* The open loop: sends each request at its time in the trace, whether or not
 * earlier requests are answered. */
struct open_loop {
    const struct settings *settings;
    const struct replay_trace *trace;
    struct replay_record *records; /* [trace->count] */
    struct progress progress;
};

/* Counts a finished record. */
static void progress_add(struct progress *p, const struct replay_record *r)
{
    if (r->outcome == REPLAY_REJECTED) {
        p->rejected++;
    } else if (r->outcome == REPLAY_FAILED) {
        p->failed++;
    } else if (r->outcome == REPLAY_COMPLETED) {
        p->completed++;
        p->prompt_tokens += r->prompt_tokens;
        p->reused_tokens += r->reused_tokens;
        p->ttft_sum_us += r->first_token_us - r->intended_us;
        p->ttft_count++;
    }
}

/* Shows the progress: at every call on a terminal, every five seconds
 * elsewhere, always if `last`, which ends the line. */
static void progress_show(struct progress *p, bool last)
{
    int64_t now_us = clock_now_us() - p->start_us;

    if (!last && !p->on_terminal && now_us - p->shown_us < 5000000)
        return;
    p->shown_us = now_us;
    double ttft_s = p->ttft_count > 0
                        ? (double)p->ttft_sum_us / (double)p->ttft_count / 1e6
                        : 0.0;
    fprintf(stderr,
            "%s%6.1f s  sent %zu/%zu  in flight %zu  completed %zu  rejected "
            "%zu  failed %zu  reused %.1f%%  mean TTFT %.3f s%s",
            p->on_terminal ? "\r\033[K" : "", (double)now_us / 1e6, p->sent,
            p->total, p->sent - p->completed - p->rejected - p->failed,
            p->completed, p->rejected, p->failed,
            100 * replay_ratio(p->reused_tokens, p->prompt_tokens), ttft_s,
            p->on_terminal && !last ? "" : "\n");
    fflush(stderr);
}

static int64_t intended_us(const struct open_loop *o, size_t i)
{
    const struct trace_request *q = o->trace->requests;

    return (int64_t)((double)(q[i].arrival_us - q[0].arrival_us) /
                     o->settings->speed);
}

static int64_t due_us(void *arg)
{
    const struct open_loop *o = arg;

    return o->progress.sent < o->trace->count ? intended_us(o, o->progress.sent)
                                              : -1;
}

static int64_t take_next(void *arg, int64_t,
                         const struct trace_request **request)
{
    struct open_loop *o = arg;
    size_t i = o->progress.sent++;

    *request = &o->trace->requests[i];
    o->records[i].tenant = (*request)->tenant;
    return (int64_t)i;
}

static int take_ended(void *arg, struct replay_record *record, int64_t)
{
    struct open_loop *o = arg;

    progress_add(&o->progress, record);
    return 0;
}

static void on_progress_timer(void *arg)
{
    progress_show(arg, false);
}

/* Replays the trace into records (trace->count, filled here) and shows progress
 * on stderr. Requests not sent, or in flight when the user stops it, stay
 * REPLAY_PENDING. Returns 0 or -ENOMEM. */
static int replay(const struct settings *s, const struct replay_trace *trace,
                  struct replay_record *records,
                  struct replay_loop_result *result)
{
    struct open_loop o = {
        .settings = s,
        .trace = trace,
        .records = records,
        .progress = {.total = trace->count,
                     .on_terminal = isatty(STDERR_FILENO) == 1,
                     .start_us = clock_now_us()}};
    const struct replay_loop_params params = {
        .loop = s->target.loop,
        .server = &s->target.server,
        .model = s->target.model.name,
        .tokens = replay_target_tokens(&s->target, trace->block_tokens),
        .max_in_flight = s->target.max_in_flight,
        .timeout_us = (int64_t)(s->target.timeout_s * 1e6),
        .records = records,
        .n_records = trace->count,
        .due_us = due_us,
        .next = take_next,
        .ended = take_ended,
        .arg = &o};
    struct loop_timer timer;

    for (size_t i = 0; i < trace->count; i++) {
        records[i] = replay_record_new(s->source.from + i, intended_us(&o, i),
                                       &trace->requests[i]);
        records[i].slo_ttft_us = (int64_t)(s->promised_s * 1e6);
    }
    loop_timer_init(params.loop, &timer, on_progress_timer, &o.progress);
    loop_timer_repeat(&timer, 200000);
    int rc = replay_loop_run(&params, result);
    if (rc == 0)
        progress_show(&o.progress, true);
    loop_timer_stop(&timer);
    return rc;
}

/* Warns if the trace's blocks are no multiple of the server's, with a cure. */
static void warn_blocks(const struct settings *s,
                        const struct replay_model *model,
                        const struct replay_trace *trace)
{
    char cure[64] = "";

    if (s->source.block_tokens % model->block_tokens == 0)
        snprintf(cure, sizeof cure, "--length-scale %" PRIu32 " here, or ",
                 s->source.block_tokens / model->block_tokens);
    replay_complain(
        usage.name,
        "warning: the server's blocks have %u tokens, the "
        "trace's %u: hits will be lost. Use %sblock_tokens %u in "
        "the conductor's configuration and --block-tokens %u in "
        "its workers",
        (unsigned)model->block_tokens, (unsigned)trace->block_tokens, cure,
        (unsigned)trace->block_tokens, (unsigned)trace->block_tokens);
}

/* Warns of settings that make the results worse than necessary. */
static void warn(const struct settings *s, const struct replay_model *model,
                 const struct replay_trace *trace)
{
    if (model->block_tokens != 0 &&
        trace->block_tokens % model->block_tokens != 0)
        warn_blocks(s, model, trace);
    if (model->window_tokens != 0 &&
        trace->input_max_tokens >= model->window_tokens) {
        replay_complain(usage.name,
                        "warning: the longest prompt has %u tokens, the "
                        "model's window %u: it will be refused",
                        (unsigned)trace->input_max_tokens,
                        (unsigned)model->window_tokens);
    }
}

/* Returns the settings for the report, so that the run can be repeated. */
static json_t *settings_json(const struct settings *s,
                             const struct replay_trace *trace)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:I}", "file",
                     s->source.path, "requests", (json_int_t)trace->count,
                     "from", (json_int_t)s->source.from, "length_scale",
                     (json_int_t)s->source.length_scale, "block_tokens",
                     (json_int_t)trace->block_tokens, "speed", s->speed,
                     "max_in_flight", (json_int_t)s->target.max_in_flight,
                     "seed", (json_int_t)s->target.seed);
}

static int write_report(const struct settings *s,
                        const struct replay_trace *trace,
                        const struct replay_report *report, const char *path)
{
    json_t *json = replay_report_json(report);
    int rc = -ENOMEM;

    if (json &&
        json_object_set_new(json, "trace", settings_json(s, trace)) == 0)
        rc = replay_json_write(json, path);
    json_decref(json);
    return rc;
}

/* Draws TTFT over time, its distribution, and predicted over observed TTFT. */
static int write_plot(const struct settings *s,
                      const struct replay_trace *trace,
                      const struct replay_record *records,
                      const struct replay_report *report)
{
    char title[320];
    struct plot plot;
    int rc = plot_begin(&plot);

    snprintf(title, sizeof title,
             "%s replay, policy %s: %" PRIu64 " of %" PRIu64
             " requests answered, %.1f %% of input reused%s",
             report->context.mode,
             report->context.policy ? report->context.policy : "unknown",
             report->completed, report->total, 100 * report->prefix_hit_ratio,
             replay_report_ending(report).text);
    if (rc == 0)
        rc = write_report(s, trace, report, plot.data);
    if (rc == 0)
        rc = replay_csv_write(records, trace->count, plot.data);
    return plot_end(&plot, rc, "live", title, s->plot);
}

/* Prints the report and writes the requested files. */
static int write_outputs(const struct settings *s,
                         const struct replay_trace *trace,
                         const struct replay_record *records,
                         const struct replay_report *report)
{
    replay_report_print(report, stdout);
    return REPLAY_OUTPUT(usage.name, s->target.report,
                         write_report(s, trace, report, s->target.report)) |
           REPLAY_OUTPUT(usage.name, s->csv,
                         replay_csv_write(records, trace->count, s->csv)) |
           REPLAY_OUTPUT(usage.name, s->plot,
                         write_plot(s, trace, records, report));
}

/*
 * Returns the hit ratio of an infinite cache over the answered requests, in
 * trace order: reused / input tokens, or -1 when out of memory. Counts rejected
 * and failed requests, too: a server may compute their blocks. Counts full
 * blocks only, or with `with_partial` also a prompt's last block: an upper
 * bound for a server whose blocks are smaller than the trace's. records[0 ..
 * trace->count) are those of the trace's requests. O(blocks).
 */
static double best_hit_ratio(const struct replay_trace *trace,
                             const struct replay_record *records,
                             bool with_partial)
{
    struct trace_stats *stats =
        trace_stats_new(trace->block_tokens, with_partial);
    int rc = stats ? 0 : -ENOMEM;

    for (size_t i = 0; i < trace->count && rc == 0; i++)
        if (records[i].outcome != REPLAY_PENDING)
            rc = trace_stats_add(stats, &trace->requests[i]);
    double ratio =
        rc == 0 ? trace_totals_hit_ratio(trace_stats_totals(stats)) : -1.0;
    trace_stats_free(stats);
    return ratio;
}

static int run(const struct settings *s, const struct replay_trace *trace,
               struct replay_record *records)
{
    const struct replay_model *model = &s->target.model;

    warn(s, model, trace);
    struct replay_loop_result result = {0};
    struct replay_report report;
    int rc = replay(s, trace, records, &result);
    if (rc == 0) {
        const struct replay_context context = {
            .mode = "live",
            .policy = model->policy[0] != '\0' ? model->policy : NULL,
            .block_tokens = model->block_tokens != 0 ? model->block_tokens
                                                     : trace->block_tokens,
            .slo_ttft_s = s->slo_ttft_s,
            .slo_tbt_s = s->slo_tbt_s,
            .no_slo = s->no_slo,
            .best_possible_hit_ratio =
                best_hit_ratio(trace, records,
                               model->block_tokens != 0 &&
                                   model->block_tokens < trace->block_tokens),
            .wall_us = result.wall_us,
            .asked = trace->count,
            .interrupted = result.interrupted};

        rc = replay_report_make(records, trace->count, &context, &report);
    }
    if (rc != 0)
        return replay_complain(usage.name, "%s", strerror(-rc));
    rc = write_outputs(s, trace, records, &report);
    return result.interrupted ? REPLAY_EXIT_INTERRUPTED
                              : rc != 0 || report.failed > 0;
}

static int load_and_run(struct settings *s)
{
    struct replay_trace trace = {0};
    char error[512];

    if (replay_trace_load(&s->source, &trace, error, sizeof error) != 0)
        return replay_complain(usage.name, "%s", error);
    struct replay_record *records = calloc(trace.count, sizeof records[0]);
    int status = 1;
    if (!records)
        replay_complain(usage.name, "out of memory");
    else if (replay_target_open(&s->target, usage.name) == 0)
        status = run(s, &trace, records);
    replay_target_close(&s->target);
    free(records);
    replay_trace_fini(&trace);
    return status;
}

int replay_command_live(int argc, char **argv)
{
    struct settings s = {
        .target = REPLAY_TARGET_DEFAULT,
        .source = {.block_tokens = TRACE_BLOCK_TOKENS, .length_scale = 1},
        .speed = 1,
        .slo_ttft_s = 30};
    int status = 0;

    if (parse(argc, argv, &s, &status) != 0)
        return status;
    s.no_slo = s.promised_s == 0 && s.effective_s == 0 && s.slo_tbt_s == 0;
    if (s.slo_tbt_s == 0)
        s.slo_tbt_s = 0.2;
    if (s.promised_s > 0)
        s.slo_ttft_s = s.promised_s;
    if (s.effective_s > 0)
        s.slo_ttft_s = s.effective_s;
    status = replay_target_parse(&s.target, usage.name);
    return status != 0 ? status : load_and_run(&s);
}
