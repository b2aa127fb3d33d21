/*
 * The cases of a sweep. The k-th depends on the description, the sweep's seed
 * and k alone, so that one can be had again without the others.
 */
#ifndef TOOLS_REPLAY_STUDY_SWEEP_DRAW_H
#define TOOLS_REPLAY_STUDY_SWEEP_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/study/sweep/description.h"
#include "tools/replay/study/sweep/work.h"

/* What was drawn. */
struct sweep_draw {
    uint64_t number; /* from 0 */
    uint64_t seed;   /* of what is random in it */
    const struct sweep_hardware *hardware;
    const struct sweep_trace *trace;
    uint64_t requests;
    uint32_t nodes;
    bool aggregated, disks;
    double balance;
    double slow_nodes; /* share of the nodes; 0: all are equal */
    double slow_speed;
    double link_gbps;
    double load;
    double slo_ttft_s;
    double slo_tbt_s;                               /* 0: none */
    double prefill_error_sigma, decode_error_sigma; /* 0: none */
    uint32_t max_tokens;                            /* asked for; 0: exact */
    double mixed_nodes; /* share of the nodes; 0: all are of one kind */
    double mixed_cost, mixed_memory;
    double cache; /* of all nodes, over what the trace touches; 0: as the
                     hardware has */
};

/* A case that can be simulated. */
struct sweep_case {
    struct sweep_draw draw;
    struct cluster cluster;
    double speed; /* of the trace, for the load */
    double rate;  /* at which sessions are generated for it, in requests per
                     second; 0: the workload's own */
    double load;  /* what it is; the load drawn, within 3 % where the rate was
                     searched */
};

/* Draws the case of that number. Borrows from `d`. O(1). */
void sweep_draw(const struct sweep_description *d, uint64_t seed,
                uint64_t number, struct sweep_draw *draw);

/* Where the requests of a case come from with its i-th seed: a generated trace
 * is another one, a file has requests of one timestamp in another order from
 * the second seed on. Borrows from the draw. `rate` as in a case. */
struct replay_stream_options sweep_source(const struct sweep_draw *draw,
                                          uint64_t i, double rate);

/*
 * Makes a case of what was drawn: reads its trace, some times over where the
 * load is a matter of when sessions start.
 *   error  a message of one line.
 * Returns 0 or a negative errno.
 */
[[nodiscard]] int sweep_case_make(const struct sweep_draw *draw,
                                  struct sweep_case *made,
                                  char error[SWEEP_ERROR_BYTES]);

#endif
