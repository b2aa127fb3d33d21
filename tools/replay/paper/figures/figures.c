/* conductor-replay figures: the paper's figures for every trace found. */
#include "tools/replay/paper/figures/figures.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/replay/command.h"

#define TRACES_MAX 64
#define NAME_BYTES 256

static const struct replay_usage usage = {
    .name = "figures",
    .synopsis = "--traces DIR --out DIR [OPTIONS]",
    .text =
        "Simulates what the Mooncake paper's figures 1, 5 to 11, 13 and 15 "
        "show (FAST'25), for\nevery *.jsonl and *.jsonl.gz in a folder, and "
        "writes each as SVG and CSV into a folder\nper trace. RESULTS.md puts "
        "the paper's statements beside the numbers. A trace "
        "with\nconversation, "
        "toolagent or synthetic in its name is compared with that workload.",
    .examples =
        "  conductor-replay figures --traces ~/traces --out docs/results\n"
        "  conductor-replay figures --traces ~/traces --out /tmp/f --only "
        "05,11 "
        "\\\n      --requests 2000\n",
};

struct settings {
    struct replay_study study; /* without a path */
    const char *traces, *out, *clusters, *only;
    bool undrawn; /* there is no gnuplot */
};

struct figure_trace {
    char name[NAME_BYTES];
    char path[FIGURE_PATH_BYTES];
    struct figure_run run;
};

static enum figure_workload workload_of(const char *name)
{
    return strstr(name, "conversation") ? FIGURE_CONVERSATION
           : strstr(name, "toolagent")  ? FIGURE_TOOLAGENT
           : strstr(name, "synthetic")  ? FIGURE_SYNTHETIC
                                        : FIGURE_OTHER;
}

static bool cut_ending(char *name, const char *ending)
{
    size_t n = strlen(name);
    size_t e = strlen(ending);

    if (n <= e || strcmp(name + n - e, ending) != 0)
        return false;
    name[n - e] = '\0';
    return true;
}

static int compare_names(const void *a, const void *b)
{
    const struct figure_trace *x = a;
    const struct figure_trace *y = b;

    return strcmp(x->name, y->name);
}

/* The traces of the folder by name; *n of them. 0 or -1, complained about. */
static int find_traces(const char *folder, struct figure_trace *traces,
                       size_t *n)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    if (!dir) {
        replay_complain(usage.name, "--traces %s: %s", folder, strerror(errno));
        return -1;
    }
    while ((entry = readdir(dir)) && *n < TRACES_MAX) {
        struct figure_trace *t = &traces[*n];

        snprintf(t->name, sizeof t->name, "%s", entry->d_name);
        int length =
            snprintf(t->path, sizeof t->path, "%s/%s", folder, entry->d_name);
        if ((cut_ending(t->name, ".jsonl.gz") ||
             cut_ending(t->name, ".jsonl")) &&
            length < FIGURE_PATH_BYTES)
            (*n)++;
    }
    closedir(dir);
    qsort(traces, *n, sizeof traces[0], compare_names);
    if (*n == 0) {
        replay_complain(usage.name,
                        "--traces %s: holds no *.jsonl or *.jsonl.gz", folder);
        return -1;
    }
    return 0;
}

static int load_cluster(const struct settings *s, const char *name,
                        struct cluster *cluster)
{
    char path[FIGURE_PATH_BYTES];
    char error[CLUSTER_ERROR_BYTES];

    snprintf(path, sizeof path, "%s/%s.json", s->clusters, name);
    int rc = cluster_load_file(path, cluster, error);
    if (rc != 0)
        replay_complain(usage.name, "%s", error);
    return rc;
}

/* Fills in a trace's run and makes its folder. 0 or -1, complained about. */
static int prepare(struct settings *s, struct figure_trace *t)
{
    struct figure_run *run = &t->run;
    char folder[FIGURE_PATH_BYTES];
    const struct replay_stream_options options = {
        .path = t->path,
        .from = s->study.source.from,
        .requests = s->study.source.requests,
        .block_tokens = TRACE_BLOCK_TOKENS,
        .skip_bad = s->study.source.skip_bad};

    *run = (struct figure_run){.study = s->study,
                               .name = t->name,
                               .workload = workload_of(t->name),
                               .out = s->out,
                               .undrawn = &s->undrawn};
    run->study.source.path = t->path;
    if (load_cluster(s, "reference-16", &run->reference) != 0 ||
        load_cluster(s, "paper-16", &run->paper) != 0 ||
        load_cluster(s, "paper-16-coupled", &run->coupled) != 0)
        return -1;
    snprintf(folder, sizeof folder, "%s/%s", s->out, t->name);
    if ((mkdir(s->out, 0777) != 0 && errno != EEXIST) ||
        (mkdir(folder, 0777) != 0 && errno != EEXIST)) {
        replay_complain(usage.name, "%s: %s", folder, strerror(errno));
        return -1;
    }
    if (replay_workload_read(&options, &run->facts, run->error) != 0) {
        replay_complain(usage.name, "%s", run->error);
        return -1;
    }
    return 0;
}

static void write_head(FILE *f, const struct settings *s,
                       const struct figure_trace *traces, size_t n)
{
    fputs("# The Mooncake paper's figures, from the simulator\n\n"
          "`conductor-replay figures` wrote this page. The numbers come from "
          "its simulations, with\nthe daemon's own scheduling code. Times are "
          "those of the described cluster, not of the\nmachine that "
          "simulates. The clusters are in `traces/clusters/`;\n"
          "`traces/DESIGN.md` describes the format of traces.\n\nThe "
          "numbers decide whether a result agrees with the paper: a percentage "
          "agrees within\n5 points. A trace stands for the workload in its "
          "name. Nothing is said of a trace\nwithout such a name, or where "
          "the paper has no number for the workload.\n\n",
          f);
    if (s->study.source.requests > 0) {
        fprintf(f,
                "Of each trace the first %" PRIu64 " requests "
                "(`--requests`).",
                s->study.source.requests);
    } else {
        fputs("All requests of each trace.", f);
    }
    fputs(" Admission: `plain`, which rejects only where a\nrequest asks for "
          "an SLO; requests ask for one only under \"Goodput\".\n\n"
          "| trace | requests | mean input | mean output | over | best hit "
          "ratio (tokens) |\n|---|---|---|---|---|---|\n",
          f);
    for (size_t i = 0; i < n; i++) {
        const struct replay_workload *w = traces[i].run.facts;

        fprintf(f, "| %s | %" PRIu64 " | %.0f | %.0f | %.0f s | %.4f |\n",
                traces[i].name, w->totals.requests, w->input_tokens.mean,
                w->output_tokens.mean, w->span_s, w->best_token_ratio);
    }
}

/* "|---" for every cell of a header. */
static void write_rule(FILE *f, const char *header)
{
    fputs("|---|", f);
    for (const char *c = header; *c != '\0'; c++)
        if (*c == '|')
            fputs("---|", f);
    fputc('\n', f);
}

/* How each trace compares with the paper. */
static void write_verdicts(FILE *f, const char *verdicts)
{
    if (verdicts[0] != '\0')
        fprintf(f, "\n**Against the paper:**\n\n%s", verdicts);
    else
        fputs("\nThe paper has no such figure of any of these traces.\n", f);
}

static int run_figure(FILE *table, FILE *verdicts, const struct figure *figure,
                      struct figure_trace *traces, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct figure_run *run = &traces[i].run;

        fprintf(stderr, "figure %s of %s\n", figure->id, traces[i].name);
        run->table = table;
        run->verdicts = verdicts;
        if (figure->run(run) != 0) {
            replay_complain(usage.name, "%s: figure %s: %s", traces[i].path,
                            figure->id, run->error);
            return -1;
        }
    }
    return 0;
}

static int write_figure(FILE *f, const struct figure *figure,
                        struct figure_trace *traces, size_t n)
{
    fprintf(f,
            "\n## %s\n\n**Paper:** %s\n\n**Simulated:** %s\n\n| trace | %s\n",
            figure->title, figure->paper, figure->setup, figure->header);
    write_rule(f, figure->header);
    char *verdicts = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&verdicts, &size);
    if (!memory) {
        replay_complain(usage.name, "out of memory");
        return -1;
    }
    int rc = run_figure(f, memory, figure, traces, n);
    if (fclose(memory) != 0 && rc == 0) {
        replay_complain(usage.name, "out of memory");
        rc = -1;
    }
    if (rc == 0) {
        write_verdicts(f, verdicts);
        fprintf(f, "\n**On the method:** %s\n\n", figure->notes);
    }
    free(verdicts);
    for (size_t i = 0; i < n && rc == 0; i++) {
        fprintf(f, "![%s](%s/figure-%s.svg)\n", traces[i].name, traces[i].name,
                figure->id);
    }
    return rc;
}

static bool is_wanted(const struct settings *s, const char *id)
{
    size_t length = strlen(id);

    if (!s->only)
        return true;
    for (const char *at = s->only; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, id, length) == 0 &&
            (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

static int write_results(const struct settings *s, struct figure_trace *traces,
                         size_t n)
{
    char path[FIGURE_PATH_BYTES];
    const struct figure *figure;

    snprintf(path, sizeof path, "%s/RESULTS.md", s->out);
    FILE *f = fopen(path, "w");
    if (!f) {
        replay_complain(usage.name, "%s: %s", path, strerror(errno));
        return 1;
    }
    int rc = 0;
    write_head(f, s, traces, n);
    for (size_t i = 0; rc == 0 && (figure = figure_at(i)); i++)
        if (is_wanted(s, figure->id))
            rc = write_figure(f, figure, traces, n);
    bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed) {
        replay_complain(usage.name, "%s: cannot write", path);
        rc = -1;
    }
    return rc != 0 ? 1 : 0;
}

static int check_only(const struct settings *s)
{
    const struct figure *figure;

    for (const char *at = s->only; at; at = strchr(at, ',')) {
        at += *at == ',';
        size_t length = strcspn(at, ",");
        size_t i = 0;
        while ((figure = figure_at(i)) &&
               !(strlen(figure->id) == length &&
                 strncmp(figure->id, at, length) == 0))
            i++;
        if (!figure) {
            replay_complain(usage.name,
                            "--only %s: must be of 01 (1, 6 and 7), 05, 08, "
                            "09, 10, 11, 13, 15, goodput",
                            s->only);
            return -1;
        }
    }
    return 0;
}

int replay_command_figures(int argc, char **argv)
{
    struct settings s = {.clusters = "traces/clusters"};
    const struct option_spec specs[] = {
        {"traces", OPTION_TEXT, &s.traces, "DIR", 0, 0,
         "where *.jsonl and *.jsonl.gz are"},
        {"out", OPTION_TEXT, &s.out, "DIR", 0, 0, "where results go"},
        {"clusters", OPTION_TEXT, &s.clusters, "DIR", 0, 0,
         "cluster descriptions (default traces/clusters)"},
        {"only", OPTION_TEXT, &s.only, "LIST", 0, 0,
         "of 01 (1, 6 and 7), 05, 08, 09, 10, 11, 13, 15, goodput"},
        {"requests", OPTION_COUNT, &s.study.source.requests, "N", 1, 1e12,
         "only the first of each trace"},
        {"skip-bad", OPTION_FLAG, &s.study.source.skip_bad, NULL, 0, 0,
         "skip bad lines"},
        {"jobs", OPTION_COUNT, &s.study.jobs, "N", 1, 1024,
         "simulations at once (default: the cores of this machine)"},
    };
    const struct option_table table = {specs, sizeof specs / sizeof specs[0]};
    int status = 0;
    if (replay_parse(&usage, &table, argc, argv, &status) != 0)
        return status;
    if (!s.traces || !s.out) {
        replay_missing(usage.name, !s.traces ? "--traces DIR" : "--out DIR");
        return REPLAY_EXIT_USAGE;
    }
    if (check_only(&s) != 0)
        return REPLAY_EXIT_USAGE;
    struct figure_trace *traces = calloc(TRACES_MAX, sizeof traces[0]);
    size_t n = 0;
    int rc = -1;
    if (!traces)
        replay_complain(usage.name, "out of memory");
    else
        rc = find_traces(s.traces, traces, &n);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = prepare(&s, &traces[i]);
    status = rc == 0 ? write_results(&s, traces, n) : 1;
    if (s.undrawn)
        status = 1;
    for (size_t i = 0; i < n; i++)
        replay_workload_free(traces[i].run.facts);
    free(traces);
    return status;
}
