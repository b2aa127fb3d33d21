/* Reads a prefill engine's id from its bootstrap server. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "conductor/connector/pair.h"
#include "conductor/service/models.h"

int engine_bootstrap_new(struct engine *e,
                         const struct upstream_options *options)
{
    const struct engine_config *config = e->config;
    const struct pair_protocol *pair = pair_protocol(config->kv_connector);
    struct engine_url url = config->url;
    bool v6 = strchr(url.name, ':');

    if (!pair || !pair->bootstraps || config->role != ENGINE_ROLE_PREFILL)
        return 0;
    url.tls = false;
    url.at.port = (uint16_t)(config->bootstrap_port ? config->bootstrap_port
                                                    : pair->port);
    *url.prefix = '\0';
    snprintf(url.authority, sizeof(url.authority), "%s%.240s%s:%u",
             v6 ? "[" : "", url.name, v6 ? "]" : "", url.at.port);
    e->bootstrap.server = upstream_new(
        e->service->loop, e->service->models->dns, &url, NULL, options);
    return e->bootstrap.server ? 0 : -ENOMEM;
}

/* Returns another engine of the model with this id, or NULL. With equal ids,
 * decode engines would ask the wrong engine for KV. */
static const struct engine *find_id(const struct engine *e, const char *id)
{
    const struct service *s = e->service;

    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        const struct engine *other = s->engines.by_slot[i];

        if (other && other != e && strcmp(other->bootstrap.id, id) == 0)
            return other;
    }
    return NULL;
}

/* Reads the id in the answer. Returns NULL, or the answer's fault, static. */
static const char *read_id(const struct engine *e, char id[BOOTSTRAP_ID_MAX])
{
    if (e->health.probe_status != 200)
        return "no status 200";
    return bootstrap_read(e->list.models.data,
                          e->list.models.error ? 0 : e->list.models.len,
                          e->config->dp_rank, id);
}

int engine_take_bootstrap(struct engine *e, char why[BOOTSTRAP_WHY_MAX])
{
    struct engine_bootstrap *b = &e->bootstrap;
    char id[BOOTSTRAP_ID_MAX];
    const char *wrong = read_id(e, id);
    const struct engine *other = wrong ? NULL : find_id(e, id);

    if (wrong)
        snprintf(why, BOOTSTRAP_WHY_MAX, "its bootstrap server gives %s",
                 wrong);
    if (other)
        snprintf(why, BOOTSTRAP_WHY_MAX,
                 "its bootstrap server gives the id of engine %s, \"%.60s\"",
                 other->config->name, id);
    if (wrong || other) {
        if (e->health.probe_status == 200)
            *b->id = '\0';
        return -EINVAL;
    }
    if (*b->id && strcmp(b->id, id) != 0) {
        log_info("engine %s was restarted: its cache is empty",
                 e->config->name);
        engine_clear(e);
    }
    memcpy(b->id, id, sizeof(id));
    return 0;
}
