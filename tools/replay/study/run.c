/* conductor-replay sweep-run: simulates what sweep.py asks for. Questions and
 * answers are lines of JSON; an error is {"error": text, "case": index}. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    const char *policies, *file;
    char error[REPLAY_STUDY_ERROR_BYTES];
};

/* The cases of a question. */
struct asked {
    struct replay_case *cases;             /* (n) */
    struct replay_stream_options *sources; /* (n) */
    size_t n;
};

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

/* Returns the source of requests, which borrows from the question. */
static struct replay_stream_options source_of(const json_t *question)
{
    const json_t *from = json_object_get(question, "source");

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

/* Reads a member that is the content of a cluster file. */
static int read_cluster(struct runner *r, const json_t *question,
                        struct cluster *cluster)
{
    char *text = json_dumps(json_object_get(question, "cluster"),
                            JSON_REAL_PRECISION(17));
    int rc = -EINVAL;

    snprintf(r->error, sizeof r->error, "no such question");
    if (text)
        rc = cluster_load_buffer(text, strlen(text), "", cluster, r->error);
    free(text);
    return rc;
}

static int read_case(struct runner *r, const json_t *from,
                     struct replay_case *c,
                     struct replay_stream_options *source)
{
    *c = (struct replay_case){
        .policy = text_of(from, "policy"),
        .settings = &r->numbers.settings,
        .source = source,
        .speed = number_of(from, "speed"),
        .slo_ttft_s = number_of(from, "slo_ttft_s"),
        .slo_tbt_s = number_of(from, "slo_tbt_s"),
        .effective_ttft_s = number_of(from, "effective_ttft_s"),
        .effective_tbt_s = number_of(from, "effective_tbt_s"),
        .seed = count_of(from, "seed")};
    *source = source_of(from);
    return read_cluster(r, from, &c->cluster);
}

/* Returns a number with all its digits; null if nothing was measured. */
static json_t *real(double x, bool measured)
{
    return measured ? json_real(x) : json_null();
}

static json_t *result_json(const struct replay_case *c)
{
    const struct replay_report *r = &c->result.report;
    bool any = r->ttft_s.count > 0;

    return json_pack(
        "{s:o, s:o, s:f, s:f, s:I, s:I, s:f, s:o, s:o}", "ttft_mean_s",
        real(r->ttft_s.mean, any), "ttft_p99_s", real(r->ttft_s.p99, any),
        "effective_ratio", r->effective_ratio, "effective_token_ratio",
        r->effective_token_ratio, "promised", (json_int_t)r->promised, "late",
        (json_int_t)r->late_s.count, "latest_s", r->late_s.max,
        "predicted_ratio",
        real(r->predicted_ratio, r->prediction_error.count > 0),
        "p90_held_ratio",
        real(replay_ratio(r->p90_held, r->p90_told), r->p90_told > 0));
}

/* Simulates the cases. Returns their results, or the error. */
static json_t *simulate(struct runner *r, const json_t *question)
{
    struct asked a = {.n = json_array_size(question)};
    json_t *results = json_array();
    size_t failed = 0;
    int rc = 0;

    a.cases = calloc(a.n + 1, sizeof a.cases[0]);
    a.sources = calloc(a.n + 1, sizeof a.sources[0]);
    if (!a.cases || !a.sources || a.n > CASES_MAX) {
        snprintf(r->error, sizeof r->error, "out of memory");
        rc = -ENOMEM;
    }
    for (size_t i = 0; rc == 0 && i < a.n; i++) {
        failed = i;
        rc = read_case(r, json_array_get(question, i), &a.cases[i],
                       &a.sources[i]);
    }
    if (rc == 0)
        rc = replay_study_run(&r->study, a.cases, a.n, r->error);
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
    if (a.cases)
        replay_cases_fini(a.cases, a.n);
    free(a.cases);
    free(a.sources);
    return results;
}

/* Reads a trace: {cluster, source, "infinite": whether the nodes' memory is}.
 * Returns its work, with the least time of the cluster, or the error. */
static json_t *read_work(struct runner *r, const json_t *question)
{
    const struct replay_stream_options source = source_of(question);
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

/* Says what is in the file, and which workloads and tiers there are. */
static int introduce(struct runner *r)
{
    const struct trace_workload_facts *facts;
    struct fields f = {"", r->file, r->error, sizeof r->error, 0};
    json_t *file = NULL, *workloads = json_object(), *tiers = json_array();

    if (fields_read(&f, NULL, FILE_MAX_BYTES, keep, &file) != 0)
        return replay_complain(r->name, "%s", r->error);
    for (size_t i = 0; (facts = trace_workload_facts(i)); i++)
        json_object_set_new(workloads, facts->name,
                            json_boolean(facts->sessions));
    for (size_t t = 0; t < BLOCK_TIERS; t++)
        json_array_append_new(tiers, json_string(block_tiers[t].name));
    return say(r, json_pack("{s:o, s:o, s:o}", "file", file, "workloads",
                            workloads, "tiers", tiers));
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
    struct replay_names names;
    char error[REPLAY_LIST_ERROR_BYTES];

    return replay_list_names("policies", r->policies, sim_policy_name, &names,
                             error) != 0
               ? replay_complain(r->name, "%s", error)
               : replay_policies_check(&r->numbers, r->name, names.names,
                                       names.count);
}

int replay_command_sweep_run(int argc, char **argv)
{
    static const struct option_usage usage = {
        .name = "sweep",
        .synopsis = "[OPTIONS] < QUESTIONS",
        .text = "Simulates cases for sweep.py, the script of sweep.",
        .examples = "",
    };
    struct runner r = {.name = usage.name, .study.quiet = true};
    const struct option_spec specs[] = {
        {"policies", OPTION_TEXT, &r.policies, "LIST", 0, 0,
         "policies that questions may name", .required = true},
        REPLAY_POLICY_SPEC(r.numbers),
        {"jobs", OPTION_COUNT, &r.study.jobs, "N", 1, 1024,
         "simulations at once (default: the cores of this machine)"},
        {"file", OPTION_TEXT, &r.file, "FILE", 0, 0,
         "a JSON file to read for the script", .required = true},
    };
    int status = 0;

    if (replay_policies_parse(&r.numbers, &usage, OPTION_TABLE(specs), argc,
                              argv, &status) != 0)
        return status;
    if (check_policies(&r) != 0)
        return REPLAY_EXIT_USAGE;
    return serve(&r) == 0 ? 0 : 1;
}
