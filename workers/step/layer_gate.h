/* Where the compute thread waits for layers that the loop's thread brings: one
 * for each request whose prompt is loaded layer by layer. */
#ifndef WORKERS_STEP_LAYER_GATE_H
#define WORKERS_STEP_LAYER_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct layer_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_uint layers; /* the first so many are there; it only grows */
    bool failed;        /* under the lock: the others will not come */
};

/* Closed. Nothing in it fails on Linux. */
void layer_gate_init(struct layer_gate *g);

/* Nobody may wait. */
void layer_gate_fini(struct layer_gate *g);

/* Close it again for another try. Nobody may wait. */
void layer_gate_reset(struct layer_gate *g);

/* The first `layers` layers are there. */
void layer_gate_open(struct layer_gate *g, uint32_t layers);

/* The rest will not come. */
void layer_gate_fail(struct layer_gate *g);

/* How many layers are there. Any thread. */
uint32_t layer_gate_layers(const struct layer_gate *g);

/* Wait until `layer` is there: 0; or -EIO: it will not come; -ETIMEDOUT after
 * patience_us; -ECANCELED soon after *abort was set. */
[[nodiscard]] int layer_gate_wait(struct layer_gate *g, uint32_t layer,
                                  int64_t patience_us,
                                  const atomic_bool *abort);

#endif
