/* Nodes that switch roles: carries out the orders of core's roles, as
 * conductor/service/worker/switch.c does in the daemon. */
#include <errno.h>

#include "sim/internal.h"

static void look_again(struct sim *sim)
{
    int64_t at_us = roles_due_us(sim->roles);

    if (links_delay(sim->links, SIM_FLOW_ROLES, NULL, sim->now_us,
                    at_us > sim->now_us ? at_us : sim->now_us) < 0)
        sim_fail(sim, -ENOMEM, "out of memory");
}

int64_t sim_node_kv_tokens(const struct sim_node *node, unsigned role)
{
    int64_t tokens = 0;

    if (role != ROLE_PREFILL)
        return node->has.decode_kv_tokens;
    for (unsigned t = 0; t < BLOCK_TIERS; t++)
        tokens += node->has.tiers[t].capacity_tokens;
    return tokens;
}

void sim_switch_asked(struct sim *sim, const struct sim_request *r,
                      const struct dispatch_order *order)
{
    if (!sim->roles || r->asks_again)
        return;
    roles_placed(sim->roles, &r->dispatch, order);
    if (!sim->looks_at_roles)
        look_again(sim);
    sim->looks_at_roles = true;
}

int sim_switch_init(struct sim *sim)
{
    if (sim->rules.switch_us <= 0)
        return 0;
    sim->roles = roles_new(&sim->views[0].dispatch, sim->n_nodes, SIM_SLOWDOWN);
    return sim->roles ? 0 : -ENOMEM;
}

void sim_switch_pass(struct sim *sim)
{
    roles_pass(sim->roles, sim->now_us);
    sim->looks_at_roles = !sim->source_over || sim->n_unfinished > 0;
    if (sim->looks_at_roles)
        look_again(sim);
}

static void tell(const struct sim *sim, const struct sim_node *node,
                 const struct roles_action *a)
{
    if (sim->io.switches)
        sim->io.switches(sim->io.arg,
                         &(struct sim_switch){.at_us = sim_real_us(sim->now_us),
                                              .node = node->index,
                                              .to = a->to,
                                              .taken = a->taken,
                                              .reason = a->reason});
}

void sim_switch_next(struct sim *sim)
{
    struct roles_action a;

    if (!sim->roles)
        return;
    while (sim->rc == 0 && roles_next(sim->roles, &a)) {
        struct sim_node *node =
            &sim->nodes[pool_get(sim->views[0].pool, a.instance)->slot];

        tell(sim, node, &a);
        if (!a.taken)
            continue;
        if (pool_take_role(sim->views[0].pool, a.instance,
                           sim_node_kv_tokens(node, a.to)) < 0) {
            sim_fail(sim, -EIO, "a node has work of another role");
            return;
        }
        node->role = a.to;
        dispatch_freed(&sim->views[0].dispatch);
    }
}
