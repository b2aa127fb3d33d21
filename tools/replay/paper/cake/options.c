/* See options.h. */
#include "tools/replay/paper/cake/options.h"

int cake_options_engine(const struct cake_options *options,
                        const struct cake_calibration *calibration,
                        double utilisation, double bandwidth_gbps,
                        struct cake_engine *engine,
                        char error[CAKE_ERROR_BYTES])
{
    struct cake_setup setup = options->setup;

    setup.utilisation = utilisation;
    setup.bandwidth_gbps = bandwidth_gbps;
    setup.chunk_tokens = calibration->chunk_tokens;
    return cake_engine_init(engine, calibration, &setup, error);
}
