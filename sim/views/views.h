/*
 * Several conductors in front of the same nodes, each with a view of its own:
 * pool, scheduler, waiting requests. See DESIGN.md. Internal to sim.
 */
#ifndef SIM_VIEWS_VIEWS_H
#define SIM_VIEWS_VIEWS_H

#include "sim/internal.h"

/* make.c: makes the pools of all views, without nodes. Returns 0 or -ENOMEM. */
[[nodiscard]] int sim_views_init(struct sim *sim);

/* make.c: adds a node to all of them, and writes its id. Returns 0, -ENOMEM or
 * -ENOSPC. */
[[nodiscard]] int sim_views_add_node(struct sim *sim, struct sim_node *node);

/* make.c: makes their schedulers, once nodes and indexes are there. Returns 0;
 * -ENOMEM; -EINVAL: the policy's options ask for what one conductor alone
 * does, and sim->err says so. */
[[nodiscard]] int sim_views_start(struct sim *sim);

/* make.c: frees them. */
void sim_views_fini(struct sim *sim);

/* make.c: everything has ended: fails the simulation if a view has work, memory
 * or links booked. */
void sim_views_check(struct sim *sim);

/* tell.c: whose the request is that arrives now. */
struct sim_view *sim_views_turn(struct sim *sim);

/* tell.c: requests that wait for room, in all views. */
uint64_t sim_views_waiting(const struct sim *sim);

/* tell.c: a view hears how many steps a node's batch has taken since the
 * simulation began. */
void sim_views_steps(struct sim_view *view, const struct sim_node *node,
                     uint64_t steps);

/* tell.c: what has happened to a request: its own conductor hears of it now,
 * the others as news. */
void sim_views_asked(struct sim *sim, const struct sim_request *request,
                     const struct schedule_decision *decision);
void sim_views_sent(struct sim *sim, const struct sim_request *request,
                    const struct schedule_decision *decision);
void sim_views_ready(struct sim *sim, const struct sim_request *request);
void sim_views_begun(struct sim *sim, const struct sim_request *request);
void sim_views_comes(struct sim *sim, const struct sim_request *request);
void sim_views_done(struct sim *sim, struct sim_request *request,
                    int64_t observed_us);
void sim_views_decodes(struct sim *sim, const struct sim_request *request);
void sim_views_ended(struct sim *sim, const struct sim_request *request);
void sim_views_answered(struct sim *sim, struct sim_request *request);
void sim_views_loaded(struct sim *sim, const struct sim_request *request,
                      const struct observation_load *load);

/* tell.c: news is due: all but who told it hear of it. */
void sim_views_hear(struct sim *sim);

#endif
