/* Starts, reloads and ends all models and their engines. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dns.h"
#include "base/error.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/access/log.h"
#include "conductor/service/engine/costs.h"
#include "conductor/service/history/history.h"
#include "conductor/service/models.h"
#include "conductor/service/report/report.h"
#include "conductor/service/setup.h"
#include "conductor/service/spans/exporter.h"
#include "predictor/cost_model_json.h"

/* Checks the engines of the configuration and of engines_file together. */
static int check_both(const struct config *c, const struct engine_list *file,
                      char err[CONFIG_ERROR_MAX])
{
    size_t own = c->engines.n, n = own + file->n;
    const struct engine_config **all = calloc(n + 1, sizeof(*all));
    struct engine_clash clash = {0};

    for (size_t i = 0; all && i < n; i++)
        all[i] = i < own ? &c->engines.at[i] : &file->at[i - own];
    bool clashes = all && (engine_configs_clash(all, n, &clash) ||
                           engine_costs_clash(all, n, &clash));
    for (size_t i = own; all && !clashes && i < n; i++) {
        clash.at = i;
        clashes =
            *c->worker_listen && fleet_is_native(all[i], c->model, &clash);
    }
    if (all && !clashes) {
        engine_urls_warn(all, n, &(struct engine_pair){0});
        engine_partners_warn(all, n);
    }
    free(all);
    if (clashes)
        return error_say(
            err, CONFIG_ERROR_MAX, -EINVAL, "%.200s%sengines[%zu].%s: %.200s",
            clash.at < own ? "" : c->engines_file, clash.at < own ? "" : ": ",
            clash.at < own ? clash.at : clash.at - own, clash.key, clash.why);
    if (n <= (size_t)c->max_instances)
        return 0;
    return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                     "max_instances: %lld: too low for %zu engines",
                     (long long)c->max_instances, n);
}

static int refuse_access(const struct config *c, int rc,
                         char err[CONFIG_ERROR_MAX])
{
    return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                     "access_log: \"%.200s\": %s", c->access_log,
                     rc == -ENXIO
                         ? "a pipe without a reader: start the reader first, "
                           "or permit the conductor to read the pipe"
                         : strerror(-rc));
}

static int check_access(const struct config *c, char err[CONFIG_ERROR_MAX])
{
    int rc = *c->access_log ? access_log_check_file(c->access_log) : 0;

    return rc ? refuse_access(c, rc, err) : 0;
}

/* Returns 0 with *out owned, or a negative errno with a message. */
static int read_tenants(const struct config *c, struct tenants **out,
                        char err[CONFIG_ERROR_MAX])
{
    char why[CONFIG_ERROR_MAX];

    if (tenants_new(c->tenants_file, out, why))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL, "tenants_file: %.400s",
                         why);
    /* Only a warning: all keys may have been removed on purpose. */
    if (c->api_keys == CONFIG_KEYS_REQUIRED && tenants_size(*out) == 0)
        log_warn("tenants_file: %s: has no tenants, and api_keys is required: "
                 "no client may send requests",
                 c->tenants_file);
    return 0;
}

int models_check(const struct config *config, char err[CONFIG_ERROR_MAX])
{
    struct engine_list file = {0};
    char why[CONFIG_ERROR_MAX];
    struct tenants *tenants = NULL;
    int rc = service_check_config(config, err);

    if (rc == 0)
        rc = read_tenants(config, &tenants, err);
    tenants_free(tenants);
    if (rc == 0)
        rc = check_access(config, err);
    if (rc == 0 && *config->engines_file &&
        fleet_file_read(config->engines_file, &file, why))
        rc = fleet_file_say(err, why);
    if (rc == 0)
        rc = check_both(config, &file, err);
    engine_list_free(&file);
    return rc;
}

/* Opens the file of the access log; *fd -1 = none. */
static int open_access(const struct config *c, int *fd,
                       char err[CONFIG_ERROR_MAX])
{
    *fd = *c->access_log ? access_log_open_file(c->access_log) : -1;
    return *c->access_log && *fd < 0 ? refuse_access(c, *fd, err) : 0;
}

static int start_all(struct models *models, char err[CONFIG_ERROR_MAX])
{
    const struct config *c = &models->config;
    int fd;

    if (read_tenants(c, &models->tenants, err))
        return -EINVAL;
    if (access_log_new(&models->access) || open_access(c, &fd, err))
        return -EINVAL;
    access_log_take(models->access, fd);
    if (report_lag_start(models))
        return error_say(err, CONFIG_ERROR_MAX, -ENOMEM, "out of memory");
    models->dns = dns_new(models->loop, c->name_server);
    if (!models->dns)
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "name_server: %.200s: not an address", c->name_server);
    models->exporter = exporter_new(models->loop, models->dns);
    if (!models->exporter || exporter_take(models->exporter, c->otlp_endpoint))
        return error_say(err, CONFIG_ERROR_MAX, -ENOMEM, "out of memory");
    if (peers_start(models, err))
        return -EINVAL;
    if (*c->worker_listen && !models_append(models, c, false, err))
        return -EINVAL;
    peers_listen(models, models_worker_port(models));
    return fleet_start(models, err);
}

struct models *models_new(struct loop *loop, const struct config *config,
                          char err[CONFIG_ERROR_MAX])
{
    struct models *models;

    if (service_check_config(config, err))
        return NULL;
    models = calloc(1, sizeof(*models));
    if (!models)
        return error_null(err, CONFIG_ERROR_MAX, "out of memory");
    models->loop = loop;
    models->config = *config;
    models->history = history_new();
    TAILQ_INIT(&models->fleet.entries);
    models->start_s = (double)(loop_wall_us(loop) / 1000000);
    metrics_init(&models->past.metrics);
    if (!models->history)
        error_say(err, CONFIG_ERROR_MAX, -ENOMEM, "out of memory");
    else if (start_all(models, err) == 0)
        return models;
    models_free(models);
    return NULL;
}

bool models_flush(struct models *models)
{
    return exporter_flush(models->exporter);
}

void models_free(struct models *models)
{
    if (!models)
        return;
    /* Requests first, because they point to engines. */
    for (struct service *s = models->first; s; s = s->next)
        service_drop_requests(s);
    fleet_stop(models);
    report_lag_stop(models);
    while (models->first) {
        struct service *next = models->first->next;

        service_free_one(models->first);
        models->first = next;
    }
    exporter_free(models->exporter);
    cluster_free(models->cluster);
    tls_free(models->state_tls);
    dns_free(models->dns);
    tenants_free(models->tenants);
    access_log_free(models->access);
    history_free(models->history);
    drains_fini(&models->drains);
    free(models);
}

/* Returns the native service if its costs come from a file, else NULL. */
static struct service *costed(const struct models *models)
{
    struct service *native = models_native(models);

    return native && native->costs.predicts && *models->config.cost_model
               ? native
               : NULL;
}

/* The files of a reload, all read before anything changes. */
struct reloaded {
    struct tenants *tenants;
    struct cost_model cost; /* if costed() */
    int access_fd;          /* -1 = none */
};

/* Reads the files. A new path of the cost model needs a restart: the present
 * path is read. */
static int read_files(const struct models *models, const struct config *next,
                      struct reloaded *out, char err[CONFIG_ERROR_MAX])
{
    int rc = read_tenants(next, &out->tenants, err);

    if (rc == 0 && costed(models))
        rc = cost_model_load_file(models->config.cost_model, &out->cost, err,
                                  CONFIG_ERROR_MAX);
    return rc ? rc : open_access(next, &out->access_fd, err);
}

int models_reload(struct models *models, const struct config *next,
                  char err[CONFIG_ERROR_MAX])
{
    struct reloaded now = {.access_fd = -1};
    int rc = fleet_check(&models->fleet, FLEET_CONFIGURATION, next->engines.at,
                         next->engines.n, "engines", err);

    if (rc == 0)
        rc = read_files(models, next, &now, err);
    if (rc == 0)
        rc =
            fleet_set(&models->fleet, FLEET_CONFIGURATION, &next->engines, err);
    if (rc) {
        tenants_free(now.tenants);
        if (now.access_fd >= 0)
            close(now.access_fd);
        return rc;
    }
    /* From here on nothing fails. */
    tenants_take(models->tenants, now.tenants);
    if (costed(models))
        costs_replace(costed(models), &now.cost);
    access_log_take(models->access, now.access_fd);
    config_take(&models->config, next);
    if (exporter_take(models->exporter, next->otlp_endpoint))
        log_error("otlp_endpoint: out of memory: no spans are sent");
    for (struct service *s = models->first; s; s = s->next) {
        config_take(&s->config, next);
        s->dispatch.max_retries = (uint32_t)s->config.max_retries;
    }
    return 0;
}
