/*
 * The step loop of a node. A step computes one token of every decode and as
 * many prefill tokens as its budget leaves; while there is nothing to prefill,
 * decode steps run on as one event until the batch changes.
 */
#include <errno.h>

#include "sim/decode.h"
#include "sim/internal.h"

/* Polls again later: the queue's order may wait for a prefill. */
static void look_again(struct sim *sim, struct sim_node *node)
{
    int64_t at_us = queue_look_us(sim->order, node->queue.items, node->queue.n,
                                  sim->now_us);

    if (at_us != INT64_MAX &&
        links_delay(sim->links, SIM_FLOW_LOOK, node, sim->now_us, at_us) < 0)
        sim_fail(sim, -ENOMEM, "out of memory");
}

static void begin_step(struct sim *sim, struct sim_node *node)
{
    struct sim_batch *b = &node->batch;
    int64_t us = 0;

    sim_unmark_node(sim, node); /* this step handles the mark */
    node->computes = false;
    if ((node->role & ROLE_DECODE) != 0)
        sim_decode_join(sim, node);
    if ((node->role & ROLE_PREFILL) != 0)
        us = sim_prefill_form(sim, node, &node->computes);
    if (!node->computes && node->n_lent == 0)
        look_again(sim, node);
    node->in_step = node->computes || b->n > 0;
    if (!node->in_step)
        return;
    b->run_start_us = sim->now_us;
    sim_decode_begin(sim, b);
    b->run_steps =
        node->computes || b->n == 0 ? 1 : sim_decode_steps_to_finish(b);
    if (b->n > 0)
        us = sim_sum_us(us, sim_decode_run_us(b, b->run_steps)) -
             cost_model_mixed_saves_us(&node->has.cost, us);
    heap_set(&sim->heap, node->index, SIM_NODE_RANK, sim->now_us + us);
}

/* Ends a run of decode steps with the current step, because there is work for
 * the next one. */
static void cut_run(struct sim *sim, struct sim_node *node)
{
    struct sim_batch *b = &node->batch;
    int64_t spent_us = sim->now_us - b->run_start_us;

    if (node->computes || b->run_steps == 1)
        return;
    b->run_steps = sim_decode_steps_in(b, spent_us);
    heap_set(&sim->heap, node->index, SIM_NODE_RANK,
             b->run_start_us + sim_decode_run_us(b, b->run_steps));
}

void sim_node_poke(struct sim *sim, struct sim_node *node)
{
    bool joins = !TAILQ_EMPTY(&node->batch.ready) &&
                 node->batch.n < node->has.decode_max_batch;

    if (!node->in_step)
        begin_step(sim, node);
    else if (joins || node->queue.n > 0)
        cut_run(sim, node);
}

void sim_node_step_ended(struct sim *sim, struct sim_node *node)
{
    struct sim_batch *b = &node->batch;
    int64_t step_us = sim->now_us - b->run_start_us;

    heap_remove(&sim->heap, node->index);
    sim_samples_step_ended(sim, node);
    if (b->n > 0)
        sim_decode_advance(
            sim, node, node->computes ? step_us - sim_decode_run_us(b, 1) : 0);
    if (node->computes)
        sim_prefill_advance(sim, node);
    node->in_step = false;
    begin_step(sim, node);
}
