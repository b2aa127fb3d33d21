/*
 * Loops on a virtual clock, moved by a test: several processes can run in one
 * program, on the same clock. Timers, deferred calls and reports of watches
 * wait in one queue, ordered by time; entries of equal time are ordered by a
 * number that the test draws from its seed, so that the same seed gives the
 * same order of all calls.
 *
 * A timer runs a microsecond after it was started at the earliest, so calls
 * deferred before that come first, as in a loop of libevent. Descriptors are
 * numbers: the kernel knows none of them, and virtual_ready() reports them.
 * Signals do not come. A loop's random numbers follow from tie().
 */
#ifndef BASE_LOOP_VIRTUAL_H
#define BASE_LOOP_VIRTUAL_H

#include "base/loop/loop.h"

struct virtual_time;

/* Makes a virtual time that begins at now_us. tie(arg) draws random numbers.
 * Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct virtual_time *
virtual_time_new(int64_t now_us, uint32_t (*tie)(void *arg), void *arg);

/* Frees it, after its loops. NULL is a no-op. */
void virtual_time_free(struct virtual_time *time);

int64_t virtual_time_us(const struct virtual_time *time);

/* Makes the loop of one process, which loop_free() frees. Returns it owned, or
 * NULL: out of memory. */
[[nodiscard]] struct loop *virtual_loop_new(struct virtual_time *time);

/* Makes the first call that is due by until_us, at its time. Returns false if
 * there is none: it is until_us then. O(log n) of the calls that wait. */
bool virtual_time_step(struct virtual_time *time, int64_t until_us);

/* Sets the time of day of the loop's process to to_us, in us since 1970.
 * Before, it is VIRTUAL_WALL_US plus the virtual time. */
#define VIRTUAL_WALL_US INT64_C(1767225600000000) /* 2026-01-01 */
void virtual_loop_set_wall(struct loop *loop, int64_t to_us);

/* Stops a process until until_us: nothing of its loop is called before. A time
 * in the past lets it go on. */
void virtual_loop_pause(struct loop *loop, int64_t until_us);

/* Reports a descriptor to the loop's watches that wait for some of `what`, once
 * each. O(n) of all that waits. */
void virtual_ready(struct loop *loop, int fd, unsigned what);

#endif
