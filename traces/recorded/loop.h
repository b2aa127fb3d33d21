/*
 * A closed loop of recorded sessions: a fixed number of them in flight, each
 * turn a request that starts when the answers it waits for have ended and its
 * client has thought. Pure but for reading the file: the caller says when
 * answers end, on whatever clock.
 *
 * Sessions are taken in the order of the file, again from its begin with fresh
 * block ids once it is exhausted. One ends before its first prompt over
 * input_max_tokens; one that would end before its first turn is left out.
 * Memory: the sessions in flight, not the file.
 */
#ifndef TRACES_RECORDED_LOOP_H
#define TRACES_RECORDED_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "traces/trace.h"

#define CLOSED_LOOP_IN_FLIGHT_MAX 65536u
#define CLOSED_LOOP_THINK_MAX_US INT64_C(120000000)
#define CLOSED_LOOP_INPUT_MAX_TOKENS 131072u

struct closed_loop_options {
    const char *path;      /* borrowed; a regular file, plain or gzip */
    uint32_t block_tokens; /* of the requests; a multiple of the file's */
    uint32_t in_flight;    /* 1 to CLOSED_LOOP_IN_FLIGHT_MAX */
    int64_t think_max_us;  /* a longer pause is cut to this */
    uint32_t input_max_tokens;
    uint64_t sessions; /* that start; 0: any number */
    int64_t until_us; /* no turn starts at this time or later; 0: unlimited. One
                         of `sessions` and until_us must not be 0 */
};

struct closed_loop_counts {
    uint64_t started;
    uint64_t finished; /* all turns answered, by until_us */
    uint64_t lost;     /* a turn was refused or failed: no further one came */
    uint64_t turns;    /* that started */
};

struct closed_loop;

/*
 * Opens the file and begins the first sessions at time 0. Returns 0 with *loop
 * owned by the caller, or a negative errno with a message in `error` (size
 * bytes) and *loop untouched.
 */
[[nodiscard]] int closed_loop_open(const struct closed_loop_options *options,
                                   struct closed_loop **loop, char *error,
                                   size_t size);

/* Closes it; NULL is a no-op. */
void closed_loop_free(struct closed_loop *loop);

/* When the next turn starts; -1: none before an answer ends, or none at all.
 * O(1). */
int64_t closed_loop_due_us(const struct closed_loop *loop);

/*
 * Takes that turn: fills `request`, {0} or one filled before, whose arrival is
 * closed_loop_due_us(). Turns are numbered from 0 in the order in which they
 * are taken. Returns 1; 0: there is none; or -ENOMEM. O(blocks + sessions).
 */
[[nodiscard]] int closed_loop_next(struct closed_loop *loop,
                                   struct trace_request *request);

/*
 * The turn of that number has ended at `at_us`; `answered`: with its whole
 * answer. Turns end once, in the order of time. Returns 0, or a negative errno
 * if the next session cannot be read: see closed_loop_error(). O(turns of its
 * session + sessions).
 */
[[nodiscard]] int closed_loop_ended(struct closed_loop *loop, uint64_t number,
                                    int64_t at_us, bool answered);

/* "FILE:LINE: FIELD: VALUE: ..." of the last error; "" if there was none. */
const char *closed_loop_error(const struct closed_loop *loop);

struct closed_loop_counts closed_loop_counts(const struct closed_loop *loop);

#endif
