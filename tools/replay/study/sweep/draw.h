/*
 * Draws the cases of a sweep. The k-th case depends on the description, the
 * sweep's seed and k alone, so that it can be repeated by itself.
 */
#ifndef TOOLS_REPLAY_STUDY_SWEEP_DRAW_H
#define TOOLS_REPLAY_STUDY_SWEEP_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/study/sweep/description.h"
#include "tools/replay/study/sweep/work.h"

/* The parameters drawn for a case. */
struct sweep_draw {
    uint64_t number; /* from 0 */
    uint64_t seed;   /* of its random numbers */
    const struct sweep_hardware *hardware;
    const struct sweep_trace *trace;
    uint64_t requests;
    uint32_t nodes;
    bool aggregated, disks;
    double balance;
    double slow_nodes; /* share of nodes; 0 = all equal */
    double slow_speed;
    double link_gbps;
    double load;
    double slo_ttft_s;
    double slo_tbt_s;                               /* 0 = none */
    double prefill_error_sigma, decode_error_sigma; /* 0 = none */
    uint32_t max_tokens;                            /* requested; 0 = the exact
                                                       output */
    double mixed_nodes; /* share of nodes; 0 = one kind only */
    double mixed_cost, mixed_memory;
    double cache; /* of all nodes / tokens touched; 0 = the hardware's */
};

/* A case ready to simulate. */
struct sweep_case {
    struct sweep_draw draw;
    struct cluster cluster;
    double speed; /* of the trace, to reach the load */
    double rate;  /* of generated sessions, in requests per second; 0 = the
                     workload's own */
    double load;  /* actual load: the one drawn, within 3 % if the rate was
                     searched */
};

/* Draws case `number`. Borrows from `d`. O(1). */
void sweep_draw(const struct sweep_description *d, uint64_t seed,
                uint64_t number, struct sweep_draw *draw);

/* Returns the source of a case's requests for its i-th seed: another generated
 * trace, or for i > 0 the file with another order of equal timestamps. Borrows
 * from the draw. `rate` as in a case. */
struct replay_stream_options sweep_source(const struct sweep_draw *draw,
                                          uint64_t i, double rate);

/*
 * Makes a case from a draw: reads its trace, several times if the load depends
 * on when sessions start.
 *   error  a message of one line.
 * Returns 0 or a negative errno.
 */
[[nodiscard]] int sweep_case_make(const struct sweep_draw *draw,
                                  struct sweep_case *made,
                                  char error[SWEEP_ERROR_BYTES]);

#endif
