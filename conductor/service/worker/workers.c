/* Status, silence and loss of workers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/drains.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/worker/paths.h"

/* No disk is faster: a higher rate is a lie. */
#define DISK_RATE_MAX_BYTES_PER_S (UINT64_C(1) << 44)

#define AWAY_WORTH_A_WORD_US 1000000

/* Handles the loss of a worker for one of its requests. A running decode does
 * not need its prefill worker any more. While KV is in transfer, only the
 * decode worker knows whether all of it arrived: it continues, or reports the
 * failure of its peer; a worker that sent LEAVING has sent all KV. Returns
 * whether the request may have lost work. */
static bool request_worker_left(struct service_request *request, uint32_t id,
                                const char *why, bool leaves)
{
    bool decodes = request->attempt.decode == id ||
                   request->attempt.decode == POOL_NO_INSTANCE;

    if (!decodes && request->state == REQUEST_DECODING)
        return false;
    if (decodes || request->state != REQUEST_TRANSFERRING) {
        request_instance_lost(request, POOL_NO_INSTANCE, why);
        return true;
    }
    request->attempt.orphaned_us = loop_now_us(request->service->loop);
    request->service->native.has_orphans = true;
    return !leaves;
}

/* Fails requests whose prefill worker was lost during the transfer: a decode
 * worker does not notice a peer that vanished silently or before its
 * KV_BEGIN. */
static void fail_orphans(struct service *s, int64_t now_us)
{
    if (!s->native.has_orphans)
        return;
    s->native.has_orphans = false;
    for (uint32_t i = 0; i < s->requests.size; i++) {
        struct service_request *request = s->requests.by_slot[i];

        if (!request || !request->attempt.orphaned_us ||
            request->state != REQUEST_TRANSFERRING)
            continue;
        if (now_us - request->attempt.orphaned_us <
            s->config.worker_timeout_ms * 1000)
            s->native.has_orphans = true;
        else
            request_instance_lost(
                request, POOL_NO_INSTANCE,
                "the prefill worker is gone, and its KV did not "
                "arrive in time");
    }
}

/* Fails requests without progress for request_timeout_ms: even a live worker or
 * engine may have lost one. */
static void fail_silent(struct service *s, int64_t now_us)
{
    if (now_us - s->native.stalled_us < s->config.request_timeout_ms * 1000 / 4)
        return;
    s->native.stalled_us = now_us;
    for (uint32_t i = 0; i < s->requests.size; i++)
        if (s->requests.by_slot[i])
            s->requests.by_slot[i]->by->fail_silent(s->requests.by_slot[i],
                                                    now_us);
}

static bool on_left(void *arg, struct worker_link *link, const char *reason)
{
    struct service *s = arg;
    struct worker *w = worker_link_owner(link);
    char why[MSG_TEXT_MAX + 128];
    uint32_t id = w->id, slot = pool_get(s->pool, id)->slot;
    bool lost = false;

    snprintf(why, sizeof(why), "worker %s is gone: %.300s", w->hello.name,
             reason);
    blocks_left(s, w);
    request_warm_left(s, w);
    copies_left(s, w);
    w->link = NULL;
    s->native.n_workers--;
    service_set_window(s);
    service_lost(s, w->hello.name);
    pool_set_health(s->pool, id, HEALTH_GONE);
    for (uint32_t i = 0; i < s->requests.size; i++) {
        struct service_request *request = s->requests.by_slot[i];

        if (request && request->attempt.id &&
            (request->attempt.prefill == id || request->attempt.decode == id) &&
            request_worker_left(request, id, why, w->leaves))
            lost = true;
    }
    pool_remove(s->pool, id, loop_now_us(s->loop));
    prefix_index_cleared(s->index, slot);
    shared_left(s, w);
    memset(w, 0, sizeof(*w));
    return lost;
}

/* The first STATUS follows the inventory: the instance is ready for work. */
static int on_status(struct service *s, uint32_t id, const uint8_t *p,
                     size_t len)
{
    struct msg_status m;

    if (msg_status_unpack(p, len, &m))
        return -EBADMSG;
    const struct pool_instance *in = pool_get(s->pool, id);
    struct worker *w = &s->native.workers[in->slot];
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
        service_freed(s);
    }
    return rc ? -EPROTO : 0;
}

/* Drains a worker that has sent LEAVING, but not its name: another worker may
 * join under that name at once. */
static int on_leaving(struct service *s, struct worker *w, size_t len)
{
    if (len > 0)
        return -EBADMSG;
    if (w->leaves)
        return -EPROTO;
    w->leaves = true;
    log_info("worker %s leaves, and gets no more work", w->hello.name);
    drains_mark(s, w->id, NULL);
    service_freed(s);
    wire_buf_reset(&s->native.out);
    msg_empty_pack(&s->native.out, FRAME_LEAVE, 0);
    worker_link_send(w->link, &s->native.out);
    return 0;
}

static int on_frame(void *arg, struct worker_link *link,
                    const struct frame_header *h, const uint8_t *payload)
{
    struct service *s = arg;
    struct worker *w = worker_link_owner(link);
    const struct pool_instance *in = pool_get(s->pool, w->id);

    if (in->health == HEALTH_SUSPECT) {
        pool_set_health(s->pool, w->id, HEALTH_READY);
        service_freed(s);
        log_info("worker %s responds again", in->name);
    }
    switch (h->type) {
    case FRAME_STATUS:
        return on_status(s, w->id, payload, h->length);
    case FRAME_PATHS:
        return paths_frame(s, w, payload, h->length);
    case FRAME_SHARED:
        return shared_frame(s, w, payload, h->length);
    case FRAME_LEAVING:
        return on_leaving(s, w, h->length);
    case FRAME_BLOCKS_STORED:
    case FRAME_BLOCKS_REMOVED:
    case FRAME_BLOCKS_CLEARED:
    case FRAME_INVENTORY_MARK:
        return blocks_frame(s, w, in->slot, h, payload);
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
    .joined = service_join,
    .frame = on_frame,
    .left = on_left,
    .refused = on_refused,
};

/* Shifts all timeouts by the time for which this process did not run. */
static void forgive(struct service *s, int64_t away_us)
{
    for (uint32_t i = 0; i < s->requests.size; i++) {
        struct service_request *request = s->requests.by_slot[i];

        if (!request)
            continue;
        request->attempt.heard_us += away_us;
        if (request->attempt.orphaned_us)
            request->attempt.orphaned_us += away_us;
    }
}

void instances_tick(struct service *service, int64_t away_us)
{
    int64_t now_us = loop_now_us(service->loop);
    int64_t late_us = service->config.worker_timeout_ms * 1000 / 2;

    if (away_us > 0) {
        if (away_us >= AWAY_WORTH_A_WORD_US)
            log_warn("model %s: this process did not run for %lld ms",
                     service->model.name, (long long)(away_us / 1000));
        forgive(service, away_us);
        return;
    }
    fail_orphans(service, now_us);
    fail_silent(service, now_us);
    drains_tick(service, now_us);
    for (uint32_t i = 0; i < pool_slots(service->pool); i++) {
        struct worker *w = &service->native.workers[i];
        const struct pool_instance *in = pool_at(service->pool, i);

        if (w->link)
            request_flush_unsent(w);
        if (!w->link || !in || in->health != HEALTH_READY ||
            now_us - worker_link_last_frame_us(w->link) < late_us)
            continue;
        pool_set_health(service->pool, in->id, HEALTH_SUSPECT);
        log_warn("worker %s is silent and gets no work", in->name);
    }
}
