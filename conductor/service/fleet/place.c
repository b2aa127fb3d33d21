/* Starts and retires the engines of an entry, and removes drained ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/loop/loop.h"
#include "conductor/service/models.h"

/* Whether `is` is one of the n configurations. */
static bool is_wanted(const struct engine_config *is,
                      const struct engine_config *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (engine_config_equal(is, &wanted[i]))
            return true;
    return false;
}

static bool is_asked(const struct fleet_entry *entry,
                     const struct engine_config *wanted)
{
    const struct scout *s;

    TAILQ_FOREACH(s, &entry->scouts, of_entry)
    {
        if (engine_config_equal(&s->wanted, wanted))
            return true;
    }
    return false;
}

static bool is_there(const struct fleet_entry *entry,
                     const struct engine_config *wanted)
{
    const struct engine *e;

    TAILQ_FOREACH(e, &entry->engines, of_entry)
    {
        if (!e->leaving && engine_config_equal(&e->wanted, wanted))
            return true;
    }
    return is_asked(entry, wanted);
}

/* Hides a draining engine from metrics: its name would appear twice. */
static void hide_leaving(struct fleet *fleet, const char *name)
{
    struct fleet_entry *entry;
    struct engine *e;

    if (fleet->n_leaving == 0)
        return;
    TAILQ_FOREACH(entry, &fleet->entries, entry)
    {
        TAILQ_FOREACH(e, &entry->engines, of_entry)
        {
            e->replaced |= e->leaving && strcmp(e->own.name, name) == 0;
        }
    }
}

static int start(struct fleet_entry *entry, const struct engine_config *config,
                 const struct engine_config *wanted, char err[CONFIG_ERROR_MAX])
{
    struct service *s = models_get(entry->fleet->models, config, err);
    struct engine_config own = *config;
    struct engine *e;

    /* A size that the engine told is only a new index's: it may change. */
    own.block_tokens = wanted->block_tokens;
    e = s ? engine_start(s, &own, err) : NULL;

    if (!e)
        return -EINVAL;
    e->entry = entry;
    e->wanted = *wanted;
    /* An older server behind the same address is not the latest one's
     * restart. */
    e->report.start_s = entry->start_s;
    drains_mark(s, e->id, entry->config.name);
    hide_leaving(entry->fleet, config->name);
    TAILQ_INSERT_TAIL(&entry->engines, e, of_entry);
    models_name(e);
    return 0;
}

static void retire(struct fleet_entry *entry, struct engine *e)
{
    if (!entry->config.dns && e->report.start_s > entry->start_s)
        entry->start_s = e->report.start_s;
    engine_retire(e);
    models_name(e);
    entry->fleet->n_leaving++;
}

bool fleet_is_native(const struct engine_config *c, const char *model,
                     struct engine_clash *out)
{
    if (!engine_is_named(c, model))
        return false;
    out->key = engine_name_field(c, model);
    snprintf(out->why, sizeof(out->why),
             "\"%s\": is the model of the native workers, too; give one of "
             "them another name, or clear worker_listen",
             model);
    return true;
}

bool fleet_misfits(const struct fleet *fleet, const struct engine_config *c,
                   struct engine_clash *out)
{
    const struct service *s = models_named(fleet->models, c->model);
    const struct service *native = models_native(fleet->models);

    if (native && service_has_worker(native, c->name)) {
        out->key = "name";
        snprintf(out->why, sizeof(out->why),
                 "\"%s\": is the name of a native worker", c->name);
        return true;
    }
    if (native && fleet_is_native(c, native->config.model, out))
        return true;
    return s && engine_misfits(s, c, out);
}

bool fleet_make_way(struct fleet_entry *entry,
                    const struct engine_config *wanted)
{
    bool made = false;
    struct engine *e;

    TAILQ_FOREACH(e, &entry->engines, of_entry)
    {
        if (e->leaving || !engine_config_equal(&e->wanted, wanted))
            continue;
        retire(entry, e);
        made = true;
    }
    return made;
}

/* Starts an engine of a reported model as if its entry named that model. */
static int join(struct fleet_entry *entry, const struct engine_config *config,
                const struct engine_config *wanted, char err[CONFIG_ERROR_MAX])
{
    const struct models *models = entry->fleet->models;
    const struct service *s = models_named(models, config->model);
    struct engine_clash clash;

    if (s && strcmp(s->config.model, config->model) != 0)
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "model: \"%s\": it is another name of model \"%s\"",
                         config->model, s->config.model);
    /* A told size that does not fit the index is no reason to refuse. */
    if (fleet_misfits(entry->fleet, config, &clash) &&
        (strcmp(clash.key, "block_tokens") != 0 || wanted->block_tokens))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL, "%s: %s", clash.key,
                         clash.why);
    if (engine_check(config, err))
        return -EINVAL;
    return start(entry, config, wanted, err);
}

static int want(struct fleet_entry *entry, const struct engine_config *wanted,
                char err[CONFIG_ERROR_MAX])
{
    return *wanted->model && wanted->kind != ENGINE_AUTO
               ? start(entry, wanted, wanted, err)
               : scout_new(entry, wanted, join, err);
}

int fleet_place(struct fleet_entry *entry, const struct engine_config *wanted,
                size_t n, char err[CONFIG_ERROR_MAX])
{
    char why[CONFIG_ERROR_MAX];
    struct scout *s, *next;
    struct engine *e;
    int rc = 0;

    TAILQ_FOREACH(e, &entry->engines, of_entry)
    {
        if (!e->leaving && !is_wanted(&e->wanted, wanted, n))
            retire(entry, e);
    }
    for (s = TAILQ_FIRST(&entry->scouts); s; s = next) {
        next = TAILQ_NEXT(s, of_entry);
        if (!is_wanted(&s->wanted, wanted, n))
            scout_free(s);
    }
    for (size_t i = 0; i < n; i++)
        if (!is_there(entry, &wanted[i]) &&
            want(entry, &wanted[i], rc ? why : err))
            rc = -EINVAL;
    return rc;
}

/* Whether a leaving engine has no request left. After engine_drain_ms its
 * requests are cut off. */
static bool has_drained(struct engine *e)
{
    const struct config *c = &e->service->config;
    size_t busy = upstream_busy(e->upstream) + e->n_tickets;
    char why[ENGINE_NAME_MAX + 96];

    if (busy == 0 || c->engine_drain_ms == 0 ||
        loop_now_us(e->service->loop) - e->left_us < c->engine_drain_ms * 1000)
        return busy == 0;
    snprintf(why, sizeof(why),
             "engine %s was removed, and engine_drain_ms is over",
             e->config->name);
    log_warn("%s: %zu running requests are cut off", why, busy);
    engine_cut_off(e, why);
    return upstream_busy(e->upstream) + e->n_tickets == 0;
}

bool fleet_reap(struct fleet *fleet, int64_t until_us)
{
    struct fleet_entry *entry, *next;
    struct engine *e, *after;

    for (entry = TAILQ_FIRST(&fleet->entries); entry; entry = next) {
        next = TAILQ_NEXT(entry, entry);
        for (e = TAILQ_FIRST(&entry->engines); e; e = after) {
            if (loop_now_us(fleet->models->loop) >= until_us)
                return false;
            after = TAILQ_NEXT(e, of_entry);
            if (!e->leaving || !has_drained(e))
                continue;
            TAILQ_REMOVE(&entry->engines, e, of_entry);
            engine_leave(e);
            fleet->n_leaving--;
        }
        if (!entry->left || entry->due || !TAILQ_EMPTY(&entry->engines))
            continue;
        TAILQ_REMOVE(&fleet->entries, entry, entry);
        free(entry);
    }
    return true;
}

size_t models_untold(const struct models *models)
{
    const struct fleet_entry *entry;
    const struct scout *s;
    size_t n = 0;

    TAILQ_FOREACH(entry, &models->fleet.entries, entry)
    {
        TAILQ_FOREACH(s, &entry->scouts, of_entry) n++;
    }
    return n;
}

void fleet_look_for_models(struct fleet *fleet)
{
    char err[CONFIG_ERROR_MAX];
    struct fleet_entry *entry;
    struct engine *e;

    TAILQ_FOREACH(entry, &fleet->entries, entry)
    {
        TAILQ_FOREACH(e, &entry->engines, of_entry)
        {
            bool other = e->list.other_model && !*e->wanted.model;
            bool asks =
                other || (e->list.restarted && e->wanted.kind == ENGINE_AUTO);

            if (!asks || e->leaving ||
                (!is_asked(entry, &e->wanted) &&
                 scout_new(entry, &e->wanted, join, err)))
                continue;
            /* A restarted one works on until it has answered. */
            if (other)
                retire(entry, e);
        }
    }
}
