/* The models that are served, a service for each. */
#include "conductor/service/models.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/event_loop.h"
#include "base/log.h"
#include "conductor/service/setup.h"

/* In a block, where no engine of the model is said to have another number. */
#define ENGINE_BLOCK_TOKENS 16

/* What an engine says of its model, where none has said it yet. */
static void take_from(struct config *out, const struct engine_config *e)
{
    if (!out->block_tokens)
        out->block_tokens = e->block_tokens;
    if (!*out->cost_model)
        memcpy(out->cost_model, e->cost_model, sizeof(e->cost_model));
}

/* The configuration as the model of that engine has it. */
static void engine_model_config(const struct models *models,
                                const struct engine_config *e,
                                struct config *out)
{
    const struct fleet_entry *other;

    *out = models->config;
    memcpy(out->model, e->model, sizeof(e->model));
    out->block_tokens = 0;
    *out->cost_model = '\0';
    take_from(out, e);
    TAILQ_FOREACH(other, &models->fleet.entries, entry)
    {
        if (!other->left && strcmp(other->config.model, e->model) == 0)
            take_from(out, &other->config);
    }
    if (!out->block_tokens)
        out->block_tokens = ENGINE_BLOCK_TOKENS;
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

/* Whether all engines of the model that get work know a name of it. */
static bool all_know(const struct service *s, const char *name)
{
    for (uint32_t i = 0; i < pool_slots(s->pool); i++)
        if (s->engines[i] && !s->engines[i]->leaving &&
            !engine_is_named(&s->engines[i]->own, name))
            return false;
    return true;
}

static void add_names(struct service *s, const struct engine_names *names,
                      bool adapters)
{
    for (uint8_t i = 0; i < names->n; i++) {
        struct service_name *next = &s->names[s->model.n_names];

        if (!all_know(s, names->at[i]))
            continue;
        next->adapter = adapters;
        memcpy(next->name, names->at[i], ENGINE_NAME_MAX);
        s->model.n_names++;
    }
}

static void set_names(struct service *s, const struct engine_config *like)
{
    s->model.names = s->names;
    s->model.n_names = 0;
    add_names(s, &like->aliases, false);
    add_names(s, &like->adapters, true);
}

void models_name(struct service *s)
{
    for (uint32_t i = 0; i < pool_slots(s->pool); i++)
        if (s->engines[i] && !s->engines[i]->leaving) {
            set_names(s, &s->engines[i]->own);
            return;
        }
}

static struct service *find_own(const struct models *models, const char *name)
{
    struct service *s = models->first;

    while (s && strcmp(s->model.name, name) != 0)
        s = s->next;
    return s;
}

struct service *models_get(struct models *models,
                           const struct engine_config *like,
                           char err[CONFIG_ERROR_MAX])
{
    struct service *s = find_own(models, like->model);
    struct config own;

    if (s)
        return s;
    engine_model_config(models, like, &own);
    s = append(models, &own, true, err);
    if (s)
        set_names(s, like);
    return s;
}

static int start_all(struct models *models, char err[CONFIG_ERROR_MAX])
{
    const struct config *c = &models->config;

    models->dns = event_loop_dns(models->base, c->name_server);
    if (!models->dns) {
        snprintf(err, CONFIG_ERROR_MAX, "name_server: %.200s: not an address",
                 c->name_server);
        return -EINVAL;
    }
    if (*c->worker_listen && !append(models, c, false, err))
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

struct service *service_next(const struct service *service)
{
    return service->next;
}

struct service *models_first(const struct models *models)
{
    return models->first;
}

static bool is_name(const char *text, const char *name, size_t n)
{
    return strlen(text) == n && memcmp(text, name, n) == 0;
}

struct service *models_find(const struct models *models, const char *name,
                            size_t n)
{
    for (struct service *s = models->first; s; s = s->next)
        if (is_name(s->model.name, name, n))
            return s;
    for (struct service *s = models->first; s; s = s->next)
        for (size_t i = 0; i < s->model.n_names; i++)
            if (is_name(s->names[i].name, name, n))
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

    return !native || native->next;
}

static bool is_wanted(const struct models *models, const char *model)
{
    const struct fleet_entry *e;

    TAILQ_FOREACH(e, &models->fleet.entries, entry)
    {
        if (!e->left && strcmp(e->config.model, model) == 0)
            return true;
    }
    return false;
}

void models_reap(struct models *models)
{
    struct service **at = &models->first, *s;

    while ((s = *at)) {
        if (!s->forwards || s->n_engines > 0 ||
            s->table.n_free < s->table.size ||
            is_wanted(models, s->config.model)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        log_info("model %s is served no more", s->config.model);
        metrics_add(&models->past, &s->metrics);
        service_free_one(s);
    }
}

bool service_forwards(const struct service *service)
{
    return service->forwards;
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

uint16_t models_worker_port(const struct models *models)
{
    const struct service *s = models_native(models);

    return s ? worker_links_port(s->links) : 0;
}
