/*
 * Loads the blocks that a decision planned. Each source of a plan sends its
 * blocks from the highest one down, while the request queues and computes from
 * the front. A node's tier serves reads one by one, at its rate, in the order
 * of the decisions; blocks for another node then cross the links. Internal to
 * sim.
 *
 * Invariants: a source that reads, or waits to read, is in the list of its
 * node's tier, and the first in the list reads; a load lives until it is over
 * and its request no longer uses it.
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
    TAILQ_ENTRY(sim_source) link; /* in a tier's readers */
    struct sim_load *load;
    uint32_t holder;  /* node that has the blocks */
    uint32_t index;   /* index in the plan */
    uint32_t tier;    /* planned tier; a block is read from its present tier */
    uint32_t reading; /* tier whose readers it is among; BLOCK_TIERS = none */
    uint32_t n_asked; /* blocks being read, on the way or here */
    uint32_t n_here;
    bool over; /* asks for no more blocks */
    int64_t started_us;
    int64_t asked_us; /* when the last of n_asked was asked for */
};

TAILQ_HEAD(sim_source_list, sim_source);

/* The load of one request. */
struct sim_load {
    TAILQ_ENTRY(sim_load) every;
    struct sim_request *request; /* NULL = no longer used */
    struct load_plan plan;
    struct sim_source sources[SCHEDULE_SOURCES_MAX];
    size_t n_sources;
    uint32_t floor;    /* blocks below this one are computed */
    uint32_t n_events; /* pending events that point to it */
    bool over;         /* no more blocks come */
};

TAILQ_HEAD(sim_load_list, sim_load);

/* Begins the loads of a request; request->load stays NULL if there are none.
 * Returns 0 or -ENOMEM. */
[[nodiscard]] int sim_load_begin(struct sim *sim, struct sim_request *request,
                                 const struct schedule_decision *decision);

/* Returns the first block from which on all planned blocks have come. */
uint32_t sim_load_met(const struct sim_load *load);

/* Gives blocks below `block` to computing: no source asks for them any more. */
void sim_load_claim(struct sim *sim, struct sim_load *load, uint32_t block);

/* Returns the time (us) of the rest of the load at full rates, with nothing
 * queued ahead of it. */
int64_t sim_load_left_us(const struct sim *sim, const struct sim_load *load);

/* Returns the source planned for a block; NULL = none. */
const struct sim_source *sim_load_source(const struct sim_load *load,
                                         uint32_t block);

/* Ends the request's use of its load; no-op without a load. */
void sim_load_let_go(struct sim *sim, struct sim_request *request);

/* Handle the end of an event: a block's read from a tier; its arrival over the
 * links; the planned begin of a load by layer. */
void sim_load_read(struct sim *sim, const struct links_end *end);
void sim_load_sent(struct sim *sim, const struct links_end *end);
void sim_load_due(struct sim *sim, const struct links_end *end);

/* Frees all loads at the end of the simulation. */
void sim_load_fini(struct sim *sim);

#endif
