/*
 * Several conductors in front of the same nodes. Each has its own view: pool,
 * scheduler, waiting requests. See DESIGN.md. Internal to sim.
 */
#ifndef SIM_VIEWS_VIEWS_H
#define SIM_VIEWS_VIEWS_H

#include "sim/internal.h"

/* make.c: creates all views, with pools without nodes. Returns 0 or -ENOMEM. */
[[nodiscard]] int sim_views_init(struct sim *sim);

/* make.c: adds a node to all pools, and sets its id. Returns 0, -ENOMEM or
 * -ENOSPC. */
[[nodiscard]] int sim_views_add_node(struct sim *sim, struct sim_node *node);

/* make.c: creates the schedulers, after nodes and indexes. Returns 0; -ENOMEM;
 * -EINVAL with a message in sim->err: an option of the policy is for one
 * conductor only. */
[[nodiscard]] int sim_views_start(struct sim *sim);

/* make.c: frees the views. */
void sim_views_fini(struct sim *sim);

/* make.c: fails the simulation if a view has work, memory or links booked. Call
 * it when everything has ended. */
void sim_views_check(struct sim *sim);

/* tell.c: returns the view of the next request. */
struct sim_view *sim_views_turn(struct sim *sim);

/* tell.c: returns the number of requests waiting for room, in all views. */
uint64_t sim_views_waiting(const struct sim *sim);

/* tell.c: tells a view the steps of a node's batch since the simulation began.
 */
void sim_views_steps(struct sim_view *view, const struct sim_node *node,
                     uint64_t steps);

/* tell.c: report an event of a request: to its own conductor now, to the others
 * as news. */
void sim_views_asked(struct sim *sim, const struct sim_request *request,
                     const struct schedule_decision *decision);
void sim_views_sent(struct sim *sim, const struct sim_request *request,
                    const struct schedule_decision *decision);
void sim_views_begun(struct sim *sim, const struct sim_request *request);
void sim_views_comes(struct sim *sim, const struct sim_request *request);
void sim_views_done(struct sim *sim, struct sim_request *request,
                    int64_t observed_us);
void sim_views_decodes(struct sim *sim, const struct sim_request *request);
void sim_views_ended(struct sim *sim, const struct sim_request *request);
void sim_views_answered(struct sim *sim, struct sim_request *request);
void sim_views_loaded(struct sim *sim, const struct sim_request *request,
                      const struct observation_load *load);

/* tell.c: delivers the news due now to all views but its sender's. */
void sim_views_hear(struct sim *sim);

#endif
