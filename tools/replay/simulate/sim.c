/* See sim.h. */
#include "tools/replay/simulate/sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"

struct run {
    const struct replay_sim_params *params;
    struct replay_sim_result *result;
    struct replay_tally *tally;
    struct replay_stream *stream;
    struct closed_loop *loop;       /* instead of stream */
    struct replay_counter *counter; /* of the loop's requests */
    struct replay_sessions_tally turns;
    uint64_t n_counted; /* requests in the first pass */
    char *error;        /* (size) */
    size_t size;
    int rc; /* error of a callback without a result */
};

static int open_loop(struct run *run)
{
    const struct sim_config *sim = &run->params->sim;
    struct closed_loop_options options = *run->params->loop;

    options.block_tokens = sim->cluster->block_tokens;
    run->counter = replay_counter_new(options.block_tokens,
                                      sim->cluster->whole_prompt_reuse);
    if (!run->counter)
        return -ENOMEM;
    return closed_loop_open(&options, &run->loop, run->error, run->size);
}

/* Reports the loop's sessions and an infinite cache's hit ratio, and frees it.
 */
static int close_loop(struct run *run)
{
    struct replay_sim_result *result = run->result;
    struct replay_facts facts = {0};
    int rc = run->counter ? replay_counter_facts(run->counter, &facts) : 0;

    result->facts.best_possible_hit_ratio = facts.best_possible_hit_ratio;
    if (run->loop) {
        struct closed_loop_counts counts = closed_loop_counts(run->loop);

        if (*closed_loop_error(run->loop))
            snprintf(run->error, run->size, "%s", closed_loop_error(run->loop));
        replay_sessions_report(&run->turns, &counts,
                               run->params->loop->until_us, &result->sessions);
    }
    replay_sessions_fini(&run->turns);
    replay_counter_free(run->counter);
    closed_loop_free(run->loop);
    return rc;
}

static int open_source(struct run *run)
{
    struct replay_stream_options options = run->params->source;

    options.quiet = options.regular_only = true;
    return replay_stream_open(&options, &run->stream, run->error, run->size);
}

/* Reports the skipped lines and the source's error, and closes it. */
static void close_source(struct run *run)
{
    struct replay_sim_result *result = run->result;
    const char *error = replay_stream_error(run->stream);

    if (error[0] != '\0')
        snprintf(run->error, run->size, "%s", error);
    result->skipped = replay_stream_skipped(run->stream);
    snprintf(result->first_skipped, sizeof result->first_skipped, "%s",
             replay_stream_first_skipped(run->stream));
    replay_stream_free(run->stream);
}

/* sim_io.next */
static int next_request(void *arg, struct trace_request *request)
{
    struct run *run = arg;

    if (run->loop && run->rc == 0) {
        int rc = closed_loop_next(run->loop, request);

        if (rc == 1 && replay_counter_add(run->counter, request) != 0)
            return -ENOMEM;
        return rc;
    }
    return run->rc != 0 ? run->rc : replay_stream_next(run->stream, request);
}

static void keep_error(struct run *run, int rc)
{
    if (run->rc == 0)
        run->rc = rc;
}

static enum replay_outcome outcome_of(const struct sim_record *r)
{
    return r->outcome == SIM_COMPLETED  ? REPLAY_COMPLETED
           : r->outcome == SIM_REJECTED ? REPLAY_REJECTED
                                        : REPLAY_FAILED;
}

static void name_node(const struct run *run, uint32_t node, char *name,
                      size_t size)
{
    if (node != SIM_NO_NODE)
        cluster_node_name(run->params->sim.cluster, node, name, size);
}

/* Checks that both passes read the same number of requests. */
static int check_passes(const struct run *run)
{
    uint64_t n = run->result->summary.requests;

    if (!run->params->with_facts || run->params->loop || n == run->n_counted)
        return 0;
    return error_say(run->error, run->size, -ESTALE,
                     "the trace has changed: %" PRIu64 " requests, %" PRIu64
                     " when it was first read",
                     n, run->n_counted);
}

/* sim_io.record */
static void take_record(void *arg, const struct sim_record *r)
{
    struct run *run = arg;
    struct replay_record record = {
        .index = r->index + run->params->source.from,
        .outcome = outcome_of(r),
        .intended_us = r->arrival_us,
        .sent_us = r->arrival_us,
        .first_token_us = r->first_token_us,
        .end_us = r->end_us,
        .tbt_us = r->tbt_us,
        .slo_ttft_us = run->params->sim.slo_ttft_us,
        .input_tokens = r->input_tokens,
        .output_tokens = r->output_tokens,
        .tenant = r->tenant,
        .prompt_tokens = r->input_tokens,
        .reused_tokens = r->local_tokens + r->fetched_tokens,
        .local_tokens = r->local_tokens,
        .fetched_tokens = r->fetched_tokens,
        .computed_tokens = r->computed_tokens,
        .generated_tokens =
            r->decode_node != SIM_NO_NODE ? r->output_tokens : 1,
        .predicted_ttft_us = r->predicted_ttft_us,
        .predicted_p90_us = r->predicted_p90_us,
        .queue_us = r->queue_us,
        .prefill_us = r->prefill_us,
    };
    replay_copy_text(record.reason, sizeof record.reason, r->reason);
    name_node(run, r->prefill_node, record.prefill, sizeof record.prefill);
    name_node(run, r->decode_node, record.decode, sizeof record.decode);
    keep_error(run, replay_tally_add(run->tally, &record));
    if (run->params->observe) {
        keep_error(run,
                   run->params->observe(run->params->observe_arg, &record));
    }
    if (run->params->csv)
        replay_csv_line(&record, run->params->csv);
}

/* sim_io.due_us */
static int64_t due_us(void *arg)
{
    const struct run *run = arg;

    return closed_loop_due_us(run->loop);
}

/* sim_io.ended */
static int take_end(void *arg, const struct sim_record *r)
{
    struct run *run = arg;
    bool answered = r->outcome == SIM_COMPLETED;
    int rc = 0;

    if (answered)
        rc = replay_sessions_add(&run->turns, r->first_token_us - r->arrival_us,
                                 r->end_us - r->arrival_us, r->end_us);
    return rc != 0
               ? rc
               : closed_loop_ended(run->loop, r->index, r->end_us, answered);
}

void replay_nodes_csv_header(FILE *file)
{
    fputs("time_s,node,busy_ratio,prefill_busy_ratio,waiting,prefills,decodes,"
          "decodes_waiting,decode_kv_tokens\n",
          file);
}

/* sim_io.sample */
static void take_sample(void *arg, const struct sim_sample *s)
{
    const struct run *run = arg;
    double interval_us = (double)run->params->sim.sample_interval_us;
    char name[32] = "";

    if (!run->params->nodes_csv)
        return;
    name_node(run, s->node, name, sizeof name);
    fprintf(run->params->nodes_csv,
            "%.6f,%s,%.6f,%.6f,%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32
            ",%" PRId64 "\n",
            replay_seconds(s->at_us), name, (double)s->busy_us / interval_us,
            (double)s->prefill_us / interval_us, s->waiting, s->prefills,
            s->decodes, s->decodes_waiting, s->decode_kv_tokens);
}

/* sim_io.switches */
static void take_switch(void *arg, const struct sim_switch *s)
{
    struct run *run = arg;
    struct replay_switches *kept = &run->result->switches;

    if (!s->taken || kept->n == REPLAY_SWITCHES_MAX)
        return;
    if (array_reserve(kept->at, kept->capacity, kept->n + 1) != 0)
        keep_error(run, -ENOMEM);
    else
        kept->at[kept->n++] = *s;
}

/* Drops every second count. */
static void thin_copies(struct replay_copies *c, size_t width)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->n; i += 2) {
        c->at_us[kept] = c->at_us[i];
        memmove(c->copies + kept++ * width, c->copies + i * width,
                width * sizeof c->copies[0]);
    }
    c->n = kept;
    c->interval_us *= 2;
}

/* sim_io.copies */
static void take_copies(void *arg, int64_t at_us, const uint32_t *copies)
{
    struct run *run = arg;
    struct replay_copies *c = &run->result->copies;
    size_t width = run->result->facts.n_ranked;

    if (c->n == REPLAY_COPIES_MAX)
        thin_copies(c, width);
    if (at_us % c->interval_us != 0)
        return;
    size_t capacity = c->capacity; /* of both */
    if (array_reserve(c->at_us, capacity, c->n + 1) ||
        array_reserve_of(c->copies, c->capacity, c->n + 1,
                         width * sizeof copies[0])) {
        keep_error(run, -ENOMEM);
        return;
    }
    c->at_us[c->n] = at_us;
    memcpy(c->copies + c->n * width, copies, width * sizeof copies[0]);
    c->n++;
}

static int count_facts(struct run *run)
{
    const struct cluster *cluster = run->params->sim.cluster;
    struct replay_counter *counter =
        replay_counter_new(cluster->block_tokens, cluster->whole_prompt_reuse);
    struct trace_request request = {0};
    int rc = counter ? open_source(run) : -ENOMEM;

    if (rc != 0)
        goto free_counter;
    while ((rc = next_request(run, &request)) == 1) {
        rc = replay_counter_add(counter, &request);
        if (rc != 0)
            break;
        run->n_counted++;
    }
    if (rc == 0)
        rc = replay_counter_facts(counter, &run->result->facts);
    close_source(run);
free_counter:
    trace_request_fini(&request);
    replay_counter_free(counter);
    return rc;
}

static int simulate(struct run *run)
{
    struct sim_config config = run->params->sim;
    struct replay_sim_result *result = run->result;
    bool closed = run->params->loop;
    const struct sim_io io = {.next = next_request,
                              .due_us = closed ? due_us : NULL,
                              .ended = closed ? take_end : NULL,
                              .record = take_record,
                              .copies = take_copies,
                              .sample = take_sample,
                              .switches = take_switch,
                              .arg = run};
    char why[SIM_ERROR_BYTES] = "";

    config.watch_ids = result->facts.ranked;
    config.n_watch = result->facts.n_ranked;
    config.watch_interval_us = run->params->copies_interval_us > 0
                                   ? run->params->copies_interval_us
                                   : REPLAY_COPIES_INTERVAL_US;
    result->copies.interval_us = config.watch_interval_us;
    int rc = closed ? open_loop(run) : open_source(run);
    if (rc != 0) {
        if (closed)
            close_loop(run);
        return rc;
    }
    int64_t begin_us = clock_now_us();
    rc = sim_run(&config, &io, &result->summary, why);
    result->wall_s = (double)(clock_now_us() - begin_us) / 1e6;
    if (closed)
        keep_error(run, close_loop(run));
    else
        close_source(run);
    if (rc == 0)
        rc = run->rc;
    if (rc != 0 && run->error[0] == '\0')
        snprintf(run->error, run->size, "%s", why);
    return rc;
}

static int check_source(const struct replay_sim_params *p, char *error,
                        size_t size)
{
    if (p->loop)
        return 0; /* the loop checks each session */
    uint32_t blocks = p->sim.cluster->block_tokens;
    uint32_t scaled = p->source.block_tokens / p->source.length_scale;

    if (scaled == blocks)
        return 0;
    return error_say(error, size, -EINVAL,
                     "the trace's blocks have %" PRIu32
                     " tokens, those of cluster %s "
                     "%" PRIu32 ": --block-tokens says what the trace has, "
                     "--length-scale divides it",
                     scaled, p->sim.cluster->name, blocks);
}

/* Refuses a run without requests, or in which all failed. */
static int check_result(const struct run *run)
{
    const struct replay_report *r = &run->result->report;

    if (r->total > 0 && r->failed < r->total)
        return 0;
    int n = snprintf(run->error, run->size, "%s: ",
                     run->params->loop ? run->params->loop->path
                                       : run->params->source.path);
    if (r->total == 0) {
        snprintf(run->error + n, run->size - (size_t)n, "holds no request%s",
                 run->params->source.from > 0 ? " behind --from" : "");
    } else {
        snprintf(run->error + n, run->size - (size_t)n,
                 "none of %" PRIu64 " requests can be served by cluster %s: %s",
                 r->total, run->params->sim.cluster->name,
                 replay_reason_text(r->reasons[0].reason));
    }
    return -EINVAL;
}

int replay_sim_run(const struct replay_sim_params *params,
                   struct replay_sim_result *result, char *error, size_t size)
{
    struct run run = {
        .params = params, .result = result, .error = error, .size = size};
    int rc = check_source(params, error, size);

    if (rc != 0)
        return rc;
    error[0] = '\0';
    memset(result, 0, sizeof *result);
    result->facts.best_possible_hit_ratio = -1.0;
    run.tally = replay_tally_new(params->slo_ttft_s, params->slo_tbt_s);
    if (!run.tally)
        rc = -ENOMEM;
    if (rc == 0 && params->with_facts && !params->loop)
        rc = count_facts(&run);
    if (rc == 0)
        rc = simulate(&run);
    if (rc == 0)
        rc = check_passes(&run);
    if (rc == 0) {
        const struct replay_context context = {
            .mode = "simulate",
            .policy = params->sim.policy,
            .block_tokens = params->sim.cluster->block_tokens,
            .best_possible_hit_ratio = result->facts.best_possible_hit_ratio,
            .wall_us = result->summary.simulated_us,
            .starts_cold = true,
            .no_slo =
                params->sim.slo_ttft_us == 0 && params->sim.slo_tbt_us == 0,
            .no_decode = params->sim.cluster->decode_nodes +
                             params->sim.cluster->coupled_nodes ==
                         0};

        replay_tally_report(run.tally, &context, &result->report);
        rc = check_result(&run);
    }
    if (rc != 0) {
        if (error[0] == '\0')
            snprintf(error, size, "%s", strerror(-rc));
        replay_sim_result_fini(result);
    }
    replay_tally_free(run.tally);
    return rc;
}

void replay_sim_result_fini(struct replay_sim_result *result)
{
    free(result->copies.at_us);
    free(result->copies.copies);
    result->copies = (struct replay_copies){0};
    free(result->switches.at);
    result->switches = (struct replay_switches){0};
}
