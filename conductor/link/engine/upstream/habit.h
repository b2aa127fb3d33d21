/*
 * Whether an engine must be told at once what was read of its answers. One with
 * Nagle's algorithm keeps an event back until the one before is acknowledged,
 * and the kernel does that after 40 ms; to one without, each acknowledgement of
 * its own is a packet for nothing. One event now and then is left to the
 * kernel: an engine that sends the next one all the same does not wait. Pure.
 */
#ifndef CONDUCTOR_LINK_ENGINE_UPSTREAM_HABIT_H
#define CONDUCTOR_LINK_ENGINE_UPSTREAM_HABIT_H

#include <stdbool.h>
#include <stdint.h>

/* Between two such events; and how soon the next one must come. */
#define HABIT_EACH_US 10000000
#define HABIT_SOON_US 20000

/* Of an engine; all zero at first. */
struct habit {
    int64_t next_us; /* when it is tried again */
    bool sends_on;   /* as it did at the last try */
};

/*
 * Bytes of an answer were read, and more must come. Returns whether they are
 * acknowledged now.
 *   tried_us  of the answer, 0 at its begin: when it was tried with its bytes
 *             before these
 */
static inline bool habit_acknowledges(struct habit *h, int64_t *tried_us,
                                      int64_t now_us)
{
    if (*tried_us)
        h->sends_on = now_us - *tried_us < HABIT_SOON_US;
    *tried_us = now_us >= h->next_us ? now_us : 0;
    if (!*tried_us)
        return !h->sends_on;
    h->next_us = now_us + HABIT_EACH_US;
    return false;
}

#endif
