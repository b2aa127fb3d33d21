/* Workers as instances: joining, what they hold, silence, loss. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "conductor/service/state.h"

/* No disk is faster; a worker that says so lies. */
#define DISK_RATE_MAX_BYTES_PER_S (UINT64_C(1) << 44)

struct worker *worker_of(const struct service *service, uint32_t id)
{
    const struct pool_instance *in = pool_get(service->pool, id);

    if (!in)
        return NULL;
    struct worker *w = &service->workers[in->slot];
    return w->link ? w : NULL;
}

uint32_t instances_count(const struct service *service, unsigned role)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < pool_slots(service->pool); i++) {
        const struct pool_instance *in = pool_at(service->pool, i);

        if (in && in->health == HEALTH_READY && (in->role & role))
            n++;
    }
    return n;
}

/* A name goes into logs, headers and metrics: printable, without blanks, as
 * conductor-worker's --name demands. */
static bool name_ok(const char *name)
{
    for (const char *c = name; *c; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    return *name != '\0';
}

/* Whether this worker can serve beside the ones that are there. */
static uint16_t check_hello(const struct service *s, const struct msg_hello *m,
                            char text[MSG_TEXT_MAX])
{
    if (m->kind != PROTO_PEER_WORKER || m->role == 0) {
        snprintf(text, MSG_TEXT_MAX, "kind %u with role %u is not a worker",
                 m->kind, m->role);
        return PROTO_E_INVALID;
    }
    if (!name_ok(m->name)) {
        snprintf(text, MSG_TEXT_MAX,
                 "name: must be 1 to %d printable characters without blanks",
                 MSG_NAME_MAX - 1);
        return PROTO_E_INVALID;
    }
    if ((m->role & PROTO_ROLE_DECODE) &&
        !(m->capabilities & PROTO_CAP_PUSH_TCP)) {
        snprintf(text, MSG_TEXT_MAX,
                 "capabilities: a worker that decodes must take KV_BEGIN");
        return PROTO_E_INCOMPATIBLE;
    }
    if (strcmp(m->model, s->config.model) != 0) {
        snprintf(text, MSG_TEXT_MAX,
                 "model: \"%s\", but this conductor serves \"%.200s\"",
                 m->model, s->config.model);
        return PROTO_E_INCOMPATIBLE;
    }
    if (m->block_tokens != s->config.block_tokens) {
        snprintf(text, MSG_TEXT_MAX,
                 "block_tokens: %u, but this conductor is configured for %lld",
                 m->block_tokens, (long long)s->config.block_tokens);
        return PROTO_E_INCOMPATIBLE;
    }
    if (m->kv_capacity_blocks == 0 || m->kv_bytes_per_token == 0 ||
        m->window_tokens == 0 || m->vocab == 0 ||
        m->kv_capacity_blocks > INT64_MAX / 512 / m->kv_bytes_per_token ||
        m->disk_capacity_blocks > INT64_MAX / 512 / m->kv_bytes_per_token) {
        snprintf(text, MSG_TEXT_MAX,
                 "kv_capacity_blocks, disk_capacity_blocks, "
                 "kv_bytes_per_token, window_tokens or vocab is out of range");
        return PROTO_E_INVALID;
    }
    if (s->n_workers && m->fingerprint != s->fingerprint) {
        log_info("worker %s: the other workers' fingerprint is %016llx",
                 m->name, (unsigned long long)s->fingerprint);
        snprintf(text, MSG_TEXT_MAX,
                 "fingerprint %016llx is not that of the other workers: same "
                 "model name, other weights, --seed, --engine or number of "
                 "--layers (this worker has %u): start it as the others, or "
                 "with a conductor of its own",
                 (unsigned long long)m->fingerprint, m->layers);
        return PROTO_E_INCOMPATIBLE;
    }
    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        if (s->workers[i].link &&
            strcmp(s->workers[i].hello.name, m->name) == 0) {
            snprintf(text, MSG_TEXT_MAX, "name: \"%s\" is registered already",
                     m->name);
            return PROTO_E_DUPLICATE;
        }
    }
    return 0;
}

static bool is_this_machine(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

/* Whether the workers that are there and this one, at `host`, find each other.
 */
static uint16_t check_host(const struct service *s, const char *host,
                           char text[MSG_TEXT_MAX])
{
    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        const struct worker *w = &s->workers[i];

        if (!w->link || is_this_machine(w->host) == is_this_machine(host))
            continue;
        snprintf(text, MSG_TEXT_MAX,
                 "other workers would look for this one at %.100s, and %s is "
                 "at %.100s: give the one on the conductor's machine that "
                 "machine's address in --conductor and --listen",
                 host, w->hello.name, w->host);
        return PROTO_E_INCOMPATIBLE;
    }
    return 0;
}

/* The first worker tells what the fleet serves. */
static int adopt_fleet(struct service *s, const struct msg_hello *m)
{
    double options[POLICY_OPTIONS_MAX];
    struct schedule_config config = {
        .policy = config_policy(&s->config, options),
        .options = options,
        .admission = s->predicts ? "plain" : "none",
    };
    struct estimate_model model = {
        .cost = &s->cost,
        .block_tokens = m->block_tokens,
        .kv_bytes_per_token = (int64_t)m->kv_bytes_per_token,
        .layers = m->layers,
    };
    struct scheduler *next = scheduler_new(&config, &model, s->pool, s->index);
    if (!next)
        return -ENOMEM;
    scheduler_free(s->scheduler);
    s->scheduler = s->dispatch.scheduler = next;
    s->fingerprint = m->fingerprint;
    s->kv_bytes_per_token = m->kv_bytes_per_token;
    s->model.vocab = m->vocab;
    s->model.window_tokens = m->window_tokens;
    return 0;
}

static uint16_t on_joined(void *arg, struct worker_link *link,
                          const struct msg_hello *m, const char *peer_host,
                          struct msg_welcome *welcome, char text[MSG_TEXT_MAX])
{
    struct service *s = arg;
    uint32_t id;
    uint16_t code = check_hello(s, m, text);

    if (!code)
        code = check_host(s, peer_host, text);
    if (code)
        return code;
    if (s->n_workers == 0 && adopt_fleet(s, m)) {
        snprintf(text, MSG_TEXT_MAX, "out of memory");
        return PROTO_E_INTERNAL;
    }
    struct pool_instance_config in = {
        .name = m->name,
        .role = m->role,
        .kv_capacity_tokens =
            (int64_t)m->kv_capacity_blocks * (int64_t)m->block_tokens,
        .link_bytes_per_s = (double)s->config.link_mbps * 1e6 / 8,
        .block_tokens = m->block_tokens,
        .max_batch = m->max_batch,
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
    struct worker *w = &s->workers[pool_get(s->pool, id)->slot];
    w->link = link;
    w->id = id;
    TAILQ_INIT(&w->unsent);
    w->hello = *m;
    snprintf(w->host, sizeof(w->host), "%s", peer_host);
    worker_link_set_owner(link, w);
    s->n_workers++;
    welcome->instance_id = id;
    snprintf(welcome->queue_order, sizeof(welcome->queue_order), "%s",
             pool_queue_order(s->pool)->name);
    log_info("worker %s joined: role %s, engine %s, %llu blocks of %u tokens, "
             "peers reach it at %s:%u",
             m->name, proto_role_name(m->role), m->engine,
             (unsigned long long)m->kv_capacity_blocks, m->block_tokens,
             w->host, m->peer_port);
    return 0;
}

/* What the loss of a worker means for a request that it works for. A prefill
 * worker has no part in a decode that is under way. While the KV is on its way,
 * only the decode worker knows whether all of it came: it goes on, or says that
 * its peer failed. */
static void request_worker_left(struct service_request *request, uint32_t id,
                                const char *why)
{
    bool decodes = request->decode == id || request->decode == POOL_NO_INSTANCE;

    if (!decodes && request->state == REQUEST_DECODING)
        return;
    if (decodes || request->state != REQUEST_TRANSFERRING) {
        request_instance_lost(request, POOL_NO_INSTANCE, why);
        return;
    }
    request->orphaned_us = clock_now_us();
    request->service->has_orphans = true;
}

/* A peer that vanished without a word, or before its KV_BEGIN, is nothing that
 * a decode worker would notice. */
static void fail_orphans(struct service *s, int64_t now_us)
{
    if (!s->has_orphans)
        return;
    s->has_orphans = false;
    for (uint32_t i = 0; i < s->max_requests; i++) {
        struct service_request *request = s->requests[i];

        if (!request || !request->orphaned_us ||
            request->state != REQUEST_TRANSFERRING)
            continue;
        if (now_us - request->orphaned_us < s->config.worker_timeout_ms * 1000)
            s->has_orphans = true;
        else
            request_instance_lost(
                request, POOL_NO_INSTANCE,
                "the prefill worker is gone, and its KV did not "
                "arrive in time");
    }
}

static void on_left(void *arg, struct worker_link *link, const char *reason)
{
    struct service *s = arg;
    struct worker *w = worker_link_owner(link);
    char why[MSG_TEXT_MAX + 128];
    uint32_t id = w->id, slot = pool_get(s->pool, id)->slot;

    snprintf(why, sizeof(why), "worker %s is gone: %.300s", w->hello.name,
             reason);
    w->link = NULL;
    s->n_workers--;
    s->metrics.workers_lost++;
    int rc = pool_set_health(s->pool, id, HEALTH_GONE);
    (void)rc;
    for (uint32_t i = 0; i < s->max_requests; i++) {
        struct service_request *request = s->requests[i];

        if (request && request->attempt_id &&
            (request->prefill == id || request->decode == id))
            request_worker_left(request, id, why);
    }
    rc = pool_remove(s->pool, id, clock_now_us());
    (void)rc;
    prefix_index_cleared(s->index, slot);
    memset(w, 0, sizeof(*w));
}

static int on_stored(struct service *s, uint32_t slot, const uint8_t *p,
                     size_t len)
{
    struct msg_blocks_stored m;

    if (msg_blocks_stored_unpack(p, len, &m))
        return -EBADMSG;
    uint64_t parent = m.parent;
    for (uint32_t i = 0; i < m.n; i++) {
        uint64_t key = wire_u64_at(m.keys, i);
        int rc = prefix_index_stored(s->index, slot, (enum block_tier)m.tier,
                                     parent, key);

        if (rc == -EINVAL)
            return -EPROTO;
        if (rc)
            s->metrics.block_events_refused++;
        else
            s->metrics.block_events_stored++;
        parent = key;
    }
    return 0;
}

static int on_removed(struct service *s, uint32_t slot, const uint8_t *p,
                      size_t len)
{
    struct msg_blocks_removed m;

    if (msg_blocks_removed_unpack(p, len, &m))
        return -EBADMSG;
    for (uint32_t i = 0; i < m.n; i++)
        if (prefix_index_removed(s->index, slot, (enum block_tier)m.tier,
                                 wire_u64_at(m.keys, i)))
            return -EPROTO;
    s->metrics.block_events_removed += m.n;
    return 0;
}

/* The first STATUS follows the inventory: only now is the instance known well
 * enough to be given work. */
static int on_status(struct service *s, uint32_t id, const uint8_t *p,
                     size_t len)
{
    struct msg_status m;

    if (msg_status_unpack(p, len, &m))
        return -EBADMSG;
    const struct pool_instance *in = pool_get(s->pool, id);
    struct worker *w = &s->workers[in->slot];
    if (m.kv_used_blocks > w->hello.kv_capacity_blocks ||
        m.kv_pinned_blocks > m.kv_used_blocks ||
        m.disk_used_blocks > w->hello.disk_capacity_blocks ||
        m.disk_bytes_per_s > DISK_RATE_MAX_BYTES_PER_S)
        return -EPROTO;
    w->kv_pinned_blocks = m.kv_pinned_blocks;
    w->disk_used_blocks = m.disk_used_blocks;
    int rc = pool_set_kv_used(
        s->pool, id, (int64_t)m.kv_used_blocks * s->config.block_tokens);
    if (rc == 0 && m.disk_bytes_per_s)
        rc = pool_set_tier_rate(s->pool, id, TIER_DISK,
                                (double)m.disk_bytes_per_s);
    if (rc == 0 && in->health == HEALTH_STARTING) {
        rc = pool_set_health(s->pool, id, HEALTH_READY);
        event_active(s->inbox_event, EV_TIMEOUT, 0);
    }
    return rc ? -EPROTO : 0;
}

static int on_frame(void *arg, struct worker_link *link,
                    const struct frame_header *h, const uint8_t *payload)
{
    struct service *s = arg;
    const struct worker *w = worker_link_owner(link);
    const struct pool_instance *in = pool_get(s->pool, w->id);

    if (in->health == HEALTH_SUSPECT) {
        int rc = pool_set_health(s->pool, w->id, HEALTH_READY);

        (void)rc;
        log_info("worker %s answers again", in->name);
    }
    switch (h->type) {
    case FRAME_STATUS:
        return on_status(s, w->id, payload, h->length);
    case FRAME_BLOCKS_STORED:
        return on_stored(s, in->slot, payload, h->length);
    case FRAME_BLOCKS_REMOVED:
        return on_removed(s, in->slot, payload, h->length);
    case FRAME_BLOCKS_CLEARED:
        prefix_index_cleared(s->index, in->slot);
        return h->length ? -EBADMSG : 0;
    default:
        return request_frame(s, w->id, h, payload);
    }
}

static void on_refused(void *arg, int was_frame)
{
    struct service *s = arg;

    if (was_frame)
        s->metrics.bad_frames++;
    else
        s->metrics.workers_refused++;
}

const struct worker_link_ops service_link_ops = {
    .joined = on_joined,
    .frame = on_frame,
    .left = on_left,
    .refused = on_refused,
};

void instances_tick(struct service *service)
{
    int64_t now_us = clock_now_us();
    int64_t late_us = service->config.worker_timeout_ms * 1000 / 2;

    fail_orphans(service, now_us);
    for (uint32_t i = 0; i < pool_slots(service->pool); i++) {
        struct worker *w = &service->workers[i];
        const struct pool_instance *in = pool_at(service->pool, i);

        if (w->link)
            request_flush_unsent(w);
        if (!w->link || !in || in->health != HEALTH_READY ||
            now_us - worker_link_last_frame_us(w->link) < late_us)
            continue;
        int rc = pool_set_health(service->pool, in->id, HEALTH_SUSPECT);
        (void)rc;
        log_warn("worker %s is silent and gets no work", in->name);
    }
}
