/* The models that are served, a service for each. */
#include "conductor/service/models.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/event_loop.h"
#include "conductor/service/setup.h"

/* In a block, where no engine of the model is said to have another number. */
#define ENGINE_BLOCK_TOKENS 16

/* The configuration as the model of that engine has it. */
static void engine_model_config(const struct config *config,
                                const struct engine_config *e,
                                struct config *out)
{
    const struct engine_list *all = &config->engines;

    *out = *config;
    memcpy(out->model, e->model, sizeof(e->model));
    out->block_tokens = ENGINE_BLOCK_TOKENS;
    *out->cost_model = '\0';
    for (size_t i = all->n; i-- > 0;) {
        if (strcmp(all->at[i].model, e->model) != 0)
            continue;
        if (all->at[i].block_tokens)
            out->block_tokens = all->at[i].block_tokens;
        if (*all->at[i].cost_model)
            memcpy(out->cost_model, all->at[i].cost_model,
                   sizeof(all->at[i].cost_model));
    }
}

static struct service *append(struct models *models,
                              const struct config *config, bool engines,
                              char err[CONFIG_ERROR_MAX])
{
    struct service **end = &models->first;
    struct service *s = service_new_one(models, config, engines, err);

    if (!s)
        return NULL;
    while (*end)
        end = &(*end)->next;
    *end = s;
    s->number = models->next_number++;
    return s;
}

struct service *models_get(struct models *models,
                           const struct engine_config *like,
                           char err[CONFIG_ERROR_MAX])
{
    struct service *s = models_find(models, like->model, strlen(like->model));
    struct config own;

    if (s)
        return s;
    engine_model_config(&models->config, like, &own);
    return append(models, &own, true, err);
}

static int start_all(struct models *models, char err[CONFIG_ERROR_MAX])
{
    const struct config *c = &models->config;

    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    models->dns = event_loop_dns(models->base);
    if (!models->dns)
        return -ENOMEM;
    if (*c->worker_listen && !append(models, c, false, err))
        return -EINVAL;
    for (size_t i = 0; i < c->engines.n; i++) {
        struct service *s = models_get(models, &c->engines.at[i], err);

        if (!s || engine_start(s, &c->engines.at[i], err))
            return -EINVAL;
    }
    return 0;
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
    if (start_all(models, err) == 0)
        return models;
    models_free(models);
    return NULL;
}

struct service *service_next(const struct service *service)
{
    return service->next;
}

struct service *models_first(const struct models *models)
{
    return models->first;
}

struct service *models_find(const struct models *models, const char *name,
                            size_t n)
{
    for (struct service *s = models->first; s; s = s->next)
        if (strlen(s->model.name) == n && memcmp(s->model.name, name, n) == 0)
            return s;
    return NULL;
}

struct service *models_native(const struct models *models)
{
    struct service *s = models->first;

    return s && !s->forwards ? s : NULL;
}

bool models_forward(const struct models *models)
{
    const struct service *native = models_native(models);

    return native ? native->next : models->first;
}

bool service_forwards(const struct service *service)
{
    return service->forwards;
}

void models_free(struct models *models)
{
    if (!models)
        return;
    while (models->first) {
        struct service *next = models->first->next;

        service_free_one(models->first);
        models->first = next;
    }
    if (models->dns)
        evdns_base_free(models->dns, 0);
    free(models);
}

uint16_t models_worker_port(const struct models *models)
{
    const struct service *s = models_native(models);

    return s ? worker_links_port(s->links) : 0;
}
