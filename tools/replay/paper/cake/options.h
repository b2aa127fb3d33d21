/* Options shared by the simulated experiments of the Cake paper. */
#ifndef TOOLS_REPLAY_PAPER_CAKE_OPTIONS_H
#define TOOLS_REPLAY_PAPER_CAKE_OPTIONS_H

#include "tools/replay/options.h"
#include "tools/replay/paper/cake/model.h"

/* Its text is borrowed from argv. */
struct cake_options {
    const char *calibration; /* NULL = the default */
    struct cake_setup setup; /* hardware, model, n_tokens and kv_bits are
                                used */
    uint64_t seed;
    uint64_t runs;
};

#define CAKE_OPTIONS_DEFAULT                 \
    {                                        \
        .setup = {.hardware = "2xA100",      \
                  .model = "LongAlpaca-13B", \
                  .n_tokens = 16384,         \
                  .kv_bits = 16},            \
        .seed = 1, .runs = 20                \
    }

/* Most runs of one experiment; each has its own seed. */
#define CAKE_RUNS_MAX 500

#define CAKE_OPTIONS_SPECS(o)                                                  \
    OPTION_SPEC("hardware", OPTION_STRING, (o).setup.hardware, "NAME", 1, 0,   \
                "hardware in the calibration (default 2xA100)",                \
                .size = CAKE_NAME_BYTES),                                      \
        OPTION_SPEC("model", OPTION_STRING, (o).setup.model, "NAME", 1, 0,     \
                    "model in the calibration (default LongAlpaca-13B)",       \
                    .size = CAKE_NAME_BYTES),                                  \
        OPTION_SPEC("tokens", OPTION_COUNT, &(o).setup.n_tokens, "N", 1, 1e7,  \
                    "length of the cached prompt (default 16384)"),            \
        OPTION_SPEC("kv-bits", OPTION_U32, &(o).setup.kv_bits, "N", 1, 16,     \
                    "bits per stored number (default 16)"),                    \
        OPTION_SPEC("calibration", OPTION_TEXT, &(o).calibration, "FILE", 0,   \
                    0,                                                         \
                    "costs as JSON (default: those of the paper's machines)"), \
        OPTION_SPEC("seed", OPTION_COUNT, &(o).seed, "S", 0, 9e15,             \
                    "seed of the first run; each run adds 1 (default 1)"),     \
        OPTION_SPEC("runs", OPTION_COUNT, &(o).runs, "N", 1, CAKE_RUNS_MAX,    \
                    "number of runs (default 20)")

/*
 * Sets up the engine of the options at this utilisation and bandwidth, in steps
 * of the calibration's chunk_tokens. Returns 0 or a negative errno with a
 * message that names the option in `error`.
 */
[[nodiscard]] int
cake_options_engine(const struct cake_options *options,
                    const struct cake_calibration *calibration,
                    double utilisation, double bandwidth_gbps,
                    struct cake_engine *engine, char error[CAKE_ERROR_BYTES]);

#endif
