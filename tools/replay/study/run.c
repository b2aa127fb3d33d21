/* conductor-replay compare-run, sessions-run, sweep-run: simulate what the
 * script of the subcommand asks for. Questions and answers are lines of JSON;
 * an error is
 * {"error": text, "case": index}. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_fields.h"
#include "tools/replay/command.h"
#include "tools/replay/study/study.h"
#include "tools/replay/study/sweep/work.h"
#include "traces/generate.h"

#define FILE_MAX_BYTES (64 * 1024)
#define CASES_MAX (1 << 16)

struct runner {
    const char *name; /* of the subcommand that asks */
    struct replay_study study;
    struct replay_policies numbers;
    const char *policies, *file, *admission;
    char error[REPLAY_STUDY_ERROR_BYTES];
};

/* The cases of a question. */
struct asked {
    struct replay_case *cases; /* (n) */
    struct of_case {
        struct replay_stream_options source;
        struct policy_settings settings;
        struct closed_loop_options loop;
    } * of; /* (n) */
    size_t n;
};

/* Returns a number, 0 if it is missing. */
static double number_of(const json_t *from, const char *name)
{
    return json_number_value(json_object_get(from, name));
}

static uint64_t count_of(const json_t *from, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(from, name));
}

static const char *text_of(const json_t *from, const char *name)
{
    return json_string_value(json_object_get(from, name));
}

/* Returns the source of requests, which borrows from the question; without a
 * path it is the command line's. */
static struct replay_stream_options source_of(const struct runner *r,
                                              const json_t *question)
{
    const json_t *from = json_object_get(question, "source");
    struct replay_stream_options given = r->study.source;

    given.ties_seed = count_of(from, "ties_seed");
    if (!text_of(from, "path"))
        return given;
    return (struct replay_stream_options){
        .path = text_of(from, "path"),
        .like = text_of(from, "like"),
        .like_seed = count_of(from, "like_seed"),
        .like_rate = number_of(from, "like_rate"),
        .ties_seed = count_of(from, "ties_seed"),
        .requests = count_of(from, "requests"),
        .block_tokens = TRACE_BLOCK_TOKENS,
        .length_scale = (uint32_t)count_of(from, "length_scale"),
        .regular_only = true};
}

/* Returns the closed loop, which borrows from the question. */
static struct closed_loop_options loop_of(const json_t *from)
{
    return (struct closed_loop_options){
        .path = text_of(from, "path"),
        .in_flight = (uint32_t)count_of(from, "in_flight"),
        .think_max_us = (int64_t)count_of(from, "think_max_us"),
        .input_max_tokens = (uint32_t)count_of(from, "input_max_tokens"),
        .sessions = count_of(from, "sessions"),
        .until_us = (int64_t)count_of(from, "until_us")};
}

/* Reads a change of a cluster: the number, -1 = none. */
static double change_of(const json_t *changes, const char *name)
{
    const json_t *value = json_object_get(changes, name);

    return value ? json_number_value(value) : -1;
}

/* Reads `cluster`, a cluster file's path or content, and its `changes`. */
static int read_cluster(struct runner *r, const json_t *question,
                        struct cluster *cluster)
{
    const json_t *changes = json_object_get(question, "changes");
    const char *path = text_of(question, "cluster");
    char *text = NULL;
    int rc = -EINVAL;

    snprintf(r->error, sizeof r->error, "no such question");
    if (path)
        rc = cluster_load_file(path, cluster, r->error);
    else if ((text = json_dumps(json_object_get(question, "cluster"),
                                JSON_REAL_PRECISION(17))))
        rc = cluster_load_buffer(text, strlen(text), "", cluster, r->error);
    free(text);
    if (rc != 0 || !changes)
        return rc;
    return cluster_override(
        cluster,
        &(struct cluster_changes){
            .prefill_nodes = (int64_t)change_of(changes, "prefill"),
            .decode_nodes = (int64_t)change_of(changes, "decode"),
            .link_gbps = change_of(changes, "link-gbps"),
            .cache_tokens = change_of(changes, "cache-tokens")},
        r->error);
}

/* Reads the settings of a policy: {option: number}. */
static int read_settings(struct runner *r, json_t *from,
                         struct policy_settings *settings)
{
    const char *name;
    json_t *value;

    json_object_foreach(from, name, value)
    {
        char text[128];

        snprintf(text, sizeof text, "%s=%.17g", name, json_number_value(value));
        if (policy_settings_add(settings, text, r->error, sizeof r->error) != 0)
            return -EINVAL;
    }
    return 0;
}

static int read_case(struct runner *r, const json_t *from,
                     struct replay_case *c, struct of_case *of)
{
    json_t *settings = json_object_get(from, "settings");
    const json_t *loop = json_object_get(from, "loop");
    const char *csv = text_of(from, "csv");

    *c = (struct replay_case){
        .policy = text_of(from, "policy"),
        .settings = settings ? &of->settings : &r->numbers.settings,
        .admission = r->admission,
        .source = &of->source,
        .loop = loop ? &of->loop : NULL,
        .speed = number_of(from, "speed"),
        .slo_ttft_s = number_of(from, "slo_ttft_s"),
        .slo_tbt_s = number_of(from, "slo_tbt_s"),
        .effective_ttft_s = number_of(from, "effective_ttft_s"),
        .effective_tbt_s = number_of(from, "effective_tbt_s"),
        .seed = count_of(from, "seed")};
    of->source = source_of(r, from);
    of->loop = loop_of(loop);
    if (read_settings(r, settings, &of->settings) != 0 ||
        read_cluster(r, from, &c->cluster) != 0)
        return -EINVAL;
    if (csv && !(c->csv = fopen(csv, "we")))
        return error_say(r->error, sizeof r->error, -errno, "%s: %s", csv,
                         strerror(errno));
    if (csv)
        replay_csv_header(c->csv);
    return 0;
}

/* Returns a number with all its digits; null if nothing was measured. */
static json_t *real(double x, bool measured)
{
    return measured ? json_real(x) : json_null();
}

static json_t *result_json(const struct replay_case *c)
{
    const struct replay_report *r = &c->result.report;
    const struct cluster *of = &c->cluster;
    const struct replay_summary *error = &c->error_s;
    bool any = r->ttft_s.count > 0;

    return json_pack(
        "{s:I, s:I, s:f, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:I, "
        "s:f, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:f, s:o, s:I, s:I, s:o, "
        "s:o, s:b, s:f, s:o}",
        "nodes", (json_int_t)(of->prefill_nodes + of->coupled_nodes),
        "decode_nodes", (json_int_t)of->decode_nodes, "link_gbps",
        of->link_bytes_per_s * 8 / 1e9, "cluster", of->name, "ttft_mean_s",
        real(r->ttft_s.mean, any), "ttft_p50_s", real(r->ttft_s.p50, any),
        "ttft_p90_s", real(r->ttft_s.p90, any), "ttft_p99_s",
        real(r->ttft_s.p99, any), "tbt_p90_s",
        real(r->tbt_s.p90, r->tbt_s.count > 0), "hit_ratio",
        real(r->prefix_hit_ratio, any), "effective_ratio", r->effective_ratio,
        "effective_token_ratio", r->effective_token_ratio, "effective",
        (json_int_t)r->effective, "arrivals_s", c->arrivals_s, "total",
        (json_int_t)r->total, "completed", (json_int_t)r->completed, "rejected",
        (json_int_t)r->rejected, "failed", (json_int_t)r->failed, "prefill_s",
        c->prefill_s, "promised", (json_int_t)r->promised, "late",
        (json_int_t)r->late_s.count, "latest_s", r->late_s.max,
        "predicted_ratio",
        real(r->predicted_ratio, r->prediction_error.count > 0), "p90_told",
        (json_int_t)r->p90_told, "p90_held", (json_int_t)r->p90_held,
        "error_p99_s", real(error->p99, error->count > 0), "error_max_s",
        real(error->max, error->count > 0), "decodes",
        of->decode_nodes + of->coupled_nodes > 0, "best_possible_hit_ratio",
        r->context.best_possible_hit_ratio, "sessions",
        c->loop ? replay_sessions_json(&c->result.sessions) : json_null());
}

static void free_asked(struct asked *a)
{
    for (size_t i = 0; a->cases && i < a->n; i++)
        if (a->cases[i].csv)
            (void)fclose(a->cases[i].csv);
    if (a->cases)
        replay_cases_fini(a->cases, a->n);
    free(a->cases);
    free(a->of);
}

/* Simulates the cases. Returns their results, or the error. */
static json_t *simulate(struct runner *r, const json_t *question)
{
    struct asked a = {.n = json_array_size(question)};
    struct replay_study study = r->study;
    json_t *results = json_array();
    size_t failed = 0;
    int rc = 0;

    a.cases = calloc(a.n + 1, sizeof a.cases[0]);
    a.of = calloc(a.n + 1, sizeof a.of[0]);
    if (!a.cases || !a.of || a.n > CASES_MAX)
        rc = error_say(r->error, sizeof r->error, -ENOMEM,
                       a.n > CASES_MAX ? "too many simulations"
                                       : "out of memory");
    for (size_t i = 0; rc == 0 && i < a.n; i++) {
        failed = i;
        rc = read_case(r, json_array_get(question, i), &a.cases[i], &a.of[i]);
    }
    study.quiet = study.quiet || a.n == 1;
    if (rc == 0)
        rc = replay_study_run(&study, a.cases, a.n, r->error);
    for (size_t i = 0; a.cases && i < a.n; i++)
        if (rc == 0)
            json_array_append_new(results, result_json(&a.cases[i]));
        else if (a.cases[i].failed)
            failed = i;
    if (rc != 0) {
        json_decref(results);
        results = json_pack("{s:s, s:I}", "error", r->error, "case",
                            (json_int_t)failed);
    }
    free_asked(&a);
    return results;
}

/* Reads a trace: {cluster, source, "infinite": whether the nodes' memory is}.
 * Returns its work, with the least time of the cluster, or the error. */
static json_t *read_work(struct runner *r, const json_t *question)
{
    const struct replay_stream_options source = source_of(r, question);
    struct sweep_work work;
    struct cluster cluster;
    int rc = read_cluster(r, question, &cluster);

    double least_s = 0.0;
    if (rc == 0 && json_is_true(json_object_get(question, "infinite")))
        cluster.prefill_nodes = cluster.coupled_nodes = 0;
    if (rc == 0)
        rc = sweep_work_read(&source, &cluster, &work, r->error,
                             sizeof r->error);
    if (rc != 0)
        return json_pack("{s:s}", "error", r->error);
    if (cluster.prefill_nodes + cluster.coupled_nodes > 0)
        least_s = sweep_work_least_s(&work, &cluster);
    return json_pack("{s:f, s:f, s:f, s:I, s:I, s:f}", "prefill_s",
                     work.prefill_s, "decode_s", work.decode_s, "span_s",
                     work.span_s, "touched_tokens",
                     (json_int_t)work.touched_tokens, "longest_tokens",
                     (json_int_t)work.longest_tokens, "least_s", least_s);
}

/* Writes a line and frees the value. */
static int say(struct runner *r, json_t *value)
{
    int rc = value && json_dumpf(value, stdout,
                                 JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0
                 ? 0
                 : replay_complain(r->name, "out of memory");

    json_decref(value);
    putchar('\n');
    return fflush(stdout) == 0 ? rc : -1;
}

static void keep(struct fields *f, const struct fields_object *root, void *into)
{
    json_t **kept = into;

    (void)f;
    *kept = json_incref(root->json);
}

/* Returns {policy: {option: [least, most, default, whether it is whole]}}. */
static json_t *options_json(void)
{
    json_t *all = json_object();

    for (size_t p = 0; sim_policy_name(p); p++) {
        const struct schedule_policy *policy = sim_policy(sim_policy_name(p));
        json_t *options = json_object();

        for (size_t i = 0; i < policy->n_options; i++) {
            const struct policy_option *o = &policy->options[i];

            json_object_set_new(options, o->name,
                                json_pack("[f, f, f, b]", o->min, o->max,
                                          o->initial, (int)o->whole));
        }
        json_object_set_new(all, sim_policy_name(p), options);
    }
    return all;
}

/* Says what is in the file, which settings --policy-option makes, and which
 * options of policies, workloads and tiers there are. */
static int introduce(struct runner *r)
{
    const struct trace_workload_facts *facts;
    const struct policy_settings *given = &r->numbers.settings;
    struct fields f = {"", r->file, r->error, sizeof r->error, 0};
    json_t *file = json_null(), *workloads = json_object();
    json_t *tiers = json_array(), *settings = json_object();

    if (r->file && fields_read(&f, NULL, FILE_MAX_BYTES, keep, &file) != 0)
        return replay_complain(r->name, "%s", r->error);
    for (size_t i = 0; i < given->n; i++)
        json_object_set_new(settings, given->at[i].name,
                            json_real(given->at[i].value));
    for (size_t i = 0; (facts = trace_workload_facts(i)); i++)
        json_object_set_new(workloads, facts->name,
                            json_boolean(facts->sessions));
    for (size_t t = 0; t < BLOCK_TIERS; t++)
        json_array_append_new(tiers, json_string(block_tiers[t].name));
    return say(r, json_pack("{s:o, s:o, s:o, s:o, s:o}", "file", file,
                            "workloads", workloads, "tiers", tiers, "settings",
                            settings, "options", options_json()));
}

/* Answers questions until there are no more. */
static int serve(struct runner *r)
{
    char *line = NULL;
    size_t size = 0;
    int rc = introduce(r);

    while (rc == 0 && getline(&line, &size, stdin) > 0) {
        json_t *question = json_loads(line, 0, NULL);

        rc = say(r, json_is_array(question) ? simulate(r, question)
                                            : read_work(r, question));
        json_decref(question);
    }
    free(line);
    return rc;
}

static int check_policies(const struct runner *r)
{
    struct replay_names names = {.count = 0};
    char error[REPLAY_LIST_ERROR_BYTES];

    while (!r->policies && sim_policy_name(names.count)) {
        names.names[names.count] = sim_policy_name(names.count);
        names.count++;
    }
    return r->policies && replay_list_names("policies", r->policies,
                                            sim_policy_name, &names, error) != 0
               ? replay_complain(r->name, "%s", error)
               : replay_policies_check(&r->numbers, r->name, names.names,
                                       names.count);
}

int replay_command_study_run(int argc, char **argv)
{
    char name[32];
    const struct option_usage usage = {
        .name = name,
        .synopsis = "[OPTIONS] < QUESTIONS",
        .text = "Simulates cases for the script of a subcommand.",
        .examples = "",
    };
    struct runner r = {.name = name, .admission = "plain"};
    const struct option_spec specs[] = {
        {"policies", OPTION_TEXT, &r.policies, "LIST", 0, 0,
         "policies that questions may name (default: all)"},
        REPLAY_POLICY_SPEC(r.numbers),
        {"admission", OPTION_TEXT, &r.admission, "NAME", 0, 0,
         "plain or none (default plain)"},
        {"file", OPTION_TEXT, &r.file, "FILE", 0, 0,
         "a JSON file to read for the script"},
        {"quiet", OPTION_FLAG, &r.study.quiet, NULL, 0, 0, "show no progress"},
        {"trace", OPTION_TEXT, &r.study.source.path, "FILE", 0, 0,
         "trace of questions that name none"},
        {"from", OPTION_COUNT, &r.study.source.from, "N", 0, 1e15,
         "skip its first N requests"},
        {"requests", OPTION_COUNT, &r.study.source.requests, "N", 1, 1e15,
         "read at most N requests of it"},
        {"skip-bad", OPTION_FLAG, &r.study.source.skip_bad, NULL, 0, 0,
         "skip its bad lines and count them"},
        {"jobs", OPTION_COUNT, &r.study.jobs, "N", 1, 1024,
         "simulations at once (default: the cores of this machine)"},
    };
    int status = 0;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(argv[0], "-"), argv[0]);
    if (replay_policies_parse(&r.numbers, &usage, OPTION_TABLE(specs), argc,
                              argv, &status) != 0)
        return status;
    if (check_policies(&r) != 0 ||
        replay_check_admission(r.name, r.admission) != 0)
        return REPLAY_EXIT_USAGE;
    return serve(&r) == 0 ? 0 : 1;
}
