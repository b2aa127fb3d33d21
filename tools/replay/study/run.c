/* conductor-replay compare-run, sessions-run, size-run, sweep-run: answer the
 * questions of the subcommand's script; see run.h. */
#include "tools/replay/study/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_fields.h"
#include "tools/replay/command.h"
#include "tools/replay/study/sweep/work.h"
#include "traces/generate.h"

#define FILE_MAX_BYTES (64 * 1024)
#define CASES_MAX (1 << 16)

/* The cases of a question. */
struct asked {
    struct replay_case *cases; /* (n) */
    struct run_case *of;       /* (n) */
    size_t n;
};

/* Returns null if nothing was measured. */
static json_t *summary_json(const struct replay_summary *s)
{
    return s->count == 0
               ? json_null()
               : json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean", s->mean, "p50",
                           s->p50, "p90", s->p90, "p99", s->p99, "max", s->max);
}

/* Returns the reasons of rejections and failures as text. */
static json_t *reasons_json(const struct replay_report *r)
{
    char *reasons = NULL;
    size_t size;
    FILE *file = open_memstream(&reasons, &size);

    if (file) {
        replay_report_reasons(r, file);
        if (fclose(file) != 0)
            file = NULL;
    }
    json_t *json = json_string(file ? reasons : "");
    free(reasons);
    return json;
}

static json_t *intervals_json(const struct replay_case *c)
{
    json_t *intervals = json_array();

    for (size_t k = 0; k < c->n_intervals; k++) {
        const struct replay_interval *at = &c->intervals[k];

        json_array_append_new(
            intervals, json_pack("[I, I, I, f]", (json_int_t)at->requests,
                                 (json_int_t)at->effective,
                                 (json_int_t)at->answered, at->ttft_s));
    }
    return intervals;
}

static json_t *result_json(const struct replay_case *c)
{
    const struct replay_report *r = &c->result.report;
    const struct cluster *of = &c->cluster;

    if (c->gave_up)
        return json_pack("{s:b, s:I}", "gave_up", 1, "judged",
                         (json_int_t)c->judged);
    json_t *requests = json_pack(
        "{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, "
        "s:I}",
        "gave_up", 0, "judged", (json_int_t)c->judged, "total",
        (json_int_t)r->total, "completed", (json_int_t)r->completed, "rejected",
        (json_int_t)r->rejected, "failed", (json_int_t)r->failed, "effective",
        (json_int_t)r->effective, "promised", (json_int_t)r->promised, "late",
        (json_int_t)r->late_s.count, "latest_s", r->late_s.max, "p90_told",
        (json_int_t)r->p90_told, "p90_held", (json_int_t)r->p90_held,
        "input_tokens", (json_int_t)r->input_tokens, "offered_tokens",
        (json_int_t)r->offered_tokens);
    json_t *more = json_pack(
        "{s:I, s:I, s:f, s:s, s:b, s:f, s:f, s:f, s:o, s:f, s:f, s:o, s:o, "
        "s:o, s:o, s:f, s:o, s:o}",
        "nodes", (json_int_t)(of->prefill_nodes + of->coupled_nodes),
        "decode_nodes", (json_int_t)of->decode_nodes, "link_gbps",
        of->link_bytes_per_s * 8 / 1e9, "cluster", of->name, "decodes",
        of->decode_nodes + of->coupled_nodes > 0, "effective_ratio",
        r->effective_ratio, "effective_token_ratio", r->effective_token_ratio,
        "prefix_hit_ratio", r->prefix_hit_ratio, "predicted_ratio",
        r->prediction_error.count > 0 ? json_real(r->predicted_ratio)
                                      : json_null(),
        "arrivals_s", c->arrivals_s, "prefill_s", c->prefill_s, "ttft_s",
        summary_json(&r->ttft_s), "tbt_s", summary_json(&r->tbt_s), "error_s",
        summary_json(&c->error_s), "reasons", reasons_json(r),
        "best_possible_hit_ratio", r->context.best_possible_hit_ratio,
        "intervals", intervals_json(c), "sessions",
        c->loop ? replay_sessions_json(&c->result.sessions) : json_null());

    if (json_object_update_new(requests, more) == 0)
        return requests;
    json_decref(requests);
    return NULL;
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
        rc = run_read_case(r, json_array_get(question, i), &a.cases[i],
                           &a.of[i]);
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
    const struct replay_stream_options source = run_source(r, question);
    struct sweep_work work;
    struct cluster cluster;
    int rc = run_read_cluster(r, question, &cluster);

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

        json_t *answer = json_is_array(question) ? simulate(r, question)
                         : json_object_get(question, "kinds")
                             ? run_survey(r, question)
                             : read_work(r, question);

        rc = r->status != 0 ? r->status : say(r, answer);
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
    if (serve(&r) == 0)
        return 0;
    return r.status != 0 ? r.status : 1;
}
