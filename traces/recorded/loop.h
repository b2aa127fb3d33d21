/*
 * A closed loop of recorded sessions: a fixed number is in flight. A turn is a
 * request that starts when the answers it waits for have ended and the client's
 * pause is over. Pure but for reading the file: the caller reports the ends of
 * answers, on any clock.
 *
 * Sessions are taken in the file's order, and then again with fresh block ids.
 * A session ends before its first prompt over input_max_tokens, and is skipped
 * if this is its first one. Memory holds the sessions in flight, not the file.
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
    int64_t think_max_us;  /* upper bound of a client's pause */
    uint32_t input_max_tokens;
    uint64_t sessions; /* most sessions that start; 0 = unlimited */
    int64_t until_us;  /* turns start only before this time; 0 = unlimited.
                          `sessions` and until_us must not both be 0 */
};

struct closed_loop_counts {
    uint64_t started;
    uint64_t finished; /* all turns answered, by until_us */
    uint64_t lost;     /* a turn failed, which ended the session */
    uint64_t turns;    /* turns started */
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

/* Closes a loop; NULL is a no-op. */
void closed_loop_free(struct closed_loop *loop);

/* Returns when the next turn starts; -1 = not before an answer ends, or never.
 * O(1). */
int64_t closed_loop_due_us(const struct closed_loop *loop);

/*
 * Takes the turn due at closed_loop_due_us(), its arrival: fills `request`,
 * {0} or one filled before. Turns are numbered from 0 in the order in which
 * they are taken. Returns 1, 0 if no turn is due, or -ENOMEM. O(blocks +
 * sessions).
 */
[[nodiscard]] int closed_loop_next(struct closed_loop *loop,
                                   struct trace_request *request);

/*
 * Reports the end of turn `number` at `at_us`; `answered`: its answer was
 * complete. Call it once per turn, in order of time. Returns 0, or a negative
 * errno if the next session cannot be read: see closed_loop_error(). O(turns of
 * its session + sessions).
 */
[[nodiscard]] int closed_loop_ended(struct closed_loop *loop, uint64_t number,
                                    int64_t at_us, bool answered);

/* Returns "FILE:LINE: FIELD: VALUE: ..." of the last error; "" = none. */
const char *closed_loop_error(const struct closed_loop *loop);

struct closed_loop_counts closed_loop_counts(const struct closed_loop *loop);

#endif
