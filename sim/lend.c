/* Idle nodes that compute stages of one long prompt: lent by core's scheduler,
 * carried out by workers/pipeline. All stages take the same time. A chunk
 * passes each stage in core's expected share of its time; the prompt is done
 * when its last chunk has left the last stage. A lent node begins no prefill of
 * its own, except as a group's leader; a worker would take turns. */
#include "sim/internal.h"

static struct sim_node *node_of(struct sim *sim, uint32_t id)
{
    return &sim->nodes[pool_get(sim->views[0].pool, id)->slot];
}

void sim_lend(struct sim *sim, struct sim_request *r,
              const struct schedule_lent *lent)
{
    r->lent = *lent;
    sim->summary.lent += lent->n > 0;
    for (uint32_t i = 0; i < lent->n; i++)
        node_of(sim, lent->members[i])->n_lent++;
}

void sim_give_back(struct sim *sim, struct sim_request *r)
{
    for (uint32_t i = 0; i < r->lent.n; i++) {
        struct sim_node *node = node_of(sim, r->lent.members[i]);

        node->n_lent--;
        sim_mark_node(sim, node);
    }
    r->lent.n = 0;
}

uint32_t sim_lent_chunk(const struct sim_request *r, uint32_t tokens)
{
    return r->lent.n > 0 && tokens > SCHEDULE_CHUNK_TOKENS
               ? SCHEDULE_CHUNK_TOKENS
               : tokens;
}

int64_t sim_lent_us(const struct sim_request *r, int64_t us)
{
    return r->lent.n > 0 ? (int64_t)((double)us * r->lent.share + 0.5) : us;
}
