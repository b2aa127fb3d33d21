/* Checks whether a worker fits the registered ones, and registers it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "conductor/service/engine/costs.h"
#include "conductor/service/models.h"

/* Names go into logs, headers and metrics: printable, without blanks, as
 * conductor-worker's --name demands. */
static bool name_ok(const char *name)
{
    for (const char *c = name; *c; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    return *name != '\0';
}

bool service_has_worker(const struct service *s, const char *name)
{
    for (uint32_t i = 0; i < pool_slots(s->pool); i++)
        if (s->native.workers[i].link &&
            strcmp(s->native.workers[i].hello.name, name) == 0)
            return true;
    return false;
}

/* Names are unique: logs, metrics and headers tell instances apart by them. */
static int check_name(const struct service *s, const char *name,
                      char text[MSG_TEXT_MAX])
{
    if (service_has_worker(s, name))
        return error_say(text, MSG_TEXT_MAX, PROTO_E_DUPLICATE,
                         "name: \"%s\" is registered already", name);
    if (fleet_has_name(&s->models->fleet, name))
        return error_say(text, MSG_TEXT_MAX, PROTO_E_DUPLICATE,
                         "name: \"%s\" is the name of an engine", name);
    return 0;
}

/* Returns 0, or a PROTO_E_ code with a text why the worker cannot join. */
static int check_hello(const struct service *s, const struct msg_hello *m,
                       char text[MSG_TEXT_MAX])
{
    if (m->kind != PROTO_PEER_WORKER || m->role == 0)
        return error_say(text, MSG_TEXT_MAX, PROTO_E_INVALID,
                         "kind %u with role %u is not a worker", m->kind,
                         m->role);
    if (!name_ok(m->name))
        return error_say(
            text, MSG_TEXT_MAX, PROTO_E_INVALID,
            "name: must be 1 to %d printable characters without blanks",
            MSG_NAME_MAX - 1);
    if (strcmp(m->model, s->config.model) != 0)
        return error_say(text, MSG_TEXT_MAX, PROTO_E_INCOMPATIBLE,
                         "model: \"%s\", but this conductor serves \"%.200s\"",
                         m->model, s->config.model);
    if (m->block_tokens != s->config.block_tokens)
        return error_say(
            text, MSG_TEXT_MAX, PROTO_E_INCOMPATIBLE,
            "block_tokens: %u, but this conductor is configured for %lld",
            m->block_tokens, (long long)s->config.block_tokens);
    if (m->kv_capacity_blocks == 0 || m->kv_bytes_per_token == 0 ||
        m->window_tokens == 0 || m->vocab == 0 ||
        m->kv_capacity_blocks > INT64_MAX / 512 / m->kv_bytes_per_token ||
        m->disk_capacity_blocks > INT64_MAX / 512 / m->kv_bytes_per_token)
        return error_say(
            text, MSG_TEXT_MAX, PROTO_E_INVALID,
            "kv_capacity_blocks, disk_capacity_blocks, "
            "kv_bytes_per_token, window_tokens or vocab is out of range");
    if (s->native.n_workers && m->fingerprint != s->native.fingerprint) {
        log_info("worker %s: the other workers' fingerprint is %016llx",
                 m->name, (unsigned long long)s->native.fingerprint);
        return error_say(text, MSG_TEXT_MAX, PROTO_E_INCOMPATIBLE,
                         "fingerprint %016llx differs from the other workers': "
                         "same model name, but other weights, --seed, --engine "
                         "or number of --layers (this worker has %u): start it "
                         "as the others, or with a conductor of its own",
                         (unsigned long long)m->fingerprint, m->layers);
    }
    return check_name(s, m->name, text);
}

static bool is_this_machine(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

/* Whether the registered workers and this one, at `host`, can connect to each
 * other. */
static int check_host(const struct service *s, const char *host,
                      char text[MSG_TEXT_MAX])
{
    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        const struct worker *w = &s->native.workers[i];

        if (!w->link || is_this_machine(w->host) == is_this_machine(host))
            continue;
        return error_say(
            text, MSG_TEXT_MAX, PROTO_E_INCOMPATIBLE,
            "other workers would connect to this worker at %.100s, and to %s "
            "at %.100s: start the worker on the conductor's machine with that "
            "machine's address in --conductor and --listen",
            host, w->hello.name, w->host);
    }
    return 0;
}

/* The first worker sets fingerprint, vocabulary and KV size for all others. */
static int adopt_fleet(struct service *s, const struct msg_hello *m)
{
    if (service_make_scheduler(s, (int64_t)m->kv_bytes_per_token, m->layers,
                               s->config.pool == CONFIG_POOL_AGGREGATED))
        return -ENOMEM;
    s->native.fingerprint = m->fingerprint;
    s->model.vocab = m->vocab;
    return 0;
}

void service_set_window(struct service *s)
{
    uint32_t window = 0;

    for (uint32_t i = 0; i < pool_slots(s->pool); i++)
        if (s->native.workers[i].link &&
            s->native.workers[i].hello.window_tokens > window)
            window = s->native.workers[i].hello.window_tokens;
    if (window > 0)
        s->model.window_tokens = s->model.widest_tokens = window;
}

uint16_t service_join(void *arg, struct worker_link *link,
                      const struct msg_hello *m, const char *peer_host,
                      struct msg_welcome *welcome, char text[MSG_TEXT_MAX])
{
    struct service *s = arg;
    uint32_t id;
    int code = check_hello(s, m, text);

    if (!code)
        code = check_host(s, peer_host, text);
    if (!code && s->native.n_workers == 0 && adopt_fleet(s, m))
        code = error_say(text, MSG_TEXT_MAX, PROTO_E_INTERNAL, "out of memory");
    if (code)
        return (uint16_t)code;
    struct pool_instance_config in = {
        .name = m->name,
        .role = m->role,
        .kv_capacity_tokens =
            (int64_t)m->kv_capacity_blocks * (int64_t)m->block_tokens,
        .link_bytes_per_s = (double)s->config.link_mbps * 1e6 / 8,
        .block_tokens = m->block_tokens,
        .max_batch = m->max_batch,
        .window_tokens = m->window_tokens,
        .most_stages = m->capabilities & PROTO_CAP_STAGES ? m->layers : 0,
        .switches = true,
        .cache_tokens =
            (int64_t)(m->kv_capacity_blocks + m->disk_capacity_blocks) *
            (int64_t)m->block_tokens,
    };
    if (m->disk_capacity_blocks)
        in.tier_bytes_per_s[TIER_DISK] = (double)s->config.disk_mbps * 1e6 / 8;
    int rc = pool_add(s->pool, &in, &id);
    if (rc) {
        snprintf(text, MSG_TEXT_MAX,
                 rc == -ENOSPC ? "max_instances: %lld workers are registered"
                               : "role or capacity is out of range",
                 (long long)s->config.max_instances);
        return rc == -ENOSPC ? PROTO_E_BUSY : PROTO_E_INVALID;
    }
    struct worker *w = &s->native.workers[pool_get(s->pool, id)->slot];
    w->link = link;
    w->id = id;
    TAILQ_INIT(&w->unsent);
    costs_set_worker(s, id, m->name);
    drains_mark(s, id, NULL);
    w->hello = *m;
    snprintf(w->host, sizeof(w->host), "%s", peer_host);
    worker_link_set_owner(link, w);
    prefix_index_set_quota(s->index, pool_get(s->pool, id)->slot,
                           m->kv_capacity_blocks + m->disk_capacity_blocks);
    s->native.n_workers++;
    service_set_window(s);
    welcome->instance_id = id;
    snprintf(welcome->queue_order, sizeof(welcome->queue_order), "%s",
             pool_config(s->pool)->order->name);
    w->greet = s->peers;
    log_info("worker %s joined: role %s, engine %s, %llu blocks of %u tokens, "
             "peers reach it at %s:%u",
             m->name, proto_role_name(m->role), m->engine,
             (unsigned long long)m->kv_capacity_blocks, m->block_tokens,
             w->host, m->peer_port);
    return 0;
}
