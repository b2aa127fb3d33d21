/* Compares the model of Redis with a real server: see differs.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/differs.h"

#define SKIPPED 77 /* as meson understands it */

/* Reads "--NAME NUMBER". Returns whether this is it. */
static int take(char *const argv[], const char *name, uint64_t *value)
{
    char *end;

    if (strcmp(argv[0], name) != 0 || !argv[1])
        return 0;
    *value = strtoull(argv[1], &end, 0);
    return *argv[1] && !*end;
}

int main(int argc, char *argv[])
{
    struct differs d = {.seed = 1, .commands = 100000};
    int rc;

    for (int i = 1; i < argc; i += 2) {
        if (!take(argv + i, "--commands", &d.commands) &&
            !take(argv + i, "--seed", &d.seed)) {
            fprintf(stderr,
                    "usage: redis_differs [--commands N] [--seed S]\n"
                    "Sends N random commands (100000) to the model of Redis and"
                    "\nto a real redis-server, and compares the answers.\n");
            return 2;
        }
    }
    rc = differs_run(&d);
    if (rc)
        printf("%s\n", d.why);
    if (rc < 0)
        return SKIPPED;
    printf("seed %" PRIu64 ": %" PRIu64 " commands (%" PRIu64
           " answered with an error, %" PRIu64 " reads waited, %" PRIu64
           " of them for entries), %" PRIu64 " connections with damaged bytes, "
           "%" PRIu64 " moves of the clock, %" PRIu64 " keys expired, %" PRIu64
           " entries trimmed (%" PRIu64 " in a stream at most), %" PRIu64
           " scans in parts, %" PRIu64 " commands that the model lacks: %s\n",
           d.seed, d.sent, d.errors, d.blocked, d.woken, d.raw, d.moves,
           d.expired, d.trimmed, d.longest, d.scans, d.lacking,
           rc == 0 ? "all answers equal" : "DIFFERENT");
    return rc;
}
