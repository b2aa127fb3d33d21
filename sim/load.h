/*
 * Loads what a decision planned. Each source of a plan sends its blocks from
 * the highest one down, while the request queues and computes from the front. A
 * node's tier serves reads one after another, at its rate, in the order of the
 * decisions; blocks from another node cross the links after that. Internal to
 * sim.
 *
 * Invariants: a source that reads or waits to read is in the list of its node
 * and tier, of which the first one reads; a load lives until it is over and its
 * request no longer uses it.
 */
#ifndef SIM_LOAD_H
#define SIM_LOAD_H

#include <sys/queue.h>

#include "conductor/core/schedule/schedule.h"

struct sim;
struct sim_load;
struct sim_node;
struct sim_request;
struct links_end;

/* One source of a load. */
struct sim_source {
    TAILQ_ENTRY(sim_source) link; /* of those who read a tier of its node */
    struct sim_load *load;
    uint32_t holder;  /* node that has the blocks */
    uint32_t index;   /* in the plan */
    uint32_t tier;    /* as planned; other nodes read each block from the tier
                         where it is */
    uint32_t reading; /* the tier that it is in the list of, or BLOCK_TIERS */
    uint32_t n_asked; /* blocks that are read or on the way or here */
    uint32_t n_here;
    bool over; /* it asks for no more */
    int64_t started_us;
    int64_t asked_us; /* for the last of n_asked */
};

TAILQ_HEAD(sim_source_list, sim_source);

/* The state of loading a request's blocks. */
struct sim_load {
    TAILQ_ENTRY(sim_load) every;
    struct sim_request *request; /* NULL: it has let go */
    struct load_plan plan;
    struct sim_source sources[SCHEDULE_SOURCES_MAX];
    size_t n_sources;
    uint32_t floor;    /* blocks below are computed */
    uint32_t n_events; /* to come that know of it */
    bool over;         /* nothing more comes */
};

TAILQ_HEAD(sim_load_list, sim_load);

/* Begins the loads of a request on a node; r->load is NULL if there are none.
 * Returns 0 or -ENOMEM. */
[[nodiscard]] int sim_load_begin(struct sim *sim, struct sim_request *request,
                                 const struct schedule_decision *decision);

/* The first block from which on all planned blocks have come. */
uint32_t sim_load_met(const struct sim_load *load);

/* Blocks below this one are computed now: none of them is asked for. */
void sim_load_claim(struct sim *sim, struct sim_load *load, uint32_t block);

/* How long the rest takes at full rates, with nothing else in front. */
int64_t sim_load_left_us(const struct sim *sim, const struct sim_load *load);

/* The source that was planned for a block; NULL: none. */
const struct sim_source *sim_load_source(const struct sim_load *load,
                                         uint32_t block);

/* The request uses no more of its load; without a load a no-op. */
void sim_load_let_go(struct sim *sim, struct sim_request *request);

/* A block has been read from a tier; a block has come over the links; the
 * planned begin of a load by layer is now. */
void sim_load_read(struct sim *sim, const struct links_end *end);
void sim_load_sent(struct sim *sim, const struct links_end *end);
void sim_load_due(struct sim *sim, const struct links_end *end);

/* Frees all loads, at the end. */
void sim_load_fini(struct sim *sim);

#endif
