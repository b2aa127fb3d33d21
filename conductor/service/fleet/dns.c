/* The engines of an entry with a host to look up: one for each address. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/service/fleet/fleet.h"
#include "conductor/service/models.h"

#define FAILURES_LOGGED_PER_S 1u

static const char *in_brackets(const char *address,
                               char out[RESOLVE_TEXT_BYTES + 2])
{
    bool v6 = strchr(address, ':');

    snprintf(out, RESOLVE_TEXT_BYTES + 2, "%s%s%s", v6 ? "[" : "", address,
             v6 ? "]" : "");
    return out;
}

/* Writes tcp://HOST:PORT of this engine, with the looked-up host name. */
static void put_endpoint(char endpoint[ENGINE_PATH_MAX], const char *host,
                         const char *address)
{
    char text[RESOLVE_TEXT_BYTES + 2];
    struct address at;

    if (*endpoint && address_parse(endpoint + strlen("tcp://"), &at) == 0 &&
        strcmp(at.host, host) == 0)
        snprintf(endpoint, ENGINE_PATH_MAX, "tcp://%s:%u",
                 in_brackets(address, text), at.port);
}

/* Writes the entry's configuration for one address. The Host header and the
 * certificate check keep the name. */
static void specialize(const struct engine_config *entry, const char *address,
                       struct engine_config *out)
{
    const char *host = entry->url.at.host;
    char text[RESOLVE_TEXT_BYTES + 2];

    *out = *entry;
    snprintf(out->name, sizeof(out->name), "%.*s@%.*s", ENGINE_DNS_NAME_MAX - 1,
             entry->name, RESOLVE_TEXT_BYTES - 1, address);
    snprintf(out->url.at.host, sizeof(out->url.at.host), "%s", address);
    snprintf(out->url_text, sizeof(out->url_text), "http%s://%s:%u%.150s",
             entry->url.tls ? "s" : "", in_brackets(address, text),
             entry->url.at.port, entry->url.prefix);
    put_endpoint(out->kv_events, host, address);
    put_endpoint(out->kv_replay, host, address);
}

static bool on_changed(void *arg, const struct resolver_address *all, size_t n,
                       size_t n_left_out)
{
    struct fleet_entry *entry = arg;
    char err[CONFIG_ERROR_MAX] = "out of memory";
    struct engine_config *wanted = calloc(n + 1, sizeof(*wanted));

    for (size_t i = 0; wanted && i < n; i++)
        specialize(&entry->config, all[i].text, &wanted[i]);
    entry->has_none = n == 0;
    if (n == 0)
        log_warn("engines %s: %s has no address", entry->config.name,
                 entry->config.url.at.host);
    else if (!entry->lacks_some)
        log_info("engines %s: %s has %zu address%s", entry->config.name,
                 entry->config.url.at.host, n, n == 1 ? "" : "es");
    if (n_left_out)
        log_warn("engines %s: %zu more addresses of %s are not used: "
                 "max_instances is %lld",
                 entry->config.name, n_left_out, entry->config.url.at.host,
                 (long long)entry->fleet->models->config.max_instances);
    bool lacks_some = !wanted || fleet_place(entry, wanted, n, err);
    if (lacks_some && !entry->lacks_some)
        log_error("engines %s: %s; it is tried again", entry->config.name, err);
    entry->lacks_some = lacks_some;
    free(wanted);
    return !lacks_some;
}

static void on_looked_up(void *arg, const char *why_not)
{
    struct fleet_entry *entry = arg;
    struct fleet *fleet = entry->fleet;

    fleet->lookups_failed += why_not ? 1 : 0;
    if (!why_not && entry->looks_fail)
        log_info("engines %s: %s is found again", entry->config.name,
                 entry->config.url.at.host);
    else if (why_not && !entry->looks_fail &&
             log_rate_takes(&fleet->lines, FAILURES_LOGGED_PER_S))
        log_warn("engines %s: cannot look up %s: %s; its known engines stay",
                 entry->config.name, entry->config.url.at.host, why_not);
    entry->looks_fail = why_not;
}

size_t fleet_empty_names(const struct fleet *fleet)
{
    const struct fleet_entry *e;
    size_t n = 0;

    TAILQ_FOREACH(e, &fleet->entries, entry)
    n += !e->left && e->has_none;
    return n;
}

static const struct resolver_ops ops = {on_changed, on_looked_up};

int fleet_resolve(struct fleet_entry *entry)
{
    const struct models *m = entry->fleet->models;

    entry->resolver =
        resolver_new(m->loop, m->dns, entry->config.url.at.host,
                     m->config.engine_dns_ms * 1000,
                     (size_t)m->config.max_instances, &ops, entry);
    return entry->resolver ? 0 : -ENOMEM;
}
