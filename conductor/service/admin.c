/* The admin view of instances: list, add, remove, drain, switch. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/loop/loop.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/engine/costs.h"
#include "conductor/service/models.h"

static const char *health_name(enum pool_health health)
{
    static const char *const names[HEALTH_STATES] = {
        [HEALTH_STARTING] = "starting", [HEALTH_READY] = "ready",
        [HEALTH_DRAINING] = "draining", [HEALTH_SUSPECT] = "suspect",
        [HEALTH_GONE] = "gone",
    };

    return names[health];
}

static int put_text(struct text_buf *out, const char *name, const char *text)
{
    char escaped[2 * ENGINE_URL_MAX];

    metrics_escape(text, escaped);
    return text_buf_printf(out, ",\"%s\":\"%s\"", name, escaped);
}

/* Writes null for what is not known. */
static int put_number(struct text_buf *out, const char *name, double value,
                      bool known)
{
    return known ? text_buf_printf(out, ",\"%s\":%.3f", name, value) < 0
                 : text_buf_printf(out, ",\"%s\":null", name) < 0;
}

static int put_entry(struct text_buf *out, const struct fleet_entry *entry,
                     const struct engine_config *c, size_t exchanges)
{
    int bad = put_text(out, "kind", engine_kind_name(c->kind)) < 0;

    if (*c->url_text)
        bad |= put_text(out, "url", c->url_text) < 0;
    bad |= put_text(out, "from", fleet_origin_name(entry->origin)) < 0;
    bad |= put_text(out, "entry", entry->config.name) < 0;
    bad |= text_buf_printf(out, ",\"exchanges\":%zu}", exchanges) < 0;
    return bad;
}

/* Writes an engine whose model is not known yet. */
static int put_scout(struct text_buf *out, const struct scout *s)
{
    const struct drains *drains = &s->of->fleet->models->drains;
    bool is_drained = drains_has(drains, s->wanted.name) ||
                      drains_has(drains, s->of->config.name);
    char name[2 * ENGINE_NAME_MAX];

    int bad;

    metrics_escape(s->wanted.name, name);
    bad = text_buf_printf(out,
                          "{\"name\":\"%s\",\"model\":null,"
                          "\"state\":\"starting\"%s",
                          name, is_drained ? ",\"drained\":true" : "") < 0;
    if (*s->last_error)
        text_buf_member(out, ",\"last_error\":", s->last_error);
    return bad | put_entry(out, s->of, &s->wanted, 0);
}

/* Writes the aliases and adapters of an engine. */
static int put_names(struct text_buf *out, const struct engine *e)
{
    const char *name, *comma = "";
    int bad = text_buf_printf(out, ",\"names\":[") < 0;

    for (size_t i = 1; (name = engine_name(&e->own, i)); i++, comma = ",") {
        char escaped[2 * ENGINE_MODEL_MAX];

        metrics_escape(name, escaped);
        bad |= text_buf_printf(out, "%s\"%s\"", comma, escaped) < 0;
    }
    return bad | (text_buf_printf(out, "]") < 0);
}

static int put_instance(struct text_buf *out, const struct service *s,
                        const struct pool_instance *in)
{
    const struct engine *e = engine_at(s, in->slot);
    char name[2 * POOL_NAME_BYTES], cost[POOL_NAME_BYTES];
    int bad;

    metrics_escape(in->name, name);
    bad = text_buf_printf(out, "{\"name\":\"%s\"", name) < 0;
    bad |= put_text(out, "model", s->model.name) < 0;
    bad |= put_text(out, "role",
                    e ? engine_role_name(e->config->role)
                      : proto_role_name((uint8_t)in->role)) < 0;
    bad |= put_text(out, "state",
                    e && !e->upstream && !e->leaving
                        ? "observed"
                        : health_name(pool_shown_health(in))) < 0;
    if (in->next_role != 0)
        bad |= put_text(out, "next_role",
                        proto_role_name((uint8_t)in->next_role)) < 0;
    if (in->held && drains_hold(s, in->id, engine_entry_name(s, in->slot)))
        bad |= text_buf_printf(out, ",\"drained\":true") < 0;
    bad |= text_buf_printf(
               out,
               ",\"prefills\":%zu,\"prefills_waiting\":%zu,\"decodes\":%zu,"
               "\"blocks\":%llu",
               in->n_waiting + in->n_running, in->n_waiting, in->n_decodes,
               (unsigned long long)prefix_index_held(s->index, in->slot)) < 0;
    bad |= put_number(out, "prefill_ratio", in->correction.ratio,
                      correction_knows(&in->correction));
    bad |= put_number(out, "link_mb_per_s", in->link_bytes_per_s / 1e6,
                      !e && in->link_bytes_per_s > 0);
    if (!e)
        bad |= text_buf_printf(
                   out, ",\"kv_used_tokens\":%lld,\"kv_capacity_tokens\":%lld",
                   (long long)in->kv_used_tokens,
                   (long long)in->kv_capacity_tokens) < 0;
    costs_name(s, in->slot, cost);
    bad |= put_text(out, "cost_model", cost) < 0;
    if (e && e->events.feed)
        bad |= put_text(out, "kv_events",
                        kv_feed_state_name(engine_events_state(e))) < 0;
    if (e)
        bad |= put_names(out, e);
    if (e && in->health != HEALTH_READY && *e->health.last_error)
        text_buf_member(out, ",\"last_error\":", e->health.last_error);
    if (e)
        return bad |
               put_entry(out, e->entry, e->config, upstream_busy(e->upstream));
    return bad | (text_buf_printf(out, ",\"kind\":\"native\"}") < 0);
}

int models_instances(const struct models *models, size_t most,
                     struct text_buf *out)
{
    const struct fleet_entry *entry;
    const struct scout *scout;
    int bad = text_buf_printf(out, "{\"instances\":[") < 0;
    size_t n = 0;

    for (const struct service *s = models->first; s; s = s->next)
        for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
            const struct pool_instance *in = pool_at(s->pool, i);

            if (!in || n++ >= most)
                continue;
            bad |= text_buf_printf(out, n > 1 ? "," : "") < 0;
            bad |= put_instance(out, s, in);
        }
    TAILQ_FOREACH(entry, &models->fleet.entries, entry)
    {
        TAILQ_FOREACH(scout, &entry->scouts, of_entry)
        {
            if (n++ >= most)
                continue;
            bad |= text_buf_printf(out, n > 1 ? "," : "") < 0;
            bad |= put_scout(out, scout);
        }
    }
    bad |= text_buf_printf(out, "],\"left_out\":%zu}\n",
                           n > most ? n - most : 0) < 0;
    return bad ? -ENOMEM : 0;
}

static void read_entry(struct fields *f, const struct fields_object *root,
                       void *into)
{
    engine_config_read(f, root, into);
}

int models_add(struct models *models, const char *json, size_t n,
               bool may_name_files, char name[SERVICE_NAME_BYTES],
               char err[SERVICE_ERROR_BYTES])
{
    struct fields f = {"", "", err, SERVICE_ERROR_BYTES, 0};
    struct engine_config config;
    int rc = fields_read(&f, json, n, read_entry, &config);

    _Static_assert(SERVICE_ERROR_BYTES == CONFIG_ERROR_MAX, "of messages");
    _Static_assert(SERVICE_NAME_BYTES == ENGINE_NAME_MAX, "of names");
    _Static_assert(SERVICE_MODEL_BYTES == ENGINE_MODEL_MAX, "of models");
    if (rc)
        return strncmp(err, "line ", 5) == 0 ? -EBADMSG : rc;
    const struct {
        const char *key, *file;
    } files[] = {{"api_key_file", config.api_key_file},
                 {"cost_model", config.cost_model},
                 {"tls_ca_file", config.tls_ca_file}};
    for (size_t i = 0; may_name_files && i < 3; i++)
        if (*files[i].file && *files[i].file != '/')
            return error_say(
                err, SERVICE_ERROR_BYTES, -EINVAL,
                "%s: \"%s\": must be a whole path, which begins with /",
                files[i].key, files[i].file);
    for (size_t i = 0; !may_name_files && i < 3; i++)
        if (*files[i].file)
            return error_say(err, SERVICE_ERROR_BYTES, -EPERM,
                             "%s: \"%s\": naming a file needs the key of "
                             "admin_key_file",
                             files[i].key, files[i].file);
    snprintf(name, SERVICE_NAME_BYTES, "%s", config.name);
    if (fleet_find(&models->fleet, config.name))
        return error_say(err, SERVICE_ERROR_BYTES, -EEXIST,
                         "name: \"%s\": is the name of another engine, too",
                         config.name);
    if (models_native(models) &&
        service_has_worker(models_native(models), config.name))
        return error_say(err, SERVICE_ERROR_BYTES, -EEXIST,
                         "name: \"%s\": is the name of a native worker",
                         config.name);
    return fleet_add(&models->fleet, &config, err);
}

/* Whether an operator's `name` is the name of the instance or of its entry. */
static bool is_meant(const struct service *s, const struct pool_instance *in,
                     const char *name)
{
    const struct engine *e = engine_at(s, in->slot);

    return strcmp(in->name, name) == 0 ||
           (e && strcmp(e->entry->config.name, name) == 0);
}

/* Updates the drain of all instances with this name. Returns the state of the
 * last one; NULL = no such instance. */
static const char *mark_all(const struct models *models, const char *name)
{
    const char *state = NULL;

    for (struct service *s = models->first; s; s = s->next)
        for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
            const struct pool_instance *in = pool_at(s->pool, i);

            if (!in || !is_meant(s, in, name))
                continue;
            drains_mark(s, in->id, engine_entry_name(s, i));
            service_freed(s);
            state = health_name(pool_shown_health(in));
        }
    return state;
}

static bool exists(const struct models *models, const char *name)
{
    for (const struct service *s = models->first; s; s = s->next)
        for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
            const struct pool_instance *in = pool_at(s->pool, i);

            if (in && is_meant(s, in, name))
                return true;
        }
    return fleet_find(&models->fleet, name) ||
           drains_has(&models->drains, name);
}

int models_drain(struct models *models, const char *name, bool on,
                 int64_t limit_us, const char **state,
                 char err[SERVICE_ERROR_BYTES])
{
    int rc = 0;

    if (!exists(models, name))
        return error_say(err, SERVICE_ERROR_BYTES, -ENOENT,
                         "name: \"%.100s\": no instance of that name", name);
    if (on)
        rc = drains_set(&models->drains, name,
                        limit_us ? loop_now_us(models->loop) + limit_us : 0);
    else
        drains_drop(&models->drains, name);
    if (rc)
        return error_say(err, SERVICE_ERROR_BYTES, rc,
                         rc == -ENOSPC
                             ? "name: \"%.100s\": %u names are drained already"
                             : "name: \"%.100s\": out of memory",
                         name, DRAINS_MAX);
    *state = mark_all(models, name);
    if (!*state)
        *state = fleet_find(&models->fleet, name) ? "starting" : "gone";
    return 0;
}

static int say_why(const struct service *s, const struct pool_instance *in,
                   const char *role, int rc, char err[SERVICE_ERROR_BYTES])
{
    const char *lost = strcmp(role, "prefill") == 0 ? "decode" : "prefill";

    if (rc == -EBUSY)
        return error_say(err, SERVICE_ERROR_BYTES, rc,
                         "name: \"%.100s\": no other worker that takes work "
                         "has the role %s: give another worker that role first",
                         in->name, lost);
    if (s->config.pool == CONFIG_POOL_AGGREGATED)
        return error_say(err, SERVICE_ERROR_BYTES, rc,
                         "name: \"%.100s\": in an aggregated pool all workers "
                         "have the role both",
                         in->name);
    return error_say(err, SERVICE_ERROR_BYTES, rc,
                     "name: \"%.100s\": this worker's version cannot switch "
                     "roles: restart it with --role %s",
                     in->name, role);
}

int models_switch(struct models *models, const char *name, const char *role,
                  const char **state, char err[SERVICE_ERROR_BYTES])
{
    struct service *s = models_native(models);
    const struct pool_instance *in = NULL;
    int rc;

    for (uint32_t i = 0; s && !in && i < pool_slots(s->pool); i++)
        if (pool_at(s->pool, i) && strcmp(pool_at(s->pool, i)->name, name) == 0)
            in = pool_at(s->pool, i);
    if (!in && exists(models, name))
        return error_say(err, SERVICE_ERROR_BYTES, -EINVAL,
                         "name: \"%.100s\": only a native worker that is "
                         "registered can switch its role",
                         name);
    if (!in)
        return error_say(err, SERVICE_ERROR_BYTES, -ENOENT,
                         "name: \"%.100s\": no instance of that name", name);
    if (!cluster_leads(models->cluster))
        return error_say(
            err, SERVICE_ERROR_BYTES, -ESTALE,
            "name: \"%.100s\": another conductor leads, and only the leader "
            "switches roles: ask the one with conductor_state_leader 1",
            name);
    rc = switch_command(
        s, in->id, strcmp(role, "prefill") == 0 ? ROLE_PREFILL : ROLE_DECODE);
    if (rc)
        return say_why(s, in, role, rc, err);
    *state = health_name(pool_shown_health(in));
    return 0;
}

int models_remove(struct models *models, const char *name,
                  char err[SERVICE_ERROR_BYTES])
{
    struct fleet_entry *e = fleet_find(&models->fleet, name);

    if (!e)
        return error_say(err, SERVICE_ERROR_BYTES, -ENOENT,
                         "name: \"%.100s\": no engine of that name", name);
    if (e->origin == FLEET_FILE)
        return error_say(
            err, SERVICE_ERROR_BYTES, -EPERM,
            "name: \"%.100s\": comes from the file %.200s; remove it there",
            name, models->config.engines_file);
    drains_drop(&models->drains, name);
    fleet_drop(e);
    return 0;
}
