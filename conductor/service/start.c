/* All models and their engines, from a configuration to the end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/event_loop.h"
#include "conductor/service/models.h"
#include "conductor/service/setup.h"

static int start_all(struct models *models, char err[CONFIG_ERROR_MAX])
{
    const struct config *c = &models->config;

    models->dns = event_loop_dns(models->base, c->name_server);
    if (!models->dns) {
        snprintf(err, CONFIG_ERROR_MAX, "name_server: %.200s: not an address",
                 c->name_server);
        return -EINVAL;
    }
    if (*c->worker_listen && !models_append(models, c, false, err))
        return -EINVAL;
    return fleet_start(models, err);
}

struct models *models_new(struct event_base *base, const struct config *config,
                          char err[CONFIG_ERROR_MAX])
{
    struct models *models;

    if (service_check_config(config, err))
        return NULL;
    models = calloc(1, sizeof(*models));
    if (!models) {
        snprintf(err, CONFIG_ERROR_MAX, "out of memory");
        return NULL;
    }
    models->base = base;
    models->config = *config;
    TAILQ_INIT(&models->fleet.entries);
    metrics_init(&models->past);
    if (start_all(models, err) == 0)
        return models;
    models_free(models);
    return NULL;
}

void models_free(struct models *models)
{
    if (!models)
        return;
    /* Requests hold engines. */
    for (struct service *s = models->first; s; s = s->next)
        service_drop_requests(s);
    fleet_stop(models);
    while (models->first) {
        struct service *next = models->first->next;

        service_free_one(models->first);
        models->first = next;
    }
    if (models->dns)
        evdns_base_free(models->dns, 1);
    free(models);
}
