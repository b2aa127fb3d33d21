/* conductor-replay sessions: recorded sessions of agents, closed-loop. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tools/replay/command.h"
#include "tools/replay/study/study.h"

#define ALGORITHM_1 "global_cache"

#define IN_FLIGHT_DEFAULT "16"
#define HOURS_DEFAULT 8.0

/* --ttft: accepted relative error. */
#define NEAR 0.02

static const struct option_usage usage = {
    .name = "sessions",
    .synopsis = "--trace FILE --cluster FILE [OPTIONS]",
    .text =
        "Simulates recorded sessions of agents in a closed loop, under several "
        "policies and\nnumbers of sessions in flight, side by side. A turn "
        "starts when the answer before it\nhas ended and the recorded pause is "
        "over; sub-agents run beside their parent;\nwhen a session ends the "
        "next one of the file starts, after the last the first.",
    .examples =
        "  conductor-replay sessions --trace agentic_sessions.jsonl.gz "
        "--cluster \\\n      traces/clusters/paper-16.json --in-flight 50,100 "
        "--policies global_cache,plan\n"
        "  conductor-replay sessions --trace agentic_sessions.jsonl.gz "
        "--cluster \\\n      traces/clusters/paper-16.json --ttft 30 --report "
        "sessions.json\n",
    REPLAY_POLICY_TOPIC,
};

struct settings {
    struct replay_study study;
    struct replay_case base; /* of all cases */
    struct closed_loop_options loop;
    struct replay_policies numbers;
    struct replay_names policies;
    struct replay_numbers in_flight;
    const char *cluster, *policy_list, *in_flight_list, *report;
    double ttft_s, hours, think_max_s;
};

/* The cases of a run, each with its loop. */
struct cases {
    struct replay_case *at;            /* (n) */
    struct closed_loop_options *loops; /* (n) */
    size_t n;
};

static int parse(int argc, char **argv, struct settings *s, int *status)
{
    const struct option_spec specs[] = {
        {"trace", OPTION_TEXT, &s->loop.path, "FILE", 0, 0,
         "recorded sessions, one per line (traces/DESIGN.md), plain or gzip",
         .required = true},
        {"cluster", OPTION_TEXT, &s->cluster, "FILE", 0, 0,
         "the cluster's description (docs/plan/clusters.md)", .required = true},
        {"policies", OPTION_TEXT, &s->policy_list, "LIST", 0, 0,
         "default: all, " ALGORITHM_1 " first"},
        REPLAY_POLICY_SPEC(s->numbers),
        {"in-flight", OPTION_TEXT, &s->in_flight_list, "LIST", 0, 0,
         "numbers of sessions in flight (default " IN_FLIGHT_DEFAULT ")"},
        {"ttft", OPTION_NUMBER, &s->ttft_s, "S", 1e-3, 1e6,
         "instead of --in-flight: the number at which the first policy's mean "
         "TTFT is nearest to S seconds, half of it, and twice it"},
        {"hours", OPTION_NUMBER, &s->hours, "H", 1e-3, 1e5,
         "virtual hours after which no turn starts (default 8, or none with "
         "--sessions)"},
        {"sessions", OPTION_COUNT, &s->loop.sessions, "N", 1, 1e9,
         "number of sessions to start (default: no limit)"},
        {"think-max", OPTION_NUMBER, &s->think_max_s, "S", 0, 1e6,
         "longest pause before a turn, in seconds; longer ones are cut "
         "(default 120)"},
        {"input-max", OPTION_U32, &s->loop.input_max_tokens, "N", 1,
         TRACE_TOKENS_MAX,
         "longest prompt, in tokens; a session ends before a longer one "
         "(default 131072)"},
        {"seed", OPTION_COUNT, &s->base.seed, "S", 0, 9e15,
         "seed of random choices (default 1)"},
        OPTION_SPEC("jobs", OPTION_COUNT, &s->study.jobs, "N", 1, 1024,
                    "simulations at once (default: the cores of this machine)"),
        {"report", OPTION_OUTPUT, &s->report, "FILE", 0, 0,
         "write all numbers as JSON"},
    };

    return replay_policies_parse(&s->numbers, &usage, OPTION_TABLE(specs), argc,
                                 argv, status);
}

static void all_policies(struct replay_names *policies)
{
    const char *name;

    policies->names[policies->count++] = ALGORITHM_1;
    for (size_t i = 0; (name = sim_policy_name(i)); i++)
        if (strcmp(name, ALGORITHM_1) != 0)
            policies->names[policies->count++] = name;
}

static int read_lists(struct settings *s)
{
    char error[REPLAY_LIST_ERROR_BYTES];
    const char *in_flight =
        s->in_flight_list ? s->in_flight_list : IN_FLIGHT_DEFAULT;

    if (s->in_flight_list && s->ttft_s > 0)
        return replay_complain(usage.name,
                               "--in-flight: does not go with --ttft");
    if (replay_list_numbers("in-flight", in_flight, 1,
                            CLOSED_LOOP_IN_FLIGHT_MAX, &s->in_flight,
                            error) != 0 ||
        (s->policy_list &&
         replay_list_names("policies", s->policy_list, sim_policy_name,
                           &s->policies, error) != 0))
        return replay_complain(usage.name, "%s", error);
    for (size_t i = 0; i < s->in_flight.count; i++)
        if (floor(s->in_flight.values[i]) != s->in_flight.values[i])
            return replay_complain(
                usage.name, "--in-flight %s: must be whole numbers", in_flight);
    if (!s->policy_list)
        all_policies(&s->policies);
    return 0;
}

static void free_cases(struct cases *c)
{
    if (c->at)
        replay_cases_fini(c->at, c->n);
    free(c->at);
    free(c->loops);
    *c = (struct cases){0};
}

/* Simulates the first n policies at each number in flight. Returns 0, or -1
 * after printing an error; call free_cases() in either case. */
static int simulate(const struct settings *s, const double *in_flight,
                    size_t n_in_flight, size_t n_policies, struct cases *c)
{
    struct replay_study study = s->study;
    char error[REPLAY_STUDY_ERROR_BYTES];

    *c = (struct cases){.n = n_in_flight * n_policies};
    c->at = calloc(c->n, sizeof c->at[0]);
    c->loops = calloc(c->n, sizeof c->loops[0]);
    if (!c->at || !c->loops)
        return replay_complain(usage.name, "out of memory");
    for (size_t i = 0; i < c->n; i++) {
        c->loops[i] = s->loop;
        c->loops[i].in_flight = (uint32_t)in_flight[i / n_policies];
        c->at[i] = s->base;
        c->at[i].loop = &c->loops[i];
        c->at[i].policy = s->policies.names[i % n_policies];
    }
    study.quiet = c->n == 1;
    if (replay_study_run(&study, c->at, c->n, error) != 0)
        return replay_complain(usage.name, "%s", error);
    return 0;
}

/* Returns the first policy's mean TTFT; below 0 after printing an error. */
static double mean_ttft_s(const struct settings *s, double in_flight)
{
    struct cases one;
    double mean_s = -1.0;

    if (simulate(s, &in_flight, 1, 1, &one) == 0) {
        mean_s = one.at[0].result.sessions.ttft_s.mean;
        fprintf(stderr, "%s, %g in flight: mean TTFT %.2f s\n",
                s->policies.names[0], in_flight, mean_s);
    }
    free_cases(&one);
    return mean_s;
}

/* Finds the sessions in flight for --ttft: doubles their number until the mean
 * TTFT is above it, then bisects. More sessions wait longer. */
static int find_in_flight(struct settings *s)
{
    double low = 0, high = 0, best = 1, best_off = INFINITY;
    double at = strtod(IN_FLIGHT_DEFAULT, NULL);

    while (high == 0 || high - low > 1) {
        double mean_s = mean_ttft_s(s, at);

        if (mean_s < 0)
            return -1;
        double off = fabs(mean_s - s->ttft_s);

        if (off < best_off) {
            best = at;
            best_off = off;
        }
        if (off <= NEAR * s->ttft_s)
            break;
        if (mean_s > s->ttft_s)
            high = at;
        else
            low = at;
        if (high == 0 && at * 2 > CLOSED_LOOP_IN_FLIGHT_MAX)
            return replay_complain(usage.name,
                                   "--ttft %g: %g sessions in flight have a "
                                   "mean TTFT of only %.2f s",
                                   s->ttft_s, at, mean_s);
        at = high == 0 ? at * 2 : floor((low + high) / 2);
    }
    s->in_flight.count = 0;
    if (best >= 2)
        s->in_flight.values[s->in_flight.count++] = floor(best / 2);
    s->in_flight.values[s->in_flight.count++] = best;
    if (best * 2 <= CLOSED_LOOP_IN_FLIGHT_MAX)
        s->in_flight.values[s->in_flight.count++] = best * 2;
    return 0;
}

static void print_head(const struct settings *s)
{
    const struct cluster *c = &s->base.cluster;

    printf("\n%s on %s, simulated closed-loop", s->loop.path, c->name);
    if (s->loop.until_us > 0)
        printf(", %g h", replay_seconds(s->loop.until_us) / 3600);
    if (s->loop.sessions > 0)
        printf(", %" PRIu64 " sessions", s->loop.sessions);
    printf("\npauses of at most %g s, prompts of at most %" PRIu32
           " tokens, seed %" PRIu64 "\n\n",
           replay_seconds(s->loop.think_max_us), s->loop.input_max_tokens,
           s->base.seed);
    printf("%9s  %-14s %9s %8s %7s %31s  %23s %12s\n", "sessions", "",
           "finished", "", "", "TTFT of turns, s", "turn, s", "hits, %");
    printf("%9s  %-14s %9s %8s %7s %7s %7s %7s %7s  %7s %7s %7s %6s %5s\n",
           "in flight", "policy", "an hour", "turns", "lost", "mean", "p50",
           "p95", "p99", "mean", "p50", "p95", "", "best");
}

static void print_case(const struct replay_case *c)
{
    const struct replay_sessions *r = &c->result.sessions;
    const struct replay_report *report = &c->result.report;
    double best = report->context.best_possible_hit_ratio;

    printf("%9" PRIu32 "  %-14s %9.1f %8" PRIu64 " %7" PRIu64
           " %7.2f %7.2f %7.2f %7.2f  %7.2f %7.2f %7.2f %6.1f",
           c->loop->in_flight, c->policy, r->finished_per_hour, r->counts.turns,
           r->counts.lost, r->ttft_s.mean, r->ttft_s.p50, r->ttft_s.p95,
           r->ttft_s.p99, r->turn_s.mean, r->turn_s.p50, r->turn_s.p95,
           100 * report->prefix_hit_ratio);
    if (best >= 0)
        printf(" %5.1f\n", 100 * best);
    else
        puts("     -");
}

static json_t *case_json(const struct replay_case *c)
{
    const struct replay_report *report = &c->result.report;
    double best = report->context.best_possible_hit_ratio;
    json_t *json = replay_sessions_json(&c->result.sessions);
    json_t *more = json_pack(
        "{s:I, s:s, s:f, s:o}", "in_flight", (json_int_t)c->loop->in_flight,
        "policy", c->policy, "prefix_hit_ratio", report->prefix_hit_ratio,
        "best_possible_hit_ratio", best >= 0 ? json_real(best) : json_null());

    if (!json || !more || json_object_update(json, more) != 0) {
        json_decref(json);
        json = NULL;
    }
    json_decref(more);
    return json;
}

static int write_report(const struct settings *s, const struct cases *c)
{
    json_t *runs = json_array();
    int rc = runs ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < c->n; i++)
        rc = json_array_append_new(runs, case_json(&c->at[i]));
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:f, s:I, s:I, s:I, s:f, s:o}", "mode", "simulate",
        "file", s->loop.path, "cluster", s->base.cluster.name, "hours",
        replay_seconds(s->loop.until_us) / 3600, "sessions",
        (json_int_t)s->loop.sessions, "seed", (json_int_t)s->base.seed,
        "input_max", (json_int_t)s->loop.input_max_tokens, "think_max_s",
        replay_seconds(s->loop.think_max_us), "runs", runs);
    rc = rc == 0 && json ? replay_json_write(json, s->report) : -ENOMEM;
    json_decref(json);
    return rc;
}

static int run(struct settings *s)
{
    struct cases cases = {0};
    int status = 1;

    if (s->ttft_s > 0 && find_in_flight(s) != 0)
        return 1;
    if (simulate(s, s->in_flight.values, s->in_flight.count, s->policies.count,
                 &cases) == 0) {
        print_head(s);
        for (size_t i = 0; i < cases.n; i++) {
            if (i > 0 && i % s->policies.count == 0)
                putchar('\n');
            print_case(&cases.at[i]);
        }
        putchar('\n');
        status =
            REPLAY_OUTPUT(usage.name, s->report, write_report(s, &cases)) != 0;
    }
    free_cases(&cases);
    return status;
}

int replay_command_sessions(int argc, char **argv)
{
    struct settings s = {
        .base = REPLAY_CASE_DEFAULT,
        .loop = {.input_max_tokens = CLOSED_LOOP_INPUT_MAX_TOKENS},
        .think_max_s = (double)CLOSED_LOOP_THINK_MAX_US / 1e6};
    int status = 0;

    if (parse(argc, argv, &s, &status) != 0)
        return status;
    if (read_lists(&s) != 0 ||
        replay_policies_check(&s.numbers, usage.name, s.policies.names,
                              s.policies.count) != 0)
        return REPLAY_EXIT_USAGE;
    if (s.hours == 0 && s.loop.sessions == 0)
        s.hours = HOURS_DEFAULT;
    s.loop.until_us = llround(s.hours * 3600e6);
    s.loop.think_max_us = llround(s.think_max_s * 1e6);
    s.base.settings = &s.numbers.settings;
    if (replay_load_cluster(usage.name, s.cluster, &CLUSTER_UNCHANGED,
                            &s.base.cluster) != 0)
        return 1;
    return run(&s);
}
