/* Checks the loads that workers report; metrics, learned rates and
 * spans of KV transfers. */
#include "base/loop/loop.h"
#include "conductor/core/observation/observation.h"
#include "conductor/service/internal.h"

void request_pushed(struct service_request *request)
{
    struct metrics *m = &request->service->metrics;

    if (request->attempt.decode == request->attempt.prefill)
        return;
    request->spans.decode_us = loop_now_us(request->service->loop);
    m->pushed_tokens += request->prompt.n_tokens;
    histogram_observe(&m->transfer_s[METRICS_PUSH],
                      (double)(loop_now_us(request->service->loop) -
                               request->spans.prefilled_us) /
                          1e6);
}

/* Returns the only peer that a request fetches from, or POOL_NO_INSTANCE: with
 * several, their shares of the observed time are not known. */
static uint32_t only_peer(const struct service_request *request)
{
    uint32_t peer = POOL_NO_INSTANCE;

    for (uint32_t i = 0; i < request->attempt.n_sources; i++) {
        uint32_t from = request->attempt.sources[i].instance;

        if (from == request->attempt.prefill || from == peer)
            continue;
        if (peer != POOL_NO_INSTANCE)
            return POOL_NO_INSTANCE;
        peer = from;
    }
    return peer;
}

/* Workers that do not report when the load began are not counted. */
static void count_load(struct metrics *x, const struct msg_prefill_done *m)
{
    int n = !!m->fetch_bytes + !!m->disk_bytes + !!m->shared_bytes;
    enum metrics_path path = n > 1             ? METRICS_BOTH
                             : m->shared_bytes ? METRICS_SHARED
                             : m->disk_bytes   ? METRICS_DISK
                                               : METRICS_PEER;

    if (m->load_us && n > 0)
        histogram_observe(&x->transfer_s[path], (double)m->load_us / 1e6);
}

/* fetch_us counts from the prefill's arrival at the worker; other loads begin
 * with the prefill. */
static void note_load(struct service_request *request,
                      const struct msg_prefill_done *m)
{
    struct request_spans *x = &request->spans;
    int64_t us = (int64_t)m->load_us;

    if (!us)
        return;
    x->load_us = us;
    x->loaded_us = m->fetch_us >= m->load_us
                       ? request->attempt.planned_us + (int64_t)m->fetch_us
                       : x->prefill_us + us;
}

/* Learns link rates. A disk's rate comes with STATUS, smoothed by its worker.
 */
static void learn_loads(struct service_request *request,
                        const struct msg_prefill_done *m)
{
    struct service *s = request->service;
    uint64_t us = m->load_us ? m->load_us : m->fetch_us;

    if (m->fetch_bytes || m->disk_bytes || m->shared_bytes)
        metrics_ratio_error(&s->metrics.transfer_error_ratio,
                            request->attempt.plan.transfer_us, (int64_t)us);
    /* Not fetch_us: it includes the wait for room and for other loads. */
    observation_load(
        s->pool, &(struct observation_load){
                     .holder = only_peer(request),
                     .link_bytes = (int64_t)m->fetch_bytes,
                     .tier_bytes = (int64_t)(m->disk_bytes + m->shared_bytes),
                     .us = (int64_t)m->load_us});
}

void request_loaded(struct service_request *request,
                    const struct msg_prefill_done *m)
{
    count_load(&request->service->metrics, m);
    note_load(request, m);
    learn_loads(request, m);
}

bool prefill_done_ok(const struct service *s, uint32_t n_tokens,
                     const struct msg_prefill_done *m)
{
    uint64_t sum = (uint64_t)m->local_tokens + m->fetched_tokens +
                   m->disk_tokens + m->shared_tokens + m->computed_tokens;

    return sum == n_tokens && m->computed_tokens > 0 &&
           m->first_token < s->model.vocab && m->queue_us <= REPORTED_MAX_US &&
           m->fetch_us <= REPORTED_MAX_US && m->prefill_us <= REPORTED_MAX_US &&
           m->load_us <= REPORTED_MAX_US &&
           m->fetch_bytes <= REPORTED_MAX_BYTES &&
           m->disk_bytes <= REPORTED_MAX_BYTES &&
           m->shared_bytes <= REPORTED_MAX_BYTES;
}
