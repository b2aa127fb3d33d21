/* The served models, a service for each. */
#include "conductor/service/models.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/core/index/block_cut.h"
#include "conductor/service/setup.h"

/* Joins the block size with an entry's; takes the entry's cost model if there
 * is none yet. */
static void take_from(struct config *out, const struct engine_config *e)
{
    out->block_tokens =
        block_cut_join((uint32_t)out->block_tokens, (uint32_t)e->block_tokens);
    if (!*out->cost_model)
        memcpy(out->cost_model, e->cost_model, sizeof(e->cost_model));
}

/* Sets block size and cost model by a model's wanted entries. */
static void take_from_entries(const struct models *models, const char *model,
                              struct config *out)
{
    const struct fleet_entry *e;

    out->block_tokens = 0;
    *out->cost_model = '\0';
    TAILQ_FOREACH(e, &models->fleet.entries, entry)
    {
        if (!e->left && strcmp(e->config.model, model) == 0)
            take_from(out, &e->config);
    }
}

/* Makes the configuration of the model that an engine serves. */
static void engine_model_config(const struct models *models,
                                const struct engine_config *e,
                                struct config *out)
{
    *out = models->config;
    memcpy(out->model, e->model, sizeof(e->model));
    take_from_entries(models, e->model, out);
    take_from(out, e);
    if (!out->block_tokens)
        out->block_tokens = ENGINE_BLOCK_TOKENS;
}

struct service *models_append(struct models *models,
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
    if (!engines)
        models->native = s;
    s->number = models->next_number++;
    return s;
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
    s = models_append(models, &own, true, err);
    if (!s)
        return NULL;
    models_know_names(s, like);
    log_info("serving model %s, block_tokens %u, policy %s", s->model.name,
             s->model.block_tokens, s->model.policy);
    return s;
}

void models_note(const struct models *models, const struct fleet_entry *entry)
{
    struct service *s = find_own(models, entry->config.model);

    if (s && s != models->native)
        s->engines.costs_due = true;
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

/* Gives the model the cost model that its wanted entries now name. */
static void follow(struct service *s)
{
    struct config now = s->config;

    take_from_entries(s->models, s->config.model, &now);
    /* Also engines whose entry names no model. */
    for (uint32_t i = 0; i < pool_slots(s->pool); i++)
        if (s->engines.by_slot[i] && !s->engines.by_slot[i]->leaving)
            take_from(&now, &s->engines.by_slot[i]->own);
    if (strcmp(now.cost_model, s->config.cost_model) != 0)
        engine_change_costs(s, now.cost_model);
}

bool models_follow(struct models *models, int64_t until_us)
{
    for (struct service *s = models->first; s; s = s->next) {
        if (!s->engines.costs_due)
            continue;
        if (loop_now_us(models->loop) >= until_us)
            return false;
        s->engines.costs_due = false;
        if (is_wanted(models, s->config.model))
            follow(s);
    }
    return true;
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
    struct service *known = NULL;

    for (struct service *s = models->first; s; s = s->next)
        if (strlen(s->model.name) == n && memcmp(s->model.name, name, n) == 0)
            return s;
    for (struct service *s = models->first; s; s = s->next) {
        const struct name_set *set = name_sets_find(&s->names.sets, name, n);

        if (set && set->name.n_engines > 0)
            return s;
        if (set && !known)
            known = s;
    }
    return known;
}

struct service *models_named(const struct models *models, const char *name)
{
    struct service *s = models_find(models, name, strlen(name));
    const struct name_set *set =
        s ? name_sets_find(&s->names.sets, name, strlen(name)) : NULL;

    return set && set->name.n_engines == 0 ? NULL : s;
}

struct service *models_native(const struct models *models)
{
    return models->native;
}

bool models_forward(const struct models *models)
{
    const struct service *native = models_native(models);

    return !native || native->next;
}

uint32_t models_widest(const struct models *models)
{
    uint32_t widest = 0;

    for (const struct service *s = models->first; s; s = s->next) {
        if (s->model.widest_tokens == 0)
            return 0;
        if (s->model.widest_tokens > widest)
            widest = s->model.widest_tokens;
    }
    return widest;
}

/* Frees a service, and adds its counts to the metrics. */
static void bury(struct models *models, struct service *s)
{
    models->past.n++;
    metrics_add(&models->past.metrics, &s->metrics);
    models->past.pending_dropped += pool_pending_dropped(s->pool);
    models->past.interrupted += pool_interrupted(s->pool);
    models->past.index_evicted += prefix_index_stats(s->index).evicted;
    service_free_one(s);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

bool models_reap(struct models *models, int64_t until_us)
{
    struct service **at = &models->first, *s;

    while ((s = *at)) {
        if (loop_now_us(models->loop) >= until_us)
            return false;
        if (s == models->native || s->engines.n > 0 ||
            s->requests.n_free < s->requests.size ||
            is_wanted(models, s->config.model)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        log_info("model %s is no longer served", s->config.model);
        bury(models, s);
    }
    return true;
}

void models_tls(struct models *models, struct ssl_ctx_st *certificate)
{
    struct service *s = models_native(models);

    if (s)
        worker_links_tls(s->native.links, certificate);
}

uint16_t models_worker_port(const struct models *models)
{
    const struct service *s = models_native(models);

    return s ? worker_links_port(s->native.links) : 0;
}

static size_t cut(struct service *s)
{
    size_t n = 0;

    /* A callback may end other requests: look each one up by its slot. */
    for (uint32_t i = 0; i < s->requests.size; i++) {
        if (!s->requests.by_slot[i])
            continue;
        request_unlist(s->requests.by_slot[i]);
        request_fail(s->requests.by_slot[i], 503, "shutting_down",
                     "the server is shutting down, and its time limit for "
                     "running requests is over",
                     1000000);
        n++;
    }
    return n;
}

size_t models_cut(struct models *models)
{
    size_t n = 0;

    for (struct service *s = models->first; s; s = s->next)
        n += cut(s);
    return n;
}

bool models_need_keys(const struct models *models)
{
    return models->config.api_keys == CONFIG_KEYS_REQUIRED;
}

enum tenant_refusal models_enter(struct models *models, const char *key,
                                 size_t n, enum tenant_step step,
                                 struct tenant_terms *terms, int64_t *retry_us)
{
    enum tenant_refusal why =
        tenants_enter(models->tenants, key, n, step, loop_now_us(models->loop),
                      terms, retry_us);

    cluster_limits_due(models->cluster);
    return why;
}
