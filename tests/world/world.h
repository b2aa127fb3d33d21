/*
 * The whole cluster in one process, in virtual time: a conductor, workers with
 * the engine "timed", and clients, all with their own code, over base/loop's
 * virtual net. A seed gives the run: requests, faults, and the order of all
 * calls.
 *
 * What is checked:
 *   - each request ends exactly once: with the tokens of the reference, or
 *     with an error that says why;
 *   - a connection breaks only after a fault that can explain it;
 *   - text that came before an error is the reference's, too;
 *   - after the last fault each client's last request is answered whole;
 *   - when the world is quiet, the conductor holds no request.
 */
#ifndef TESTS_WORLD_WORLD_H
#define TESTS_WORLD_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct world_options {
    uint64_t seed;
    bool faults;
    int64_t busy_us; /* clients ask, and faults come, for so long */
    FILE *log;       /* lines of what happens; NULL = none. Borrowed */
};

struct world_result {
    uint64_t digest; /* of the log's bytes */
    int64_t us;      /* of virtual time */
    unsigned asked;
    unsigned whole;   /* answers */
    unsigned refused; /* ended with an error */
    unsigned broken;  /* connections that ended early */
    unsigned faults;
    unsigned violations;
};

/* world_play(options, result): plays one seed; *result has what came of it.
 * The same options give the same result. Returns 0; or -ENOMEM. */
[[nodiscard]] int world_play(const struct world_options *options,
                             struct world_result *result);

#endif
