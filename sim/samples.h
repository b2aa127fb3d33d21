/* Samples of the nodes over time. Internal to sim. */
#ifndef SIM_SAMPLES_H
#define SIM_SAMPLES_H

#include <stdint.h>

struct sim;
struct sim_node;

/* Time spent in steps, in slow us: all steps; steps with prefill chunks. */
struct sim_spent {
    int64_t busy_us, prefill_us;
};

/* Takes the samples due up to now. Called before each event, while the state is
 * still the one after the previous event. O(nodes) each. */
void sim_samples_take(struct sim *sim, int64_t now_us);

/* Counts the time of the node's step that ends now. */
void sim_samples_step_ended(struct sim *sim, struct sim_node *node);

#endif
