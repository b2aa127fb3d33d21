/*
 * Sends the same random commands to the model and to a real redis-server, and
 * compares the answers. The real one is started for it, on a socket in a new
 * folder, with a clock that the test moves (clock.c): so times, places in
 * streams and what has expired are equal, too.
 */
#ifndef TESTS_WORLD_REDIS_DIFFERS_H
#define TESTS_WORLD_REDIS_DIFFERS_H

#include <stddef.h>
#include <stdint.h>

struct differs {
    uint64_t seed;
    uint64_t commands; /* how many */
    /* Counts of the run: */
    uint64_t sent;    /* commands that both answered */
    uint64_t errors;  /* of them: answers that are errors */
    uint64_t blocked; /* reads that waited */
    uint64_t woken;   /* of them: answered with entries */
    uint64_t raw;     /* connections that sent damaged bytes */
    uint64_t lacking; /* commands that the model lacks, which were not sent */
    uint64_t moves;   /* of the clock */
    uint64_t expired; /* keys */
    uint64_t trimmed; /* entries of streams */
    uint64_t scans;   /* of sorted sets in parts */
    uint64_t longest; /* entries in a stream */
    /* The first difference, or why there is no real server. */
    char why[4096];
};

/* differs_run(d): does so. Returns 0: all answers are equal; 1: one differs,
 * see d->why; -1: no real server can be started, see d->why. */
int differs_run(struct differs *d);

#endif
