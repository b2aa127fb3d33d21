/* Plays seeds of the world: world --seeds N [--from SEED]. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/bug.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "tests/world/world.h"

struct wanted {
    uint64_t seeds, from;
    uint32_t seconds;
    bool calm, log;
    uint8_t log_level;
};

static const struct option_usage usage = {
    .name = "world",
    .synopsis = "[OPTIONS]",
    .text = "Plays a conductor, workers and clients in virtual time, and "
            "checks what must always hold.",
    .examples = "  world --seeds 100\n"
                "  world --seeds 1 --from 17 --log\n",
};

static int parse(int argc, char **argv, struct wanted *o, int *status)
{
    const struct option_spec specs[] = {
        {"seeds", OPTION_COUNT, &o->seeds, "N", 1, 1e9, "how many are played",
         .initial = "10"},
        {"from", OPTION_COUNT, &o->from, "SEED", 0, 1e15, "the first one",
         .initial = "1"},
        {"seconds", OPTION_U32, &o->seconds, "N", 1, 1000000,
         "virtual seconds in which clients ask and faults come",
         .initial = "60"},
        {"calm", OPTION_FLAG, &o->calm, NULL, 0, 0, "without faults"},
        {"log", OPTION_FLAG, &o->log, NULL, 0, 0,
         "write all that happens to standard output"},
        {"log-level", OPTION_CHOICE, &o->log_level, "LEVEL", 0, 0,
         "of conductor and workers: error, warn, info or debug",
         .choice = log_level_name, .initial = "error"},
    };

    return options_start(&usage, OPTION_TABLE(specs), argc, argv, status);
}

int main(int argc, char **argv)
{
    struct wanted o = {0};
    uint64_t violations = 0;
    double hours = 0;
    int status;

    if (parse(argc, argv, &o, &status))
        return status;
    log_init("world", o.log_level);
    setenv(BUG_ABORTS, "1", 0);
    int64_t begin_us = clock_now_us();
    for (uint64_t i = 0; i < o.seeds; i++) {
        const struct world_options options = {.seed = o.from + i,
                                              .faults = !o.calm,
                                              .busy_us =
                                                  o.seconds * INT64_C(1000000),
                                              .log = o.log ? stdout : NULL};
        struct world_result r;

        printf("seed %" PRIu64 ":%s", options.seed, o.log ? "\n" : " ");
        fflush(stdout); /* before a bug ends the program */
        if (world_play(&options, &r))
            r.violations++;
        printf("%u asked, %u answered, %u refused, %u broken, %u faults, "
               "digest %016" PRIx64 "%s\n",
               r.asked, r.whole, r.refused, r.broken, r.faults, r.digest,
               r.violations ? ", VIOLATIONS" : "");
        violations += r.violations;
        hours += (double)r.us / 3.6e9;
    }
    printf("%" PRIu64 " seeds, %.2f simulated hours, %" PRIu64
           " violations, %.1f s\n",
           o.seeds, hours, violations,
           (double)(clock_now_us() - begin_us) / 1e6);
    return violations ? EXIT_FAILURE : EXIT_SUCCESS;
}
