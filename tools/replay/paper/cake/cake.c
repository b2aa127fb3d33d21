/* conductor-replay cake, cake-fluctuation and cake-adaptive: their command
 * lines. cake.py beside this file, copied to tools/plot, does the rest. */
#include <stdio.h>

#include "tools/replay/command.h"
#include "tools/replay/paper/cake/process.h"

static const struct option_usage cake_usage = {
    .name = "cake",
    .synopsis = "--table FILE.csv [OPTIONS]",
    .text =
        "Predicts, for each row of a table of the Cake paper, how much faster "
        "computing and\nloading at once is than loading alone and than "
        "computing alone, and\nprints it beside the paper's number. Nothing is "
        "measured here: the costs are\nconstants of the paper's machines "
        "(tools/replay/paper/cake/DESIGN.md), and the\nscheduler's load plan "
        "splits the prompt.\n\nColumns: hardware, util_pct, bandwidth_gbps, "
        "model, seq_len, chunk, kv_bits,\nspeedup_io, speedup_compute.",
    .examples =
        "  conductor-replay cake --table tests/scenario/data/cake.csv\n"
        "  conductor-replay cake --table table3.csv --plot cake.svg --csv "
        "cake.csv\n"
        "  conductor-replay cake --table table5.csv --calibration own.json "
        "--json\n",
};

static const struct option_usage fluctuation_usage = {
    .name = "cake-fluctuation",
    .synopsis = "[OPTIONS]",
    .text =
        "Simulates the Cake paper's fluctuation experiment: a cached prompt "
        "for which the\nengine has a budget drawn anew before every step "
        "(uniform in 0 to 512 tokens) and\nthe link a bandwidth drawn anew "
        "every period (uniform in 0 to 25 Gbit/s). Time to\nthe first token "
        "if it is computed alone, loaded alone, split where the load plan\n"
        "says from the means, and if computing and loading go on until they "
        "meet. Ideal is\nthe same meeting without steps, pieces and a last "
        "step. Nothing is measured here:\ncosts as in conductor-replay cake.",
    .examples =
        "  conductor-replay cake-fluctuation --plot f.svg --csv f.csv\n"
        "  conductor-replay cake-fluctuation --hardware H100 --tokens 8192 "
        "--runs 100\n",
};

static const struct option_usage adaptive_usage = {
    .name = "cake-adaptive",
    .synopsis = "[OPTIONS]",
    .text =
        "Simulates the Cake paper's adaptive-scheduling experiment: one cached "
        "prompt, followed\nby short uncached prompts of 32 to 448 tokens "
        "(drawn), in steps of 512 tokens. Two\norders: first come, first "
        "served (fifo), and uncached prompts first\n(uncached_first), so that "
        "the cached prompt loads meanwhile. Nothing is measured\nhere: costs "
        "as in conductor-replay cake, and there are no decode steps.",
    .examples =
        "  conductor-replay cake-adaptive --plot a.svg --csv a.csv\n"
        "  conductor-replay cake-adaptive --bandwidths 56 --short 50 --runs "
        "100\n",
};

#define NAME_BYTES 64

/* The options of both experiments, with their defaults. */
struct common {
    char hardware[NAME_BYTES], model[NAME_BYTES];
    const char *calibration, *csv, *plot;
    uint64_t tokens, seed, runs;
    uint32_t kv_bits;
};

#define COMMON_DEFAULT                                                    \
    {                                                                     \
        .hardware = "2xA100", .model = "LongAlpaca-13B", .tokens = 16384, \
        .kv_bits = 16, .seed = 1, .runs = 20                              \
    }

/* Most runs of one experiment; each has its own seed. */
#define RUNS_MAX 500

#define COMMON_SPECS(o)                                                        \
    OPTION_SPEC("hardware", OPTION_STRING, (o).hardware, "NAME", 1, 0,         \
                "hardware in the calibration (default 2xA100)",                \
                .size = NAME_BYTES),                                           \
        OPTION_SPEC("model", OPTION_STRING, (o).model, "NAME", 1, 0,           \
                    "model in the calibration (default LongAlpaca-13B)",       \
                    .size = NAME_BYTES),                                       \
        OPTION_SPEC("tokens", OPTION_COUNT, &(o).tokens, "N", 1, 1e7,          \
                    "length of the cached prompt (default 16384)"),            \
        OPTION_SPEC("kv-bits", OPTION_U32, &(o).kv_bits, "N", 1, 16,           \
                    "bits per stored number (default 16)"),                    \
        OPTION_SPEC("calibration", OPTION_TEXT, &(o).calibration, "FILE", 0,   \
                    0,                                                         \
                    "costs as JSON (default: those of the paper's machines)"), \
        OPTION_SPEC("seed", OPTION_COUNT, &(o).seed, "S", 0, 9e15,             \
                    "seed of the first run; each run adds 1 (default 1)"),     \
        OPTION_SPEC("runs", OPTION_COUNT, &(o).runs, "N", 1, RUNS_MAX,         \
                    "number of runs (default 20)")

int replay_command_cake(int argc, char **argv)
{
    const char *published = NULL, *calibration = NULL, *csv = NULL;
    const char *plot = NULL;
    bool json = false, skip_unknown = false;
    const struct option_spec specs[] = {
        {"table", OPTION_TEXT, &published, "FILE", 0, 0,
         "CSV with the published speed-ups", .required = true},
        {"calibration", OPTION_TEXT, &calibration, "FILE", 0, 0,
         "costs as JSON (default: those of the paper's machines)"},
        {"skip-unknown", OPTION_FLAG, &skip_unknown, NULL, 0, 0,
         "leave out rows for which the calibration has no costs"},
        {"json", OPTION_FLAG, &json, NULL, 0, 0,
         "print JSON instead of the table"},
        {"csv", OPTION_OUTPUT, &csv, "FILE", 0, 0, "a line a row"},
        {"plot", OPTION_OUTPUT, &plot, "FILE", 0, 0,
         "draw predicted over published speed-ups as SVG"},
    };

    return replay_script("cake.py", &cake_usage, OPTION_TABLE(specs), argc,
                         argv);
}

int replay_command_cake_fluctuation(int argc, char **argv)
{
    struct common common = COMMON_DEFAULT;
    uint64_t budget_tokens = 512;
    double gbps = 25, period_ms = 100;
    const struct option_spec specs[] = {
        COMMON_SPECS(common),
        {"budget", OPTION_COUNT, &budget_tokens, "N", 1, 1e6,
         "largest token budget of a step (default 512)"},
        {"gbps", OPTION_NUMBER, &gbps, "X", 1e-3, 1e6,
         "largest bandwidth, in Gbit/s (default 25)"},
        {"period-ms", OPTION_NUMBER, &period_ms, "X", 1, 1e6,
         "time between changes of bandwidth, in ms (default 100)"},
        {"csv", OPTION_OUTPUT, &common.csv, "FILE", 0, 0, "a line a run"},
        {"plot", OPTION_OUTPUT, &common.plot, "FILE", 0, 0,
         "draw all runs, and the first run's pointers, as SVG"},
    };

    return replay_script("cake.py", &fluctuation_usage, OPTION_TABLE(specs),
                         argc, argv);
}

int replay_command_cake_adaptive(int argc, char **argv)
{
    struct common common = COMMON_DEFAULT;
    const char *bandwidths = "7,25,32,56,100";
    uint64_t n_short = 22, least_tokens = 32, most_tokens = 448;
    const struct option_spec specs[] = {
        COMMON_SPECS(common),
        {"bandwidths", OPTION_TEXT, &bandwidths, "LIST", 0, 0,
         "bandwidths for loading, in Gbit/s (default 7,25,32,56,100)"},
        {"short", OPTION_COUNT, &n_short, "N", 1, CAKE_SHORT_MAX,
         "number of uncached prompts (default 22)"},
        {"short-min", OPTION_COUNT, &least_tokens, "N", 1, 1e6,
         "shortest uncached prompt, in tokens (default 32)"},
        {"short-max", OPTION_COUNT, &most_tokens, "N", 1, 1e6,
         "longest uncached prompt, in tokens (default 448)"},
        {"csv", OPTION_OUTPUT, &common.csv, "FILE", 0, 0,
         "write one CSV line per bandwidth and order"},
        {"plot", OPTION_OUTPUT, &common.plot, "FILE", 0, 0, "SVG"},
    };
    char error[REPLAY_LIST_ERROR_BYTES];
    struct replay_numbers gbps;
    int status = 0;

    if (replay_parse(&adaptive_usage, OPTION_TABLE(specs), argc, argv,
                     &status) != 0)
        return status;
    if (replay_list_numbers("bandwidths", bandwidths, 1e-3, 1e6, &gbps,
                            error) != 0)
        return replay_refuse(adaptive_usage.name, "%s", error);
    if (most_tokens < least_tokens)
        return replay_refuse(adaptive_usage.name,
                             "--short-max %llu: less than --short-min",
                             (unsigned long long)most_tokens);
    return replay_script_parsed("cake.py", adaptive_usage.name,
                                OPTION_TABLE(specs));
}
