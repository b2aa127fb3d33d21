/* conductor-replay simulate: a trace through a described cluster. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "conductor/core/schedule/policy.h"
#include "tools/replay/study/study.h"
#include "tools/result_file.h"

static const struct option_usage usage = {
    .name = "simulate",
    .synopsis = "--trace FILE --cluster FILE [OPTIONS]",
    .text = "Simulates the requests of a trace on a cluster that a file "
            "describes, in virtual time\nand with the daemon's own scheduler, "
            "and reports as `live` does. The same input\nand seed give the "
            "same report, byte for byte (without --timing). With an SLO, "
            "requests\nthat no node can serve in time are rejected at "
            "arrival.\nEnds with 1 if a request failed.",
    .examples =
        "  conductor-replay simulate --trace conversation.jsonl.gz --cluster "
        "\\\n"
        "      traces/clusters/reference-16.json --policy global_cache\n"
        "  conductor-replay simulate --trace traces/sample.jsonl --cluster "
        "\\\n      traces/clusters/paper-16.json --policy local_cache "
        "--prefill 6 --decode 10 \\\n      --speed 2 --slo-ttft 30 --slo-tbt "
        "0.2 --report r.json\n"
        "  conductor-replay simulate --trace traces/sample.jsonl --cluster "
        "\\\n      traces/clusters/paper-16.json --speed 4 --conductors 8 "
        "--state-delay 20\n",
    REPLAY_POLICY_TOPIC,
};

/* Several conductors: how many, and when each hears of the others' requests. */
struct conductors {
    uint64_t n;
    double delay_ms;
    bool nothing_shared;
    bool drawn;
};

struct settings {
    struct replay_sim_params params;
    struct cluster_changes changes;
    struct replay_policies policies;
    struct conductors conductors;
    const char *cluster, *report, *csv, *nodes_csv;
    double nodes_interval_s, copies_interval_s;
    double slo_ttft_s, slo_tbt_s;
    const char *weights;
    bool timing;
};

#define WEIGHTS_MAX 64

/* Refuses options that would be ignored. Returns 0, or -1 after printing an
 * error. */
static int check_conductors(struct conductors *c)
{
    const char *given = c->delay_ms >= 0 ? "state-delay"
                        : c->drawn       ? "conductors-drawn"
                                         : "nothing-shared";

    if (c->n == 1 && (c->delay_ms >= 0 || c->drawn || c->nothing_shared))
        return replay_complain(
            usage.name, "--%s: needs --conductors N of at least 2", given);
    if (c->delay_ms >= 0 && c->nothing_shared)
        return replay_complain(usage.name,
                               "--state-delay %g: --nothing-shared says that "
                               "no state arrives: give only one of them",
                               c->delay_ms);
    if (c->delay_ms < 0)
        c->delay_ms = 5; /* as --help says */
    return 0;
}

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    struct replay_stream_options *source = &s->params.source;
    const struct option_spec specs[] = {
        REPLAY_STREAM_SPECS(*source),
        {"cluster", OPTION_TEXT, &s->cluster, "FILE", 0, 0,
         "the cluster's description (docs/plan/clusters.md)", .required = true},
        {"policy", OPTION_TEXT, &s->params.sim.policy, "NAME", 0, 0,
         "policy (default " POLICY_DEFAULT ", as the daemon's):",
         .choice = sim_policy_name},
        REPLAY_POLICY_SPEC(s->policies),
        {"speed", OPTION_NUMBER, &s->params.sim.speed, "X", 1e-3, 1e6,
         "speed relative to the trace: 2 sends twice as fast (default 1)"},
        {"seed", OPTION_COUNT, &s->params.sim.seed, "S", 0, 9e15,
         "seed of random choices (default 1)"},
        {"slo-ttft", OPTION_NUMBER, &s->slo_ttft_s, "S", 0, 1e6,
         "TTFT SLO of each request, in seconds"},
        {"slo-tbt", OPTION_NUMBER, &s->slo_tbt_s, "S", 0, 1e6,
         "TBT SLO of each request, in seconds"},
        {"prefill", OPTION_COUNT, &s->changes.prefill_nodes, "N", 1,
         CLUSTER_NODES_MAX,
         "number of prefill (or coupled) nodes, instead of the file's"},
        {"decode", OPTION_COUNT, &s->changes.decode_nodes, "N", 0,
         CLUSTER_NODES_MAX,
         "number of decode nodes, instead of the file's; 0: TTFT only"},
        {"report", OPTION_OUTPUT, &s->report, "FILE", 0, 0,
         "write the report as JSON"},
        {"requests-csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0,
         "write one line per request"},
        {"admission", OPTION_TEXT, &s->params.sim.admission, "NAME", 0, 0,
         "plain: reject requests that would miss an SLO; none: reject only "
         "those that no node has room for within the TTFT SLO (default plain)",
         .section = "requests"},
        {"ask-again", OPTION_FLAG, &s->params.sim.ask_again, NULL, 0, 0,
         "send a rejected request once more, after its Retry-After"},
        {"weights", OPTION_TEXT, &s->weights, "LIST", 0, 0,
         "weights of the trace's tenants 1, 2, ..., such as 3,1,1 (default 1 "
         "each)"},
        REPLAY_SCALE_SPECS(*source),
        REPLAY_OVERRIDE_SPECS(s->changes),
        {"conductors", OPTION_COUNT, &s->conductors.n, "N", 1,
         SIM_CONDUCTORS_MAX,
         "conductors that requests come to in turn, each with a view of its "
         "own (default 1)",
         .section = "conductors"},
        {"state-delay", OPTION_NUMBER, &s->conductors.delay_ms, "MS", 0,
         (double)SIM_STATE_DELAY_MAX_US / 1e3,
         "milliseconds until a conductor learns another's decisions (default "
         "5)"},
        {"nothing-shared", OPTION_FLAG, &s->conductors.nothing_shared, NULL, 0,
         0, "conductors do not learn each other's decisions"},
        {"conductors-drawn", OPTION_FLAG, &s->conductors.drawn, NULL, 0, 0,
         "requests go to conductors at random, not in turn"},
        {"nodes-csv", OPTION_OUTPUT, &s->nodes_csv, "FILE", 0, 0,
         "write each node's utilisation, queue and batch over time",
         .section = "nodes"},
        {"nodes-interval", OPTION_NUMBER, &s->nodes_interval_s, "S", 1e-3, 1e6,
         "virtual seconds between two lines of a node in --nodes-csv (default "
         "10)"},
        {"copies-interval", OPTION_NUMBER, &s->copies_interval_s, "S", 1e-3,
         1e6,
         "virtual seconds between two counts of block copies (default 30)"},
        {"timing", OPTION_FLAG, &s->timing, NULL, 0, 0,
         "add the wall time to the report"},
    };
    if (replay_policies_parse(&s->policies, &usage, OPTION_TABLE(specs), argc,
                              argv, status) != 0)
        return -1;
    if (replay_stream_check(source, usage.name) != 0 ||
        check_conductors(&s->conductors) != 0 ||
        replay_check_admission(usage.name, s->params.sim.admission) != 0)
        return -1;
    return replay_policies_check(&s->policies, usage.name,
                                 &s->params.sim.policy, 1);
}

/* Parses "3,1,1" into weights. Returns 0, or -1 after printing an error. */
static int read_weights(const char *text, double weights[WEIGHTS_MAX],
                        size_t *n)
{
    const char *at = text;
    char *end;

    for (*n = 0; *n < WEIGHTS_MAX; at = end + 1) {
        double weight = strtod(at, &end);

        if (end == at || (*end && *end != ',') ||
            !(weight >= 0.01 && weight <= 100))
            break;
        weights[(*n)++] = weight;
        if (!*end)
            return 0;
    }
    return replay_complain(usage.name,
                           "--weights %s: must be at most %d numbers from 0.01 "
                           "to 100, as 3,1,1",
                           text, WEIGHTS_MAX);
}

static void set_conductors(const struct conductors *c,
                           struct sim_config *config)
{
    config->conductors = (uint32_t)c->n;
    config->state_delay_us = llround(c->delay_ms * 1e3);
    config->nothing_shared = c->nothing_shared;
    config->conductors_drawn = c->drawn;
}

static void print_conductors(const struct sim_config *config, FILE *file)
{
    if (config->conductors <= 1)
        return;
    fprintf(file, "%" PRIu32 " conductors, requests %s; ", config->conductors,
            config->conductors_drawn ? "at random" : "in turn");
    if (config->nothing_shared)
        fputs("nothing shared\n", file);
    else
        fprintf(file, "state %g ms old\n",
                (double)config->state_delay_us / 1e3);
}

/* Adds "conductors" to a report, if there are several. Returns 0 or -1. */
static int add_conductors(const struct sim_config *config,
                          const struct sim_summary *summary, json_t *json)
{
    if (config->conductors <= 1)
        return 0;
    return json_object_set_new(
        json, "conductors",
        json_pack("{s:I, s:o, s:b, s:I}", "count",
                  (json_int_t)config->conductors, "state_delay_ms",
                  config->nothing_shared
                      ? json_null()
                      : json_real((double)config->state_delay_us / 1e3),
                  "drawn", config->conductors_drawn, "crowded",
                  (json_int_t)summary->crowded));
}

/* Returns the settings, so that the run can be repeated. */
static json_t *settings_json(const struct replay_sim_params *p)
{
    const struct cluster *c = p->sim.cluster;

    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:I, s:s, s:I, s:I, s:I, s:f}",
                     "file", p->source.path, "from", (json_int_t)p->source.from,
                     "length_scale", (json_int_t)p->source.length_scale,
                     "block_tokens", (json_int_t)c->block_tokens, "speed",
                     p->sim.speed, "seed", (json_int_t)p->sim.seed, "cluster",
                     c->name, "prefill_nodes", (json_int_t)c->prefill_nodes,
                     "decode_nodes", (json_int_t)c->decode_nodes,
                     "coupled_nodes", (json_int_t)c->coupled_nodes, "link_gbps",
                     c->link_bytes_per_s * 8 / 1e9);
}

/* Adds the values of --policy-option, if any. */
static int add_policy_options(json_t *json, const struct policy_settings *s)
{
    json_t *options = json_object();
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < s->n; i++)
        rc = json_object_set_new(options, s->at[i].name,
                                 json_real(s->at[i].value));
    if (rc == 0 && s->n > 0)
        return json_object_set_new(json, "policy_options", options);
    json_decref(options);
    return rc;
}

static int write_report(const struct settings *s,
                        const struct replay_sim_result *result)
{
    json_t *json = replay_sim_json(result, s->timing);
    int rc = -ENOMEM;

    if (json &&
        json_object_set_new(json, "trace", settings_json(&s->params)) == 0 &&
        add_policy_options(json, &s->policies.settings) == 0 &&
        add_conductors(&s->params.sim, &result->summary, json) == 0)
        rc = replay_json_write(json, s->report);
    json_decref(json);
    return rc;
}

/* Prints the run's parameters, for readers of the output alone. */
static void print_head(const struct settings *s)
{
    const struct sim_config *config = &s->params.sim;
    const struct cluster *c = config->cluster;

    printf("\n%s at speed %g on %s: ", s->params.source.path, config->speed,
           c->name);
    if (c->coupled_nodes > 0)
        printf("%" PRIu32 " coupled", c->coupled_nodes);
    else if (c->decode_nodes > 0)
        printf("%" PRIu32 " prefill + %" PRIu32 " decode", c->prefill_nodes,
               c->decode_nodes);
    else
        printf("%" PRIu32 " prefill", c->prefill_nodes);
    printf(" nodes, links of %g Gbit/s\npolicy %s, admission %s, ",
           c->link_bytes_per_s * 8 / 1e9, config->policy, config->admission);
    if (s->slo_ttft_s > 0)
        printf("TTFT SLO %g s", s->slo_ttft_s);
    if (s->slo_tbt_s > 0)
        printf("%sTBT SLO %g s", s->slo_ttft_s > 0 ? ", " : "", s->slo_tbt_s);
    puts(s->slo_ttft_s > 0 || s->slo_tbt_s > 0 ? "" : "no SLO asked for");
    print_conductors(config, stdout);
}

/* Warns of weights for tenants that the trace does not have. */
static void warn_weights(const struct settings *s,
                         const struct replay_report *report)
{
    uint64_t most = 0;

    for (size_t i = 0; i < report->tenant_count; i++)
        if (report->tenants[i].tenant > most)
            most = report->tenants[i].tenant;
    if (s->params.sim.n_weights > most)
        replay_complain(usage.name,
                        "warning: --weights %s: more than the trace has "
                        "tenants: its last is %" PRIu64,
                        s->weights, most);
}

static int run(const struct settings *s, bool *simulated)
{
    struct replay_sim_result result;
    char error[1024];

    if (replay_sim_run(&s->params, &result, error, sizeof error) != 0)
        return replay_complain(usage.name, "%s", error);
    *simulated = true;
    print_head(s);
    replay_sim_print(&result, stdout);
    fprintf(stderr, "%.3f s, %.0f requests/s\n", result.wall_s,
            (double)result.summary.requests / result.wall_s);
    if (result.skipped > 0)
        replay_complain(usage.name, "%" PRIu64 " bad lines skipped, first %s",
                        result.skipped, result.first_skipped);
    warn_weights(s, &result.report);
    int rc = REPLAY_OUTPUT(usage.name, s->report, write_report(s, &result));
    replay_sim_result_fini(&result);
    return rc != 0 || result.report.failed > 0 ? 1 : 0;
}

/* An output file written while the simulation runs. */
struct csv {
    const char *option, *path; /* NULL = not requested */
    struct file_output output;
};

static int complain_csv(const struct csv *csv, int rc)
{
    return rc == 0 ? 0
                   : replay_complain(usage.name, "--%s %s: %s", csv->option,
                                     csv->path, strerror(-rc));
}

static int open_csv(struct csv *csv, void (*header)(FILE *), FILE **file)
{
    int rc = 0;

    if (!csv->path)
        return 0;
    if (!result_is_open(csv->path))
        rc = file_output_open(&csv->output, csv->path);
    else if (!(csv->output.file = result_open(csv->path)))
        rc = -errno;
    *file = csv->output.file;
    if (*file)
        header(*file);
    return complain_csv(csv, rc);
}

static int close_csv(struct csv *csv, bool keep)
{
    return complain_csv(csv, file_output_close(&csv->output, keep));
}

static int run_with_files(struct settings *s)
{
    struct csv requests = {.option = "requests-csv", .path = s->csv};
    struct csv nodes = {.option = "nodes-csv", .path = s->nodes_csv};
    bool simulated = false;
    int status = 1;

    if (open_csv(&requests, replay_csv_header, &s->params.csv) == 0 &&
        open_csv(&nodes, replay_nodes_csv_header, &s->params.nodes_csv) == 0)
        status = run(s, &simulated);
    if (close_csv(&requests, simulated) != 0 ||
        close_csv(&nodes, simulated) != 0)
        status = 1;
    return status;
}

int replay_command_simulate(int argc, char **argv)
{
    struct settings s = {
        .params = {.sim = {.policy = POLICY_DEFAULT,
                           .admission = "plain",
                           .speed = 1,
                           .seed = 1},
                   .source = {.block_tokens = TRACE_BLOCK_TOKENS,
                              .length_scale = 1},
                   .with_facts = true},
        .conductors = {.n = 1, .delay_ms = -1},
        .changes = CLUSTER_UNCHANGED};
    struct cluster cluster;
    double weights[WEIGHTS_MAX];
    int status = 0;

    if (parse(argc, argv, &s, &status) != 0)
        return status;
    if (s.weights &&
        read_weights(s.weights, weights, &s.params.sim.n_weights) != 0)
        return 2;
    if (s.nodes_interval_s > 0 && !s.nodes_csv) {
        replay_complain(usage.name, "--nodes-interval: needs --nodes-csv");
        return 2;
    }
    s.params.sim.weights = weights;
    if (replay_load_cluster(usage.name, s.cluster, &s.changes, &cluster) != 0)
        return 1;
    s.params.sim.cluster = &cluster;
    s.params.sim.settings = s.policies.settings.at;
    s.params.sim.n_settings = s.policies.settings.n;
    set_conductors(&s.conductors, &s.params.sim);
    s.params.sim.slo_ttft_us = (int64_t)(s.slo_ttft_s * 1e6);
    s.params.sim.slo_tbt_us = (int64_t)(s.slo_tbt_s * 1e6);
    s.params.slo_ttft_s = s.slo_ttft_s > 0 ? s.slo_ttft_s : 30;
    s.params.slo_tbt_s = s.slo_tbt_s > 0 ? s.slo_tbt_s : 0.2;
    if (s.nodes_csv)
        s.params.sim.sample_interval_us =
            llround((s.nodes_interval_s > 0 ? s.nodes_interval_s : 10) * 1e6);
    s.params.copies_interval_us = llround(s.copies_interval_s * 1e6);
    return run_with_files(&s);
}
