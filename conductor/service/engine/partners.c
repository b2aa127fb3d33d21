/* Warns of engines of pairs that cannot work together as configured. */
#include <string.h>

#include "base/log.h"
#include "conductor/connector/pair.h"
#include "conductor/service/engine/engine.h"

static bool has_partner(const struct engine_config *const *all, size_t n,
                        const struct engine_config *e)
{
    for (size_t i = 0; i < n; i++)
        if (all[i]->role != e->role &&
            all[i]->kv_connector == e->kv_connector &&
            (!*all[i]->model || strcmp(all[i]->model, e->model) == 0))
            return true;
    return false;
}

/* Returns the bootstrap port of a prefill engine; 0 = none of its own. */
static int64_t port_of(const struct engine_config *e)
{
    const struct pair_protocol *p = pair_protocol(e->kv_connector);

    if (!p || !p->port || e->role != ENGINE_ROLE_PREFILL || e->dns)
        return 0;
    return (e->bootstrap_port ? e->bootstrap_port : p->port) +
           (p->bootstraps || e->dp_rank < 0 ? 0 : e->dp_rank);
}

/* Returns an engine before e that has the same bootstrap port on the same host,
 * or NULL. Ranks of one server may share a port. */
static const struct engine_config *
same_port(const struct engine_config *const *all, const struct engine_config *e)
{
    for (; *all != e; all++)
        if (port_of(*all) == port_of(e) &&
            strcmp((*all)->url.name, e->url.name) == 0 &&
            strcmp((*all)->url_text, e->url_text) != 0 &&
            (e->dp_rank < 0 || (*all)->dp_rank == e->dp_rank))
            return *all;
    return NULL;
}

void engine_partners_warn(const struct engine_config *const *all, size_t n)
{
    const char *const *names = pair_connector_names;

    for (size_t i = 0; i < n; i++) {
        const struct engine_config *e = all[i], *other;

        if (!pair_protocol(e->kv_connector))
            continue;
        if (*e->model && !has_partner(all, n, e))
            log_warn("engine %s: model \"%s\" has no engine of the role %s "
                     "with kv_connector \"%s\": it has no partner",
                     e->name, e->model,
                     engine_role_name(e->role == ENGINE_ROLE_PREFILL
                                          ? ENGINE_ROLE_DECODE
                                          : ENGINE_ROLE_PREFILL),
                     names[e->kv_connector]);
        other = port_of(e) ? same_port(all, e) : NULL;
        if (other)
            log_warn("engine %s: bootstrap_port: %lld: engine %s has the same "
                     "port on %s: decode engines would reach the wrong one",
                     e->name, (long long)port_of(e), other->name, e->url.name);
    }
}
