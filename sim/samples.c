/* See samples.h. */
#include "sim/samples.h"

#include "sim/internal.h"

/* Returns the time in steps until at_us, the current step included. */
static struct sim_spent spent_until(const struct sim_node *node, int64_t at_us)
{
    struct sim_spent spent = node->spent;
    int64_t now_us = node->in_step ? at_us - node->batch.run_start_us : 0;

    spent.busy_us += now_us;
    spent.prefill_us += node->computes ? now_us : 0;
    return spent;
}

static void sample(struct sim *sim, struct sim_node *node, int64_t at_us)
{
    struct sim_spent spent = spent_until(node, at_us);
    struct sim_sample s = {
        .at_us = sim_real_us(at_us),
        .node = node->index,
        .role = node->role,
        .busy_us = sim_real_us(spent.busy_us - node->sampled.busy_us),
        .prefill_us = sim_real_us(spent.prefill_us - node->sampled.prefill_us),
        .waiting = node->queue.n,
        .prefills = node->n_active,
        .decodes = node->batch.n,
        .decode_kv_tokens = node->batch.kv_tokens,
    };
    const struct sim_request *r;

    TAILQ_FOREACH(r, &node->batch.ready, link)
    s.decodes_waiting++;
    node->sampled = spent;
    sim->io.sample(sim->io.arg, &s);
}

void sim_samples_take(struct sim *sim, int64_t now_us)
{
    int64_t interval_us = sim->config.sample_interval_us * SIM_SLOWDOWN;

    if (interval_us == 0 || !sim->io.sample)
        return;
    for (; sim->next_sample_us + interval_us <= now_us;
         sim->next_sample_us += interval_us)
        for (uint32_t i = 0; i < sim->n_nodes; i++)
            sample(sim, &sim->nodes[i], sim->next_sample_us + interval_us);
}

void sim_samples_step_ended(struct sim *sim, struct sim_node *node)
{
    int64_t us = sim->now_us - node->batch.run_start_us;

    node->spent.busy_us += us;
    node->spent.prefill_us += node->computes ? us : 0;
}
