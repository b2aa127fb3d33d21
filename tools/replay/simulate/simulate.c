/* conductor-replay simulate: a trace through a described cluster. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/replay/command.h"
#include "tools/replay/simulate/policies.h"
#include "tools/replay/simulate/sim.h"
#include "tools/replay/study/study.h"
#include "tools/result_file.h"

static const struct replay_usage usage = {
    .name = "simulate",
    .synopsis = "--trace FILE --cluster FILE --policy NAME [OPTIONS]",
    .text = "Runs the requests of a trace through a cluster that a file "
            "describes, on a virtual\nclock and with the daemon's own "
            "decisions, and reports as `live` does. The same input\nand seed "
            "give the same report, byte for byte (without --timing). With an "
            "SLO, requests\nthat no choice can serve in time are rejected at "
            "arrival.\nEnds with 1 if a request failed.",
    .examples =
        "  conductor-replay simulate --trace conversation.jsonl.gz --cluster "
        "\\\n"
        "      traces/clusters/reference-16.json --policy global_cache\n"
        "  conductor-replay simulate --trace traces/sample.jsonl --cluster "
        "\\\n      traces/clusters/paper-16.json --policy local_cache "
        "--prefill 6 --decode 10 \\\n      --speed 2 --slo-ttft 30 --slo-tbt "
        "0.2 --report r.json\n",
};

struct settings {
    const char *trace, *cluster, *policy, *admission, *report, *csv;
    double speed, slo_ttft_s, slo_tbt_s, link_gbps, cache_tokens;
    uint64_t requests, from, seed, prefill, decode, block_tokens, length_scale;
    bool skip_bad, timing;
    struct replay_policies policies;
};

#define NOT_GIVEN UINT64_MAX
#define EFFECTIVE_TTFT_S 30.0
#define EFFECTIVE_TBT_S 0.2

/* A file that is written while work goes on, and appears only when the work has
 * succeeded: until then what was there before stays. */
struct output {
    char path[PATH_MAX];
    char temporary[PATH_MAX + 32]; /* "": written in place */
    FILE *file;                    /* NULL: nothing is open */
};

/* The file that a link leads to, so that the link stays. */
static int resolve(struct output *o, const char *path)
{
    char *real = realpath(path, NULL);
    int n = snprintf(o->path, sizeof o->path, "%s", real ? real : path);

    free(real);
    return n < (int)sizeof o->path ? 0 : -ENAMETOOLONG;
}

/* Begins a file beside `path`; what is no regular file (a pipe, /dev/stdout) is
 * opened itself. Returns 0, or a negative errno with o->file NULL. */
static int output_open(struct output *o, const char *path)
{
    struct stat about;

    o->file = NULL;
    o->temporary[0] = '\0';
    int rc = resolve(o, path);
    if (rc != 0)
        return rc;
    if (result_is_open(path) ||
        (stat(path, &about) == 0 && !S_ISREG(about.st_mode))) {
        o->file = result_open(path);
        return o->file ? 0 : -errno;
    }
    snprintf(o->temporary, sizeof o->temporary, "%s.%ld.tmp", o->path,
             (long)getpid());
    int fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    o->file = fdopen(fd, "w");
    if (!o->file) {
        rc = -errno;
        close(fd);
        unlink(o->temporary);
    }
    return rc;
}

/* With `keep` it takes the path's place, else it is removed. Nothing if nothing
 * is open. Returns 0 or a negative errno; it is closed anyway. */
static int output_close(struct output *o, int keep)
{
    if (!o->file)
        return 0;
    int rc = ferror(o->file) != 0 ? -EIO : 0;
    if (fclose(o->file) != 0 && rc == 0)
        rc = -errno;
    o->file = NULL;
    if (o->temporary[0] == '\0')
        return rc;
    if (rc == 0 && keep && rename(o->temporary, o->path) != 0)
        rc = -errno;
    if (rc != 0 || !keep)
        unlink(o->temporary);
    return rc;
}

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        {"trace", OPTION_TEXT, &s->trace, "FILE", 0, 0,
         "JSON lines, plain or gzip", .required = true},
        {"cluster", OPTION_TEXT, &s->cluster, "FILE", 0, 0,
         "the cluster's description (docs/clusters.md)", .required = true},
        {"policy", OPTION_TEXT, &s->policy, "NAME", 0, 0,
         "how requests are placed:", .choice = sim_policy_name,
         .required = true},
        REPLAY_POLICY_SPEC(s->policies),
        {"admission", OPTION_TEXT, &s->admission, "NAME", 0, 0,
         "plain (reject what misses an SLO) or none: then only what no node\n"
         "                         has room for within a TTFT SLO (default "
         "plain)"},
        {"speed", OPTION_NUMBER, &s->speed, "X", 1e-3, 1e6,
         "2 sends twice as fast as the trace (default 1)"},
        {"requests", OPTION_COUNT, &s->requests, "N", 1, 1e12,
         "at most so many (default all)"},
        {"from", OPTION_COUNT, &s->from, "K", 0, 1e12,
         "skip the first K requests (default 0)"},
        {"seed", OPTION_COUNT, &s->seed, "S", 0, 9e15,
         "of random choices (default 1)"},
        {"slo-ttft", OPTION_NUMBER, &s->slo_ttft_s, "S", 0, 1e6,
         "seconds to the first token that a request asks for"},
        {"slo-tbt", OPTION_NUMBER, &s->slo_tbt_s, "S", 0, 1e6,
         "seconds between tokens that it asks for"},
        {"prefill", OPTION_COUNT, &s->prefill, "N", 1, CLUSTER_NODES_MAX,
         "prefill (or coupled) nodes, instead of the file's"},
        {"decode", OPTION_COUNT, &s->decode, "N", 0, CLUSTER_NODES_MAX,
         "decode nodes, instead of the file's; 0: TTFT only"},
        REPLAY_OVERRIDE_SPECS(s->link_gbps, s->cache_tokens),
        {"block-tokens", OPTION_COUNT, &s->block_tokens, "N", 1, 65536,
         "block size of the trace (default 512)"},
        {"length-scale", OPTION_COUNT, &s->length_scale, "S", 1, 65536,
         "divides lengths and block size alike (default 1)"},
        {"skip-bad", OPTION_FLAG, &s->skip_bad, NULL, 0, 0,
         "skip bad lines and count them"},
        {"report", OPTION_OUTPUT, &s->report, "FILE", 0, 0,
         "write the report as JSON"},
        {"requests-csv", OPTION_OUTPUT, &s->csv, "FILE", 0, 0,
         "write a line per request"},
        {"timing", OPTION_FLAG, &s->timing, NULL, 0, 0,
         "put the wall time into the report"},
    };
    const struct option_table table = {specs, sizeof specs / sizeof specs[0]};
    if (replay_parse(&usage, &table, argc, argv, status) != 0)
        return -1;
    *status = REPLAY_EXIT_USAGE;
    if (s->block_tokens % s->length_scale != 0) {
        replay_complain(usage.name,
                        "--length-scale %" PRIu64
                        ": must divide the block size of %" PRIu64,
                        s->length_scale, s->block_tokens);
        return -1;
    }
    return 0;
}

static int load_cluster(const struct settings *s, struct cluster *cluster)
{
    char error[CLUSTER_ERROR_BYTES];
    int rc = cluster_load_file(s->cluster, cluster, error);

    if (rc == 0) {
        rc = cluster_override(
            cluster, s->prefill == NOT_GIVEN ? -1 : (int64_t)s->prefill,
            s->decode == NOT_GIVEN ? -1 : (int64_t)s->decode, -1, error);
    }
    if (rc == 0)
        rc = replay_override(cluster, s->link_gbps, s->cache_tokens, error);
    if (rc != 0)
        replay_complain(usage.name, "%s", error);
    return rc;
}

/* How the numbers came about, so that they can be had again. */
static json_t *settings_json(const struct settings *s, const struct cluster *c)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:I, s:s, s:I, s:I, s:I, s:f}",
                     "file", s->trace, "from", (json_int_t)s->from,
                     "length_scale", (json_int_t)s->length_scale,
                     "block_tokens", (json_int_t)c->block_tokens, "speed",
                     s->speed, "seed", (json_int_t)s->seed, "cluster", c->name,
                     "prefill_nodes", (json_int_t)c->prefill_nodes,
                     "decode_nodes", (json_int_t)c->decode_nodes,
                     "coupled_nodes", (json_int_t)c->coupled_nodes, "link_gbps",
                     c->link_bytes_per_s * 8 / 1e9);
}

/* What --policy-option set, if anything. */
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

static int write_report(const struct settings *s, const struct cluster *c,
                        const struct replay_sim_result *result)
{
    json_t *json = replay_sim_json(result, s->timing);
    int rc = -ENOMEM;

    if (json && json_object_set_new(json, "trace", settings_json(s, c)) == 0 &&
        add_policy_options(json, &s->policies.settings) == 0)
        rc = replay_json_write(json, s->report);
    json_decref(json);
    if (rc != 0)
        (void)replay_complain_output(usage.name, s->report, rc);
    return rc;
}

/* What was simulated, for readers of the output alone. */
static void print_head(const struct settings *s, const struct cluster *c)
{
    printf("\n%s at speed %g on %s: ", s->trace, s->speed, c->name);
    if (c->coupled_nodes > 0) {
        printf("%" PRIu32 " coupled", c->coupled_nodes);
    } else if (c->decode_nodes > 0) {
        printf("%" PRIu32 " prefill + %" PRIu32 " decode", c->prefill_nodes,
               c->decode_nodes);
    } else {
        printf("%" PRIu32 " prefill", c->prefill_nodes);
    }
    printf(" nodes, links of %g Gbit/s\npolicy %s, admission %s, ",
           c->link_bytes_per_s * 8 / 1e9, s->policy, s->admission);
    if (s->slo_ttft_s > 0)
        printf("TTFT SLO %g s", s->slo_ttft_s);
    if (s->slo_tbt_s > 0)
        printf("%sTBT SLO %g s", s->slo_ttft_s > 0 ? ", " : "", s->slo_tbt_s);
    puts(s->slo_ttft_s > 0 || s->slo_tbt_s > 0 ? "" : "no SLO asked for");
}

static int run(const struct settings *s, const struct cluster *cluster,
               FILE *csv, bool *simulated)
{
    const struct replay_sim_params params = {
        .sim = {.cluster = cluster,
                .policy = s->policy,
                .settings = s->policies.settings.at,
                .n_settings = s->policies.settings.n,
                .admission = s->admission,
                .speed = s->speed,
                .slo_ttft_us =
                    s->slo_ttft_s > 0 ? (int64_t)(s->slo_ttft_s * 1e6) : 0,
                .slo_tbt_us =
                    s->slo_tbt_s > 0 ? (int64_t)(s->slo_tbt_s * 1e6) : 0,
                .seed = s->seed},
        .source = {.path = s->trace,
                   .block_tokens = (uint32_t)s->block_tokens,
                   .length_scale = (uint32_t)s->length_scale,
                   .from = s->from,
                   .requests = s->requests,
                   .skip_bad = s->skip_bad},
        .slo_ttft_s = s->slo_ttft_s > 0 ? s->slo_ttft_s : EFFECTIVE_TTFT_S,
        .slo_tbt_s = s->slo_tbt_s > 0 ? s->slo_tbt_s : EFFECTIVE_TBT_S,
        .with_facts = true,
        .csv = csv};
    struct replay_sim_result result;
    char error[1024];
    int rc = replay_sim_run(&params, &result, error, sizeof error);

    if (rc != 0) {
        replay_complain(usage.name, "%s", error);
        return 1;
    }
    *simulated = true;
    print_head(s, cluster);
    replay_sim_print(&result, stdout);
    fprintf(stderr, "%.3f s, %.0f requests/s\n", result.wall_s,
            (double)result.summary.requests / result.wall_s);
    if (result.skipped > 0) {
        replay_complain(usage.name, "%" PRIu64 " bad lines skipped, first %s",
                        result.skipped, result.first_skipped);
    }
    if (s->report)
        rc = write_report(s, cluster, &result);
    replay_sim_result_fini(&result);
    return rc != 0 || result.report.failed > 0 ? 1 : 0;
}

int replay_command_simulate(int argc, char **argv)
{
    struct settings s = {.admission = "plain",
                         .speed = 1,
                         .seed = 1,
                         .link_gbps = -1,
                         .cache_tokens = -1,
                         .prefill = NOT_GIVEN,
                         .decode = NOT_GIVEN,
                         .block_tokens = TRACE_BLOCK_TOKENS,
                         .length_scale = 1};
    struct cluster cluster;
    struct output csv = {.file = NULL};
    int status = 0;

    if (replay_policies_begin(&s.policies, argc) != 0)
        return 1;
    bool good = parse(argc, argv, &s, &status) == 0;
    if (replay_policies_end(&s.policies, usage.name, &s.policy, good) != 0)
        return REPLAY_EXIT_USAGE;
    if (!good)
        return status;
    if (replay_check_admission(usage.name, s.admission) != 0)
        return REPLAY_EXIT_USAGE;
    if (load_cluster(&s, &cluster) != 0)
        return 1;
    int rc = s.csv ? output_open(&csv, s.csv) : 0;
    if (rc == 0) {
        if (csv.file)
            replay_csv_header(csv.file);
        bool simulated = false;
        status = run(&s, &cluster, csv.file, &simulated);
        rc = output_close(&csv, simulated);
    }
    if (rc != 0) {
        replay_complain(usage.name, "--requests-csv %s: %s", s.csv,
                        strerror(-rc));
        status = 1;
    }
    return status;
}
