/* A profile of an engine on standard output, for conductor-fit: what
 * conductor-worker --profile writes, without the libraries of a worker. */
#include <errno.h>
#include <stdlib.h>

#include "tests/gpu/bench_rig.h"
#include "workers/engine/profile.h"

static void on_progress(void *arg, uint32_t done, uint32_t of)
{
    if (done == of || done % ((of + 9) / 10) == 0)
        bench_say(arg, "%u of %u", done, of);
}

int main(int argc, char **argv)
{
    static struct bench b;

    int rc = bench_open(&b, "bench_profile",
                        "Times prefill and decode over a grid and writes a "
                        "profile for conductor-fit.\n",
                        argc, argv);
    if (rc != 0)
        return EXIT_FAILURE;
    rc = bench_engine(&b, NULL, 0, b.card->gpu ? 2048 : 0);
    if (rc == 0) {
        const struct profile_config config = {
            .model = b.options.model,
            .machine = b.card->gpu ? b.device : NULL,
            .seed = b.options.seed,
            .max_tokens = b.options.max_tokens,
            .repeats = b.options.repeats,
            .max_kv_bytes = b.options.kv_mib << 20,
        };
        rc = profile_run(b.engine, &config, stdout, on_progress, &b, b.err,
                         sizeof(b.err));
    }
    return bench_close(&b, rc);
}
