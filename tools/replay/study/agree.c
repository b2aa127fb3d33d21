/*
 * conductor-replay agree: compares a live replay with its simulation. The
 * report of `live` contains the replay's settings, so they need not be given
 * again. tools/agree makes such a report with timed workers and runs this.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/json_fields.h"
#include "tools/replay/command.h"
#include "tools/replay/simulate/sim.h"

static const struct option_usage usage = {
    .name = "agree",
    .synopsis = "--live REPORT.json --cluster FILE [OPTIONS]",
    .text = "Simulates what `live` replayed, as its report says (trace, part, "
            "scale, speed,\npolicy), on a cluster file that describes the live "
            "cluster, and compares TTFT\nand hit ratio. tools/agree does both: "
            "it starts a conductor and timed workers,\nreplays, and runs this. "
            "Ends with 1 if the difference is over a limit: of p50\nand p90 of "
            "TTFT in per cent, of the hit ratio in percentage points.",
    .examples = "  tools/agree\n"
                "  conductor-replay agree --live run/3/report.json --cluster "
                "\\\n      traces/clusters/agree-3.json --json agree.json\n",
};

struct settings {
    const char *live, *cluster, *trace, *policy, *json;
    double ttft_percent, hit_points;
};

/* Settings and results from the live report. */
struct live {
    char trace[1024];
    char policy[64];
    uint32_t block_tokens; /* scaled */
    uint32_t length_scale;
    uint64_t from;
    uint64_t requests;
    double speed;
    uint64_t completed, lost;
    double mean_s, p50_s, p90_s, p99_s;
    double hit_ratio;
};

/* One line of the comparison. */
struct pair {
    const char *name;
    const char *key;
    double live;
    double simulated;
    double limit;  /* 0 = none */
    bool is_ratio; /* compared in points, else in per cent */
};

#define PAIRS 5
#define LIVE_BYTES_MAX ((size_t)16 << 20)

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        {"live", OPTION_TEXT, &s->live, "FILE", 0, 0,
         "report written by conductor-replay live", .required = true},
        {"cluster", OPTION_TEXT, &s->cluster, "FILE", 0, 0,
         "description of the live cluster (docs/clusters.md)",
         .required = true},
        {"trace", OPTION_TEXT, &s->trace, "FILE", 0, 0,
         "path of the trace, instead of the report's"},
        {"policy", OPTION_TEXT, &s->policy, "NAME", 0, 0,
         "policy, instead of the report's"},
        {"max-ttft", OPTION_NUMBER, &s->ttft_percent, "P", 0, 1e6,
         "largest difference of p50 and p90 of TTFT, in per cent (default 5)"},
        {"max-hits", OPTION_NUMBER, &s->hit_points, "P", 0, 100,
         "largest difference of the hit ratio, in percentage points (default "
         "0.5)"},
        {"json", OPTION_OUTPUT, &s->json, "FILE", 0, 0,
         "write the comparison as JSON"},
    };
    return replay_parse(&usage, OPTION_TABLE(specs), argc, argv, status);
}

/* Reads the live report. */
static void read_report(struct fields *f, const struct fields_object *root,
                        void *into)
{
    struct live *l = into;
    struct fields_object trace =
        fields_object(f, root, "trace", "trace.", false);
    struct fields_object requests =
        fields_object(f, root, "requests", "requests.", false);
    struct fields_object ttft =
        fields_object(f, root, "ttft_s", "ttft_s.", false);

    fields_text(f, root, "policy", l->policy, sizeof l->policy, NULL);
    fields_text(f, &trace, "file", l->trace, sizeof l->trace, NULL);
    l->from = (uint64_t)fields_integer(f, &trace, "from", 0, INT64_MAX, NULL);
    l->requests =
        (uint64_t)fields_integer(f, &trace, "requests", 1, INT64_MAX, NULL);
    l->block_tokens =
        (uint32_t)fields_integer(f, &trace, "block_tokens", 1, 65536, NULL);
    l->length_scale =
        (uint32_t)fields_integer(f, &trace, "length_scale", 1, 65536, NULL);
    l->speed = fields_number(f, &trace, "speed", 1e-9, HUGE_VAL, NULL);
    int64_t total = fields_integer(f, &requests, "total", 1, INT64_MAX, NULL);
    l->completed =
        (uint64_t)fields_integer(f, &requests, "completed", 1, INT64_MAX, NULL);
    l->lost =
        (uint64_t)total > l->completed ? (uint64_t)total - l->completed : 0;
    l->mean_s = fields_number(f, &ttft, "mean", 0, HUGE_VAL, NULL);
    l->p50_s = fields_number(f, &ttft, "p50", 0, HUGE_VAL, NULL);
    l->p90_s = fields_number(f, &ttft, "p90", 0, HUGE_VAL, NULL);
    l->p99_s = fields_number(f, &ttft, "p99", 0, HUGE_VAL, NULL);
    l->hit_ratio =
        fields_number(f, root, "prefix_hit_ratio", 0, HUGE_VAL, NULL);
}

static int read_live(const struct settings *s, struct live *l)
{
    char error[512];
    struct fields f = {"", s->live, error, sizeof error, 0};

    return fields_read(&f, NULL, LIVE_BYTES_MAX, read_report, l) == 0
               ? 0
               : replay_complain(usage.name,
                                 "%s; it must be the report of "
                                 "conductor-replay live",
                                 error);
}

static int simulate(const struct settings *s, const struct live *l,
                    struct replay_report *report)
{
    struct cluster cluster;
    struct replay_sim_result result;
    char error[1024];

    if (cluster_load_file(s->cluster, &cluster, error) != 0)
        return replay_complain(usage.name, "%.900s", error);
    const struct replay_sim_params params = {
        .sim = {.cluster = &cluster,
                .policy = s->policy ? s->policy : l->policy,
                .speed = l->speed,
                .seed = 1},
        .source = {.path = s->trace ? s->trace : l->trace,
                   .block_tokens = l->block_tokens * l->length_scale,
                   .length_scale = l->length_scale,
                   .from = l->from,
                   .requests = l->requests},
        .slo_ttft_s = INFINITY,
        .slo_tbt_s = INFINITY};
    if (replay_sim_run(&params, &result, error, sizeof error) != 0)
        return replay_complain(usage.name, "%.900s", error);
    *report = result.report;
    replay_sim_result_fini(&result);
    return 0;
}

/* Returns points for ratios, per cent of the live value for times. */
static double difference(const struct pair *p)
{
    if (p->is_ratio)
        return 100 * (p->simulated - p->live);
    return p->live > 0 ? 100 * (p->simulated / p->live - 1) : 0;
}

static bool agrees(const struct pair *p)
{
    return !(p->limit > 0) || fabs(difference(p)) <= p->limit;
}

static void print_pairs(const struct pair *pairs)
{
    printf("%-18s %12s %12s %14s\n", "", "live", "simulated", "difference");
    for (size_t i = 0; i < PAIRS; i++) {
        const struct pair *p = &pairs[i];
        double scale = p->is_ratio ? 100 : 1000;

        printf("%-18s %12.2f %12.2f %+9.2f %s", p->name, scale * p->live,
               scale * p->simulated, difference(p),
               p->is_ratio ? "points" : "%");
        if (p->limit > 0) {
            printf("%s  %s (within %g)", p->is_ratio ? "" : "     ",
                   agrees(p) ? "agrees" : "DIFFERS", p->limit);
        }
        putchar('\n');
    }
}

static int write_json(const struct settings *s, const struct live *l,
                      const struct pair *pairs)
{
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:I, s:f}", "live", s->live, "cluster",
                  s->cluster, "policy", s->policy ? s->policy : l->policy,
                  "requests", (json_int_t)l->requests, "speed", l->speed);
    int rc = json ? 0 : -ENOMEM;

    for (size_t i = 0; i < PAIRS && rc == 0; i++) {
        const struct pair *p = &pairs[i];
        json_t *one =
            json_pack("{s:f, s:f, s:f, s:b}", "live", p->live, "simulated",
                      p->simulated, p->is_ratio ? "points" : "percent",
                      difference(p), "agrees", agrees(p));

        rc = json_object_set_new(json, p->key, one) == 0 ? 0 : -ENOMEM;
    }
    if (rc == 0)
        rc = replay_json_write(json, s->json);
    json_decref(json);
    return rc;
}

static int compare(const struct settings *s, const struct live *l,
                   const struct replay_report *r)
{
    const struct pair pairs[PAIRS] = {
        {"TTFT mean (ms)", "ttft_mean_s", l->mean_s, r->ttft_s.mean, 0, false},
        {"TTFT p50 (ms)", "ttft_p50_s", l->p50_s, r->ttft_s.p50,
         s->ttft_percent, false},
        {"TTFT p90 (ms)", "ttft_p90_s", l->p90_s, r->ttft_s.p90,
         s->ttft_percent, false},
        {"TTFT p99 (ms)", "ttft_p99_s", l->p99_s, r->ttft_s.p99, 0, false},
        {"hit ratio (%)", "prefix_hit_ratio", l->hit_ratio, r->prefix_hit_ratio,
         s->hit_points, true},
    };
    printf("%" PRIu64 " requests at speed %g, policy %s; %" PRIu64
           " completed live, %" PRIu64 " simulated\n\n",
           l->requests, l->speed, s->policy ? s->policy : l->policy,
           l->completed, r->completed);
    print_pairs(pairs);
    if (l->lost > 0) {
        replay_complain(usage.name,
                        "%" PRIu64 " requests were not completed live: the "
                        "two are not of the same requests",
                        l->lost);
    }
    int status = l->lost > 0 || r->completed != l->completed ? 1 : 0;
    for (size_t i = 0; i < PAIRS; i++)
        status |= agrees(&pairs[i]) ? 0 : 1;
    return status | REPLAY_OUTPUT(usage.name, s->json, write_json(s, l, pairs));
}

int replay_command_agree(int argc, char **argv)
{
    struct settings s = {.ttft_percent = 5, .hit_points = 0.5};
    struct live live;
    struct replay_report report = {0};
    int status = 0;

    if (parse(argc, argv, &s, &status) != 0)
        return status;
    if (read_live(&s, &live) != 0 || simulate(&s, &live, &report) != 0)
        return 1;
    return compare(&s, &live, &report);
}
