/* How fast a source sends. Pure.
 *
 * The rate is the bytes that came, over the time in which pieces were
 * outstanding: from the first piece that was asked for while no other was, to
 * the last that came. Answers are counted when more is asked for, all that came
 * until then at once: several answers that one turn of the loop finds together
 * say nothing about the time between them. */
#ifndef WORKERS_LOAD_RATE_H
#define WORKERS_LOAD_RATE_H

#include <stdint.h>

struct load_rate_config {
    int64_t memory_us; /* busy time after which something counts little */
    int64_t least_us;  /* less than both of these together is no sample */
    uint64_t least_bytes;
    double most_slower; /* a sample that seems more times slower than this
                           counts as if it were this: a late look is not a slow
                           source; 0: no limit */
};

/* Begins as {.config = ...}; the fields are its own. */
struct load_rate {
    const struct load_rate_config *config; /* borrowed */
    double us;                             /* smoothed: in so much time */
    double bytes;                          /* came so much */
    uint32_t n_open;                       /* pieces asked for */
    int64_t since_us;                      /* what follows was not taken in */
    int64_t end_us;                        /* when the last one came */
    uint64_t window_bytes;                 /* in between */
    int64_t kept_us;                       /* of windows that were too short */
};

/* A piece is asked for. */
void load_rate_begin(struct load_rate *r, int64_t now_us);

/* One came, with so many bytes; 0: it did not come. */
void load_rate_end(struct load_rate *r, int64_t now_us, uint64_t bytes);

/* Microseconds that a byte takes, by all that came; 0: not known. */
double load_rate_us_per_byte(const struct load_rate *r);

/* Bytes a second; 0: there was no sample yet. */
double load_rate_bytes_per_s(const struct load_rate *r);

#endif
