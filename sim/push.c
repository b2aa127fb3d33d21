/* Pushes of KV to a decode node, once it has memory for the request. */
#include "sim/copies.h"
#include "sim/internal.h"

void sim_push(struct sim *sim, struct sim_request *r, double bytes)
{
    int rc;

    if (!r->push.granted || r->push.under_way) {
        r->push.held_bytes += bytes;
        return;
    }
    rc = links_start(sim->links, r->record.prefill_node, r->record.decode_node,
                     bytes, SIM_FLOW_PUSH, r, sim->now_us);
    if (rc < 0) {
        sim_fail(sim, rc, "out of memory");
        return;
    }
    r->push.under_way = true;
    sim->summary.pushes.bytes += (uint64_t)bytes;
}

bool sim_push_granted(struct sim *sim, struct sim_request *r)
{
    double bytes = r->push.held_bytes;

    r->push.held_bytes = 0.0;
    if (bytes > 0.0)
        sim_push(sim, r, bytes);
    return bytes > 0.0 || !r->push.nothing || !r->prefill.done;
}

void sim_push_begin(struct sim *sim, struct sim_request *r)
{
    struct sim_node *node = &sim->nodes[r->record.decode_node];
    int64_t load_us;

    if (sim->cluster.coupled_nodes == 0)
        return; /* native workers push all KV */
    r->push.there_tokens =
        sim_copies_match(sim, node, r, 0, &load_us) * sim->cluster.block_tokens;
}

uint32_t sim_push_left(struct sim_request *r, uint32_t tokens)
{
    uint32_t there =
        r->push.there_tokens < tokens ? r->push.there_tokens : tokens;

    r->push.there_tokens -= there;
    return tokens - there;
}

void sim_push_learn(struct sim *sim)
{
    double us, token_us;

    learned_terms(&sim->pushes, &us, &token_us);
    sim->push[0] = us * SIM_SLOWDOWN;
    sim->push[1] = token_us * SIM_SLOWDOWN;
}

void sim_push_observe(struct sim *sim, const struct sim_request *r)
{
    struct sim_node *node = &sim->nodes[r->record.decode_node];

    if (sim->cluster.coupled_nodes == 0)
        return;
    learned_prefill(&sim->pushes, r->plan.push_tokens,
                    sim_real_us(sim->now_us - r->record.first_token_us));
    sim_push_learn(sim);
    sim_copies_store(sim, node, r, 0, r->n_keys);
}
