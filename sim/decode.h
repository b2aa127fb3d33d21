/* The decode batch of a node, step by step. */
#ifndef SIM_DECODE_H
#define SIM_DECODE_H

#include "sim/internal.h"

/* Makes the batch of a node. Returns 0 or -ENOMEM. */
[[nodiscard]] int sim_batch_init(struct sim_node *node);

/* Frees it. */
void sim_batch_fini(struct sim_batch *batch);

/* A request's KV begins to come to its decode node. The node has memory for it
 * at once or calls sim_push_granted() later: first come, first served, each
 * with all that it will ever need, as in a worker. */
void sim_decode_ask(struct sim *sim, struct sim_request *request);

/* A request's first token has been sent: its conductor learns what came of the
 * forecast, once. */
void sim_first_token(struct sim_request *request);

/* A request's KV is all on its decode node. */
void sim_decode_add(struct sim *sim, struct sim_request *request);

/* Those who are ready join, as many as there are places. */
void sim_decode_join(struct sim *sim, struct sim_node *node);

/* The batch is settled for the step or run that begins now. */
void sim_decode_begin(const struct sim *sim, struct sim_batch *batch);

/* Steps of a node's run under way that have ended by now; those of the last one
 * are among batch.step only when it is over. */
uint64_t sim_decode_steps_ended(const struct sim *sim,
                                const struct sim_node *node);

/* The time of the batch's next `steps` steps. */
int64_t sim_decode_run_us(const struct sim_batch *batch, uint64_t steps);

/* Steps until the first request of the batch has its last token. */
uint64_t sim_decode_steps_to_finish(const struct sim_batch *batch);

/* The least number of steps that take at least `us`. */
uint64_t sim_decode_steps_in(const struct sim_batch *batch, int64_t us);

/* The memory that a request's decode takes on a node beside the full blocks of
 * its prompt, which are cached blocks. */
int64_t sim_decode_tokens(const struct sim *sim, const struct sim_node *node,
                          const struct sim_request *request);

/* The run under way ends now; `extra_us` of it were spent on prefill chunks, in
 * its one step. Requests that have all their tokens end. */
void sim_decode_advance(struct sim *sim, struct sim_node *node,
                        int64_t extra_us);

#endif
