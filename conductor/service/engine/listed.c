/*
 * An engine's models: it is asked for /v1/models before it gets work, and again
 * after every GOOD_PER_QUESTION good probes.
 *
 * An engine that does not list its model gets no work; one of the kind openai
 * that never listed it does, since it may take any name. An empty list, as of a
 * frontend without workers yet, lacks the model. A missing list is accepted of
 * the kind openai only: a vLLM or SGLang without one is another server, or at
 * another path. Exceptions: 401 and 403, as clients may have a key, and a
 * failure (5xx, 429) after an earlier list.
 */
#include <stdio.h>
#include <string.h>

#include "conductor/service/models.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/log.h"

/* Good health probes between two questions for the models. */
#define GOOD_PER_QUESTION 8u

bool engine_models_due(struct engine *e)
{
    const struct pool_instance *in = pool_get(e->service->pool, e->id);

    return in->health != HEALTH_READY ||
           e->health.n_good++ % GOOD_PER_QUESTION == 0;
}

static void tell_dropped(struct engine *e, const struct model_list *list)
{
    if (!list->n_dropped || e->list.dropped_told)
        return;
    e->list.dropped_told = true;
    log_warn("engine %s lists more than %d aliases or adapters, or more than "
             "%u bytes of them: the rest is ignored",
             e->config->name, ENGINE_NAMES_MAX, ENGINE_NAMES_BYTES);
}

/* Adds the wanted names, except those that the engine has stopped listing (in
 * `seen`, not in `listed`): some engines accept names that they never list. */
static void add_had(const struct engine_names *wanted, uint32_t listed,
                    uint32_t *seen, struct engine_names *out)
{
    *seen |= listed;
    for (uint8_t i = 0; i < wanted->n; i++)
        if (listed >> i & 1u || !(*seen >> i & 1u))
            /* They have room: there was room in `wanted`. */
            (void)!engine_names_add(out, engine_names_at(wanted, i));
}

/* Logs that the engine lacks a name of its entry; once, until it lists all. */
static void check_names(struct engine *e, const char *lacks)
{
    bool alias = lacks && engine_names_have(&e->wanted.aliases, lacks);

    if (lacks && !e->list.lack_told)
        log_warn(
            "engine %s does not list %s, one of the %s of its entry: %s",
            e->config->name, lacks, alias ? "aliases" : "adapters",
            engine_names_have(alias ? &e->own.aliases : &e->own.adapters, lacks)
                ? "it may refuse requests that name it"
                : "it gets no requests that name it");
    e->list.lack_told = lacks;
}

/* Whether the engine lists an adapter that its entry, which names its model,
 * does not. */
static bool is_left_out(const struct engine *e, const char *adapter)
{
    return strcmp(adapter, e->wanted.model) != 0 &&
           !engine_names_have(&e->wanted.aliases, adapter) &&
           !engine_names_have(&e->wanted.adapters, adapter);
}

/* Logs that requests for these adapters do not go to the engine; again after a
 * change of the set. */
static void check_adapters(struct engine *e, const struct model_list *list)
{
    const char *model = e->wanted.model, *first = NULL;
    uint64_t all = 0;
    unsigned n = 0;

    if (!*model || (strcmp(list->model, model) != 0 &&
                    !engine_names_have(&list->aliases, model)))
        return;
    for (size_t i = 0; i < list->adapters.n; i++) {
        const char *name = engine_names_at(&list->adapters, i);

        if (!is_left_out(e, name))
            continue;
        first = first ? first : name;
        all ^= XXH3_64bits(name, strlen(name));
        n++;
    }
    if (first && all != e->list.left_out)
        log_warn("engine %s lists %u adapters that its entry does not list, "
                 "such as %s: it gets no requests for them, because its entry "
                 "names the model",
                 e->config->name, n, first);
    e->list.left_out = all;
}

/* Sets the engine's names: those listed, or, if its entry names its model, the
 * entry's names that it has. */
static void take_names(struct engine *e, const struct model_list *list)
{
    struct engine_names aliases = {.n = 0}, adapters = {.n = 0};

    if (*e->wanted.model) {
        add_had(&e->wanted.aliases, list->listed_aliases, &e->list.seen_aliases,
                &aliases);
        add_had(&e->wanted.adapters, list->listed_adapters,
                &e->list.seen_adapters, &adapters);
    } else {
        tell_dropped(e, list);
        aliases = list->aliases;
        adapters = list->adapters;
    }
    if (memcmp(&e->own.aliases, &aliases, sizeof(aliases)) == 0 &&
        memcmp(&e->own.adapters, &adapters, sizeof(adapters)) == 0)
        return;
    e->own.aliases = aliases;
    e->own.adapters = adapters;
    models_name(e);
    log_info("engine %s has %u aliases and %u adapters", e->config->name,
             aliases.n, adapters.n);
}

static void take_window(struct engine *e, uint32_t window_tokens)
{
    if (e->list.window_tokens == window_tokens)
        return;
    e->list.window_tokens = window_tokens;
    models_name(e);
}

/* Handles the loss of an engine's model: no work until it lists it again. */
static void lose_model(struct engine *e, const char *why)
{
    struct service *s = e->service;

    if (e->list.other_model)
        return;
    e->list.other_model = true;
    if (pool_get(s->pool, e->id)->health == HEALTH_READY)
        service_lost(s, e->config->name);
    pool_set_health(s->pool, e->id, HEALTH_SUSPECT);
    engine_clear(e);
    log_warn("engine %s gets no work: %s", e->config->name, why);
}

/* Whether the engine must have answered with a list, and did not. */
static bool lacks_list(const struct engine *e)
{
    return e->config->kind != ENGINE_OPENAI && e->health.probe_status != 401 &&
           e->health.probe_status != 403 &&
           !(e->list.had_model &&
             (e->health.probe_status >= 500 || e->health.probe_status == 429));
}

/* Logs a doubt about the URL: a server that has neither of the two paths may
 * have no other one either. */
static void doubt_url(struct engine *e)
{
    if (e->list.doubt_told || !e->health.no_health ||
        e->health.probe_status != 404)
        return;
    e->list.doubt_told = true;
    log_warn(
        "engine %s answers 404 for %s and for %s below %s: is its url right?",
        e->config->name, e->config->health_path, e->config->models_path,
        e->config->url_text);
}

/* Handles an answer without a list; returns as engine_take_models(). */
static bool take_no_list(struct engine *e)
{
    char why[ENGINE_PATH_MAX + 80];

    if (!lacks_list(e)) {
        doubt_url(e);
        return !e->list.other_model;
    }
    snprintf(why, sizeof(why), "GET %s answers %d: %s", e->config->models_path,
             e->health.probe_status, model_list_fault(e->list.models.error));
    lose_model(e, why);
    return false;
}

bool engine_take_models(struct engine *e, const char *text, size_t n)
{
    const char *model = e->config->model;
    const struct model_wanted wanted = {model, &e->wanted.aliases,
                                        &e->wanted.adapters};
    char why[2 * ENGINE_MODEL_MAX + 40];
    struct model_list list;

    if (model_list_read(text, n, &wanted, &list))
        return take_no_list(e);
    if (list.has_wanted) {
        e->list.had_model = true;
        e->list.other_model = false;
        take_names(e, &list);
        check_names(e, list.lacks);
        check_adapters(e, &list);
        take_window(e, model_list_window(&list, model));
        return true;
    }
    if (e->list.had_model || e->config->kind != ENGINE_OPENAI) {
        snprintf(why, sizeof(why), "it has %s%s, and not %s",
                 *list.model ? "model " : "no model", list.model, model);
        lose_model(e, why);
        return false;
    }
    if (!e->list.doubt_told && *list.model)
        log_warn("engine %s lists model %s, and not %s; it gets requests for "
                 "%s nevertheless",
                 e->config->name, list.model, model, model);
    e->list.doubt_told = e->list.doubt_told || *list.model;
    return true;
}
