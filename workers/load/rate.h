/* The rate at which a source sends. Pure.
 *
 * The rate is the bytes that came, divided by the time in which pieces were
 * outstanding. That time begins when a piece is asked for while no other is
 * outstanding, and ends when the last one comes. Finished pieces are counted
 * together when the next one is asked for: the time between pieces found in one
 * turn of the loop means nothing. */
#ifndef WORKERS_LOAD_RATE_H
#define WORKERS_LOAD_RATE_H

#include <stdint.h>

struct load_rate_config {
    int64_t memory_us; /* busy time over which older samples lose weight */
    int64_t least_us;  /* a sample has at least this time or these bytes */
    uint64_t least_bytes;
    double most_slower; /* a sample counts as at most this many times slower
                           than the rate so far: the loop may have looked late;
                           0 = unlimited */
};

/* Begins as {.config = ...}; the other fields are private. */
struct load_rate {
    const struct load_rate_config *config; /* borrowed */
    double us;                             /* smoothed busy time of samples */
    double bytes;                          /* smoothed bytes of samples */
    uint32_t n_open;                       /* pieces outstanding */
    int64_t since_us;                      /* begin of the present window */
    int64_t end_us;                        /* arrival of the last piece */
    uint64_t window_bytes;                 /* bytes in no sample yet */
    int64_t kept_us; /* time of earlier windows in no sample yet */
};

/* Notes that a piece is asked for. */
void load_rate_begin(struct load_rate *r, int64_t now_us);

/* Notes that a piece came with `bytes`; 0 = it did not come. */
void load_rate_end(struct load_rate *r, int64_t now_us, uint64_t bytes);

/* Returns the time (us) of one byte, including bytes in no sample yet; 0 =
 * unknown. */
double load_rate_us_per_byte(const struct load_rate *r);

/* Returns bytes per second, from samples only; 0 = no sample yet. */
double load_rate_bytes_per_s(const struct load_rate *r);

#endif
