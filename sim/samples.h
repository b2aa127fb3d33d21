/* What nodes do over time. Internal to sim. */
#ifndef SIM_SAMPLES_H
#define SIM_SAMPLES_H

#include <stdint.h>

struct sim;
struct sim_node;

/* Time spent in steps. */
struct sim_spent {
    int64_t busy_us, prefill_us;
};

/* Takes the samples that are due up to now. Called before an event, when
 * nothing has changed since the one before. O(nodes) each. */
void sim_samples_take(struct sim *sim, int64_t now_us);

/* The node's step under way ends now. */
void sim_samples_step_ended(struct sim *sim, struct sim_node *node);

#endif
