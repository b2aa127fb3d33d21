/* Checks options against each other. */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/redis/url.h"
#include "conductor/config/internal.h"
#include "conductor/config/policy_text.h"
#include "conductor/core/step/queue.h"

static int check_policy(const struct config *c, char err[CONFIG_ERROR_MAX])
{
    const struct schedule_policy *policy = schedule_policy_by_name(c->policy);
    struct policy_settings settings;
    char why[CONFIG_ERROR_MAX - 32];
    int rc = config_settings(c->policy_options, &settings, why, sizeof(why));

    if (rc == 0)
        rc = policy_settings_check(&settings, &policy, 1,
                                   POLICY_SET_BY_OPERATOR, why, sizeof(why));
    if (rc)
        snprintf(err, CONFIG_ERROR_MAX, "policy_options: %s", why);
    return rc;
}

/* `model` is for native workers. Without them it must be an engine's, or the
 * default: an operator who sets it wants it served. */
static int check_model(const struct config *c, char err[CONFIG_ERROR_MAX])
{
    const struct engine_config *all = c->engines.at;
    struct config usual;
    size_t i = 0;

    while (i < c->engines.n && !engine_is_named(&all[i], c->model))
        i++;
    if (*c->worker_listen && i < c->engines.n)
        return error_say(
            err, CONFIG_ERROR_MAX, -EINVAL,
            "model: \"%.63s\": is the model of engine %s, too; clear "
            "worker_listen, or give one of them another name",
            c->model, all[i].name);
    config_defaults(&usual);
    if (*c->worker_listen || i < c->engines.n || *c->engines_file ||
        strcmp(c->model, usual.model) == 0)
        return 0;
    return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                     "model: \"%.63s\": no engine serves it, and without "
                     "worker_listen no native worker can register",
                     c->model);
}

/* cost_model is for native workers: engines name theirs. */
static int check_cost_model(const struct config *c, char err[CONFIG_ERROR_MAX])
{
    if (*c->worker_listen || !*c->cost_model ||
        (!c->engines.given && !*c->engines_file))
        return 0;
    return error_say(
        err, CONFIG_ERROR_MAX, -EINVAL,
        "cost_model: \"%.200s\": is for native workers, and worker_listen is "
        "empty; engines name their cost model in their entries",
        c->cost_model);
}

/* Whether an engine, or one of the first n stores, connects to `own` with its
 * KV events; *kind and *name: the first. */
static bool is_taken(const struct config *c, size_t n_stores,
                     const struct address *own, const char **kind,
                     const char **name)
{
    struct address at;
    unsigned more;

    *kind = "engine";
    for (size_t i = 0; i < c->engines.n; i++) {
        *name = c->engines.at[i].name;
        if (engine_listener(&c->engines.at[i], &at, &more) &&
            address_meet(own, 0, &at, more))
            return true;
    }
    *kind = "store";
    for (size_t i = 0; i < n_stores; i++) {
        *name = c->stores.at[i].name;
        if (store_listener(&c->stores.at[i], &at) &&
            address_meet(own, 0, &at, 0))
            return true;
    }
    return false;
}

/* No listeners may meet, however their addresses are written. */
static int check_listeners(const struct config *c, char err[CONFIG_ERROR_MAX])
{
    const struct {
        const char *option, *text;
    } all[] = {{"listen", c->listen},
               {"admin_listen", c->admin_listen},
               {"worker_listen", c->worker_listen}};
    struct address at[3], own;
    const char *kind, *name;

    for (size_t i = 0; i < 3; i++) {
        if (!*all[i].text || address_parse(all[i].text, &at[i])) {
            at[i].port = 0; /* meets none; opening it says more */
            continue;
        }
        for (size_t k = 0; k < i; k++)
            if (at[k].port && address_meet(&at[k], 0, &at[i], 0))
                return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                                 "%s: \"%.200s\": must differ from %s",
                                 all[i].option, all[i].text, all[k].option);
        if (is_taken(c, c->stores.n, &at[i], &kind, &name))
            return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                             "%s: \"%.200s\": %s %s sends its KV events there",
                             all[i].option, all[i].text, kind, name);
    }
    for (size_t i = 0; i < c->stores.n; i++)
        if (store_listener(&c->stores.at[i], &own) &&
            is_taken(c, i, &own, &kind, &name))
            return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                             "stores[%zu].kv_events: \"%.200s\": %s %s sends "
                             "its KV events there, too",
                             i, c->stores.at[i].kv_events, kind, name);
    return 0;
}

/* Refuses orders that count on interruptions that never happen. */
static int check_order(const struct config *c, char err[CONFIG_ERROR_MAX])
{
    const struct queue_order *order = queue_order_by_name(c->queue_order);

    if (!order || !order->preempts)
        return 0;
    if (c->step_tokens == 0)
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "queue_order: \"%s\": interrupts prefills between "
                         "steps, and with step_tokens 0 a prompt is one step",
                         c->queue_order);
    if (c->pool == CONFIG_POOL_AGGREGATED)
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "queue_order: \"%s\": interrupts prefills, which "
                         "workers of an aggregated pool cannot",
                         c->queue_order);
    return 0;
}

/* Each of the two options needs the other. */
static int check_pair(const char *a, const char *option_a, const char *b,
                      const char *option_b, char err[CONFIG_ERROR_MAX])
{
    if (!*a == !*b)
        return 0;
    return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                     "%s: \"%.200s\": needs %s, too", *a ? option_a : option_b,
                     *a ? a : b, *a ? option_b : option_a);
}

/* Certificates need their keys, and listeners that show them. */
static int check_tls(const struct config *c, char err[CONFIG_ERROR_MAX])
{
    int rc = check_pair(c->tls_certificate, "tls_certificate", c->tls_key,
                        "tls_key", err);

    if (rc == 0)
        rc = check_pair(c->worker_tls_certificate, "worker_tls_certificate",
                        c->worker_tls_key, "worker_tls_key", err);
    if (rc)
        return rc;
    if (*c->worker_tls_certificate && !*c->worker_listen)
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "worker_tls_certificate: \"%.200s\": is for native "
                         "workers, and worker_listen is empty",
                         c->worker_tls_certificate);
    if (c->admin_tls && (!*c->tls_certificate || !*c->admin_listen))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "admin_tls: \"on\": needs admin_listen, and "
                         "tls_certificate with tls_key");
    return 0;
}

/* Does not show the value of state: it may hold a password. */
static int check_state(const struct config *c, char err[CONFIG_ERROR_MAX])
{
    struct redis_url url;
    char why[CONFIG_ERROR_MAX - 16];

    if (strcmp(c->state, "memory") != 0 &&
        redis_url_parse(c->state, &url, why, sizeof(why)))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "state: must be memory, or a URL of Redis: %s", why);
    if (*c->state_ca_file && strncmp(c->state, "rediss", 6) != 0)
        return error_say(
            err, CONFIG_ERROR_MAX, -EINVAL,
            "state_ca_file: \"%.200s\": needs a rediss:// in state",
            c->state_ca_file);
    if (*c->worker_address && !*c->worker_listen)
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "worker_address: \"%.200s\": is the address of "
                         "worker_listen, and worker_listen is empty",
                         c->worker_address);
    return 0;
}

int config_check(const struct config *c, char err[CONFIG_ERROR_MAX])
{
    if (c->api_keys == CONFIG_KEYS_REQUIRED &&
        (!*c->tenants_file || !*c->tenant_header))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "api_keys: \"required\": needs tenants_file with the "
                         "keys, and tenant_header, in which clients send them");
    if (c->worker_timeout_ms < 2 * c->heartbeat_ms)
        return error_say(
            err, CONFIG_ERROR_MAX, -EINVAL,
            "worker_timeout_ms: %lld: must be at least twice heartbeat_ms, "
            "%lld: a worker would count as gone between two reports",
            (long long)c->worker_timeout_ms, (long long)c->heartbeat_ms);
    if (c->max_body_total_bytes < c->max_body_bytes)
        return error_say(
            err, CONFIG_ERROR_MAX, -EINVAL,
            "max_body_total_bytes: %lld: must be at least max_body_bytes, "
            "%lld: the longest body would never be accepted",
            (long long)c->max_body_total_bytes, (long long)c->max_body_bytes);
    if (*c->priority_header &&
        strcmp(c->priority_header, c->cache_salt_header) == 0)
        return error_say(
            err, CONFIG_ERROR_MAX, -EINVAL,
            "priority_header: \"%.200s\": must differ from cache_salt_header",
            c->priority_header);
    if (!*c->worker_listen && c->worker_costs.n > 0)
        return error_say(
            err, CONFIG_ERROR_MAX, -EINVAL,
            "worker_costs: is for native workers, and worker_listen is empty: "
            "engines name their cost_model in their entries");
    if (check_tls(c, err) || check_listeners(c, err) || check_model(c, err) ||
        check_cost_model(c, err) || check_order(c, err) || check_state(c, err))
        return -EINVAL;
    return check_policy(c, err);
}
