/* A service for each model that is served. */
#include <stdio.h>
#include <string.h>

#include "conductor/service/setup.h"
#include "conductor/service/state.h"

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

static bool is_served(struct service *all, const char *model)
{
    return all && service_find(all, model, strlen(model));
}

struct service *service_new(struct event_base *base,
                            const struct config *config,
                            char err[CONFIG_ERROR_MAX])
{
    struct service *first = NULL, **last = &first;
    uint32_t number = 0;

    if (service_check_config(config, err))
        return NULL;
    if (*config->worker_listen) {
        first = service_new_one(base, config, false, err);
        if (!first)
            return NULL;
        last = &first->next;
        number++;
    }
    for (size_t i = 0; i < config->engines.n; i++) {
        const struct engine_config *e = &config->engines.at[i];
        struct config own;

        if (is_served(first, e->model))
            continue;
        engine_model_config(config, e, &own);
        *last = service_new_one(base, &own, true, err);
        if (!*last) {
            service_free(first);
            return NULL;
        }
        (*last)->number = number++;
        last = &(*last)->next;
    }
    return first;
}

struct service *service_next(const struct service *service)
{
    return service->next;
}

struct service *service_find(struct service *all, const char *name, size_t n)
{
    for (; all; all = all->next)
        if (strlen(all->model.name) == n &&
            memcmp(all->model.name, name, n) == 0)
            return all;
    return NULL;
}

bool service_forwards(const struct service *service)
{
    return service->n_engines > 0;
}

void service_free(struct service *s)
{
    while (s) {
        struct service *next = s->next;

        service_free_one(s);
        s = next;
    }
}
