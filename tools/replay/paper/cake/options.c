/* See options.h. */
#include "tools/replay/paper/cake/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int cake_options_calibration(const struct cake_options *options,
                             struct cake_calibration *calibration,
                             char error[CAKE_ERROR_BYTES])
{
    if (options->calibration) {
        return cake_calibration_read_file(options->calibration, calibration,
                                          error);
    }
    *calibration = *cake_calibration_default();
    return 0;
}

static int copy_name(const char *option, const char *text,
                     char name[CAKE_NAME_BYTES], char error[CAKE_ERROR_BYTES])
{
    size_t length = strlen(text);

    if (length < 1 || length >= CAKE_NAME_BYTES) {
        snprintf(error, CAKE_ERROR_BYTES,
                 "--%s %.80s: must have 1 to %d characters", option, text,
                 CAKE_NAME_BYTES - 1);
        return -EINVAL;
    }
    memcpy(name, text, length + 1);
    return 0;
}

int cake_options_engine(const struct cake_options *options,
                        const struct cake_calibration *calibration,
                        double utilisation, double bandwidth_gbps,
                        struct cake_engine *engine,
                        char error[CAKE_ERROR_BYTES])
{
    struct cake_setup setup = {
        .utilisation = utilisation,
        .bandwidth_gbps = bandwidth_gbps,
        .n_tokens = (int64_t)options->tokens,
        .chunk_tokens = calibration->chunk_tokens,
        .kv_bits = (int)options->kv_bits,
    };
    int rc = copy_name("hardware", options->hardware, setup.hardware, error);
    if (rc == 0)
        rc = copy_name("model", options->model, setup.model, error);
    return rc != 0 ? rc : cake_engine_init(engine, calibration, &setup, error);
}
