/* Whether an entry of "engines" makes sense alone. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"
#include "conductor/config/internal.h"
#include "conductor/connector/pair.h"
#include "conductor/core/index/block_cut.h"

static bool is_path(const char *text)
{
    for (const char *c = text; *c; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    return *text == '/';
}

/* Whether a host has only digits and dots, and yet is no IPv4 address: no host
 * name looks like that. */
static bool is_bad_number(const char *host)
{
    unsigned char address[sizeof(struct in_addr)];

    return strspn(host, "0123456789.") == strlen(host) &&
           inet_pton(AF_INET, host, address) != 1;
}

void endpoint_check(struct fields *f, const struct fields_object *o,
                    const char *key, const char *text, bool own, int64_t last,
                    struct address *out)
{
    if (strncmp(text, "tcp://", 6) != 0 || address_parse(text + 6, out) ||
        out->port == 0)
        fields_refuse_value(f, o, key, "tcp://HOST:PORT");
    else if (is_bad_number(out->host))
        fields_refuse_value(f, o, key,
                            "tcp://HOST:PORT, HOST a name or an "
                            "address");
    else if (!own && strcmp(out->host, "*") == 0)
        fields_refuse_value(f, o, key,
                            "an address to connect to; * needs "
                            "kv_events_bind");
    else if (out->port + last > UINT16_MAX)
        fields_refuse(f, o->path, key,
                      "\"%s\": must leave a port below 65536 for rank %lld",
                      text, (long long)last);
}

static void check_paths(struct fields *f, const struct fields_object *o,
                        const struct engine_config *e)
{
    if (!is_path(e->health_path))
        fields_refuse_value(f, o, "health_path", "a path that begins with /");
    if (!is_path(e->models_path))
        fields_refuse_value(f, o, "models_path", "a path that begins with /");
    if (*e->tokenize_path && !is_path(e->tokenize_path))
        fields_refuse_value(f, o, "tokenize_path", "a path that begins with /");
    if (*e->metrics_path && !is_path(e->metrics_path))
        fields_refuse_value(f, o, "metrics_path", "a path that begins with /");
}

/* Refuses fields that have no effect without kv_events. */
static void check_no_events(struct fields *f, const struct fields_object *o,
                            const struct engine_config *e)
{
    if (*e->kv_replay)
        fields_refuse(f, o->path, "kv_replay", "\"%s\": needs kv_events",
                      e->kv_replay);
    if (e->index == ENGINE_INDEX_EVENTS)
        fields_refuse(f, o->path, "index", "\"events\": needs kv_events");
    if (*e->kv_topic)
        fields_refuse(f, o->path, "kv_topic", "\"%s\": needs kv_events",
                      e->kv_topic);
    if (e->kv_events_bind)
        fields_refuse(f, o->path, "kv_events_bind", "true: needs kv_events");
    if (e->dp_ranks)
        fields_refuse(f, o->path, "dp_ranks", "%lld: needs kv_events",
                      (long long)e->dp_ranks);
}

static void check_events(struct fields *f, const struct fields_object *o,
                         const struct engine_config *e)
{
    struct address events = {0}, replay = {0};
    int64_t ranks = e->dp_ranks ? e->dp_ranks : 1;
    int64_t last = (e->dp_rank > 0 ? e->dp_rank : 0) + ranks - 1;

    if (*e->kv_events)
        endpoint_check(f, o, "kv_events", e->kv_events, e->kv_events_bind, last,
                       &events);
    if (*e->kv_replay)
        endpoint_check(f, o, "kv_replay", e->kv_replay, false, last, &replay);
    if (*events.host && !e->kv_events_bind &&
        strcmp(events.host, replay.host) == 0 &&
        llabs((long long)events.port - replay.port) < ranks)
        fields_refuse(
            f, o->path, "kv_replay",
            "\"%s\": must use other ports than kv_events, which needs %lld",
            e->kv_replay, (long long)ranks);
    if (!*e->kv_events)
        check_no_events(f, o, e);
    if (e->dp_rank >= 0 && e->dp_ranks > 1)
        fields_refuse(f, o->path, "dp_rank",
                      "%lld: is a single rank, and cannot have dp_ranks %lld",
                      (long long)e->dp_rank, (long long)e->dp_ranks);
    if (e->dns && e->kv_events_bind)
        fields_refuse(f, o->path, "kv_events_bind",
                      "true: several engines cannot share one address; with "
                      "dns the conductor connects");
}

/* Without a URL an engine is only listened to. */
static void check_no_url(struct fields *f, const struct fields_object *o,
                         const struct engine_config *e)
{
    if (!*e->model || !*e->kv_events || e->index == ENGINE_INDEX_PREDICTED)
        fields_refuse(f, o->path, "url",
                      "missing; without it model and kv_events must be set, "
                      "and index must not be predicted");
    else if (e->dns || *e->tls_ca_file || e->tls_insecure || *e->api_key_file)
        fields_refuse(f, o->path, "url",
                      "missing; dns, tls and api_key_file need it");
}

static void check_url(struct fields *f, const struct fields_object *o,
                      struct engine_config *e)
{
    if (!*e->url_text) {
        check_no_url(f, o, e);
        return;
    }
    const char *why = engine_url_parse(e->url_text, &e->url);
    const char *endpoint = engine_url_endpoint(e->url_text);

    if (why)
        fields_refuse(f, o->path, "url", "\"%s\": %s", e->url_text, why);
    else if (endpoint)
        fields_refuse(
            f, o->path, "url",
            "\"%s\": the paths of requests are appended to it: write \"%.*s\"",
            e->url_text, (int)(endpoint - e->url_text), e->url_text);
    else if (!e->url.tls && (*e->tls_ca_file || e->tls_insecure))
        fields_refuse(f, o->path,
                      e->tls_insecure ? "tls_insecure" : "tls_ca_file",
                      "%s: needs a url of https, not \"%.150s\"",
                      e->tls_insecure ? "true" : e->tls_ca_file, e->url_text);
}

/* The roles prefill and decode need a kv_connector, and only they. */
static void check_pair(struct fields *f, const struct fields_object *o,
                       const struct engine_config *e)
{
    const char *name = pair_connector_names[e->kv_connector];
    const struct pair_protocol *pair = pair_protocol(e->kv_connector);

    if (e->role == ENGINE_ROLE_BOTH && e->kv_connector != PAIR_NONE)
        fields_refuse(f, o->path, "kv_connector",
                      "\"%s\": needs role prefill or decode", name);
    else if (e->role != ENGINE_ROLE_BOTH && e->kv_connector == PAIR_NONE)
        fields_refuse(f, o->path, "role",
                      "\"%s\": needs kv_connector, which says how KV moves",
                      e->role == ENGINE_ROLE_PREFILL ? "prefill" : "decode");
    else if (pair && strcmp(engine_kind_name(e->kind), pair->kind) != 0)
        fields_refuse(f, o->path, "kv_connector", "\"%s\": needs kind %s", name,
                      pair->kind);
    else if (e->bootstrap_port &&
             (!pair || !pair->port || e->role == ENGINE_ROLE_DECODE))
        fields_refuse(f, o->path, "bootstrap_port",
                      "%lld: needs role prefill, and the kv_connector sglang, "
                      "offloading or mooncake",
                      (long long)e->bootstrap_port);
    else if (pair && pair->ranked && e->dp_ranks > 1 &&
             e->role == ENGINE_ROLE_PREFILL)
        fields_refuse(f, o->path, "dp_ranks",
                      "%lld: needs an entry for each rank, with dp_rank: "
                      "kv_connector is \"%s\"",
                      (long long)e->dp_ranks, name);
}

void engine_config_check(struct fields *f, const struct fields_object *o,
                         struct engine_config *e)
{
    for (const char *c = e->name; *c; c++)
        if (*c <= ' ' || *c > '~')
            fields_refuse_value(f, o, "name", "printable ASCII without blanks");
    if (e->dns && strlen(e->name) >= ENGINE_DNS_NAME_MAX)
        fields_refuse_value(f, o, "name", "at most 23 bytes, with dns");
    check_url(f, o, e);
    if (e->kind == ENGINE_AUTO && !*e->url_text)
        fields_refuse(f, o->path, "kind", "\"auto\": needs url");
    if (*e->tls_ca_file && e->tls_insecure)
        fields_refuse(f, o->path, "tls_insecure",
                      "true: then tls_ca_file has no effect");
    if (!*e->model && (e->aliases.n || e->adapters.n))
        fields_refuse(
            f, o->path, e->aliases.n ? "aliases" : "adapters",
            "\"%s\": needs model",
            engine_names_at(e->aliases.n ? &e->aliases : &e->adapters, 0));
    check_events(f, o, e);
    check_pair(f, o, e);
    check_paths(f, o, e);
    engine_names_check(f, o, e);
}
