/*
 * Other conductors of the same instances: publishes this conductor's requests
 * through conductor/cluster, and sends workers the list of conductors.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/listener.h"
#include "base/log.h"
#include "base/tls.h"
#include "conductor/service/internal.h"
#include "conductor/service/models.h"
#include "conductor/service/setup.h"

static void on_freed(void *arg)
{
    service_freed(arg);
}

static void
each_request(void *arg,
             void (*visit)(void *to, const struct cluster_request *r), void *to)
{
    const struct service *s = arg;

    for (uint32_t i = 0; i < s->requests.size; i++) {
        const struct service_request *r = s->requests.by_slot[i];

        if (r && r->attempt.id &&
            (r->attempt.prefill_open || r->attempt.decode_open))
            visit(to, &(struct cluster_request){
                          r->attempt.id, r->attempt.prefill, r->attempt.decode,
                          &r->attempt.lent});
    }
}

static const struct cluster_pool_ops pool_ops = {
    .freed = on_freed,
    .each = each_request,
};

int peers_join(struct service *s)
{
    struct cluster *c = s->models->cluster;

    if (!c)
        return 0;
    s->peers = cluster_join(c, s->config.model, s->pool, &s->dispatch.lengths,
                            &pool_ops, s);
    return s->peers ? 0 : -ENOMEM;
}

static bool pack_conductors(struct service *s)
{
    struct address at[MSG_CONDUCTORS_MAX];
    struct msg_conductors m = {0};

    m.n = (uint8_t)cluster_members(s->models->cluster, at, MSG_CONDUCTORS_MAX);
    for (uint8_t i = 0; i < m.n; i++) {
        memcpy(m.at[i].host, at[i].host, sizeof(m.at[i].host));
        m.at[i].port = at[i].port;
    }
    wire_buf_reset(&s->native.out);
    if (m.n > 0)
        msg_conductors_pack(&s->native.out, 0, &m);
    return m.n > 0;
}

static void send_conductors(struct service *s, struct worker *w)
{
    if (w->link)
        worker_link_send(w->link, &s->native.out);
}

void peers_tick(struct service *s)
{
    bool packed = false;

    if (!s->peers)
        return;
    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        struct worker *w = &s->native.workers[i];

        if (!w->greet || !w->link)
            continue;
        w->greet = false;
        cluster_joined(s->peers);
        packed = packed || pack_conductors(s);
        if (packed)
            send_conductors(s, w);
        if (cluster_leads(s->models->cluster)) {
            wire_buf_reset(&s->native.out);
            instances_pack_lead(s, w);
            worker_link_send(w->link, &s->native.out);
            packed = false;
        }
    }
}

/* Sends workers the list of conductors. */
static void on_members(void *arg)
{
    struct service *s = models_native(arg);

    if (!s || !pack_conductors(s))
        return;
    for (uint32_t i = 0; i < pool_slots(s->pool); i++)
        send_conductors(s, &s->native.workers[i]);
}

/* Tells workers that this conductor leads: from then on they refuse orders of
 * earlier leaders. */
static void on_leads(void *arg, bool leads)
{
    struct service *s = models_native(arg);

    for (uint32_t i = 0; s && leads && i < pool_slots(s->pool); i++) {
        struct worker *w = &s->native.workers[i];

        if (!w->link)
            continue;
        wire_buf_reset(&s->native.out);
        instances_pack_lead(s, w);
        if (s->native.out.len > 0)
            worker_link_send(w->link, &s->native.out);
    }
}

static struct joint_key *limit_at(void *arg, size_t i)
{
    const struct models *models = arg;

    return tenants_joint(models->tenants, i);
}

static const struct cluster_ops cluster_ops = {
    .members = on_members, .leads = on_leads, .limit = limit_at};

/* Writes to *at the address that other conductors give to workers; host "" =
 * the address seen by Redis. */
static void own_address(const struct config *c, struct address *at)
{
    if (address_parse(*c->worker_address ? c->worker_address : c->worker_listen,
                      at)) {
        *at = (struct address){0};
        return;
    }
    if (strcmp(at->host, "0.0.0.0") == 0 || strcmp(at->host, "::") == 0 ||
        strcmp(at->host, "*") == 0)
        at->host[0] = '\0';
}

int peers_start(struct models *models, char err[CONFIG_ERROR_MAX])
{
    const struct config *c = &models->config;
    struct cluster_options options = {.lease_us = c->state_lease_ms * 1000,
                                      .model =
                                          *c->worker_listen ? c->model : ""};
    char why[CONFIG_ERROR_MAX - 16], shown[CONFIG_URL_MAX];

    if (strcmp(c->state, "memory") == 0)
        return 0;
    if (redis_url_parse(c->state, &options.url, why, sizeof(why)))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL, "state: %s", why);
    if (options.url.tls && !(models->state_tls = tls_new(
                                 c->state_ca_file, false, why, sizeof(why))))
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                         "state_ca_file: \"%.200s\": %.200s", c->state_ca_file,
                         why);
    options.tls = models->state_tls;
    own_address(c, &options.workers_at);
    models->cluster =
        cluster_new(models->loop, models->dns, &options, &cluster_ops, models);
    if (!models->cluster)
        return error_say(err, CONFIG_ERROR_MAX, -ENOMEM, "out of memory");
    tenants_share(models->tenants);
    redis_url_shown(c->state, shown, sizeof(shown));
    log_info("state: shared with other conductors at %s", shown);
    return 0;
}

void peers_listen(struct models *models, uint16_t port)
{
    const struct config *c = &models->config;
    struct address at;

    if (!*c->worker_address || address_parse(c->worker_address, &at) ||
        at.port == 0)
        at.port = port;
    cluster_workers_at(models->cluster, at.port);
}
