/* The decode batch of a node, step by step. */
#ifndef SIM_DECODE_H
#define SIM_DECODE_H

#include "sim/internal.h"

/* Creates the batch of a node. Returns 0 or -ENOMEM. */
[[nodiscard]] int sim_batch_init(struct sim_node *node);

/* Frees what the batch owns. */
void sim_batch_fini(struct sim_batch *batch);

/* Asks the decode node for memory before a request's KV comes. The node grants
 * it at once, or later with sim_push_granted(): first come, first served,
 * always all that the request will ever need, as in a worker. */
void sim_decode_ask(struct sim *sim, struct sim_request *request);

/* Reports the actual TTFT of a request's forecast to its conductor, once. */
void sim_first_token(struct sim_request *request);

/* Queues a request for its decode node's batch: all of its KV is there. */
void sim_decode_add(struct sim *sim, struct sim_request *request);

/* Moves ready requests to the batch, up to decode_max_batch. */
void sim_decode_join(struct sim *sim, struct sim_node *node);

/* Fixes the batch's error for the step or run that begins now. */
void sim_decode_begin(const struct sim *sim, struct sim_batch *batch);

/* Returns how many steps of a node's current run have ended by now. batch.step
 * counts them only when the run is over. */
uint64_t sim_decode_steps_ended(const struct sim *sim,
                                const struct sim_node *node);

/* Returns the time (us) of the batch's next `steps` steps. */
int64_t sim_decode_run_us(const struct sim_batch *batch, uint64_t steps);

/* Returns the number of steps until the first request of the batch ends. */
uint64_t sim_decode_steps_to_finish(const struct sim_batch *batch);

/* Returns the smallest number of steps that take at least `us`. */
uint64_t sim_decode_steps_in(const struct sim_batch *batch, int64_t us);

/* Returns the memory (tokens) of a request's decode on a node, without the full
 * blocks of its prompt, which are cached blocks. */
int64_t sim_decode_tokens(const struct sim *sim, const struct sim_node *node,
                          const struct sim_request *request);

/* Ends the current run now. extra_us: time of its only step that prefill chunks
 * took. Requests with all their tokens end. */
void sim_decode_advance(struct sim *sim, struct sim_node *node,
                        int64_t extra_us);

#endif
