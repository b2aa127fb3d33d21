/* A gate at which the compute thread waits for layers loaded on the loop's
 * thread: one for each request that is loaded layer by layer. */
#ifndef WORKERS_STEP_LAYER_GATE_H
#define WORKERS_STEP_LAYER_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct layer_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_uint layers; /* number of leading layers that came; only grows */
    bool failed;        /* guarded by `lock`: no more layers will come */
};

/* Makes a closed gate. None of its calls can fail on Linux. */
void layer_gate_init(struct layer_gate *g);

/* Destroys a gate. No thread may wait at it. */
void layer_gate_fini(struct layer_gate *g);

/* Closes a gate again for another try. No thread may wait at it. */
void layer_gate_reset(struct layer_gate *g);

/* Lets the first `layers` layers pass: they came. */
void layer_gate_open(struct layer_gate *g, uint32_t layers);

/* Makes waits for all other layers fail: they will not come. */
void layer_gate_fail(struct layer_gate *g);

/* Returns how many leading layers came. Any thread. */
uint32_t layer_gate_layers(const struct layer_gate *g);

/* Waits for `layer`. Returns 0 when it came; -EIO: it will not come; -ETIMEDOUT
 * after patience_us; -ECANCELED soon after *abort was set. */
[[nodiscard]] int layer_gate_wait(struct layer_gate *g, uint32_t layer,
                                  int64_t patience_us,
                                  const atomic_bool *abort);

#endif
