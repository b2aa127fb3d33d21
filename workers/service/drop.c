/* The end of a request: removes it from every part, and reports a failure to
 * its conductor. */
#include "base/log.h"
#include "workers/service/internal.h"

static bool is_arriving(const struct request *r)
{
    return r->state == REQUEST_ANNOUNCED || r->state == REQUEST_KV_WAIT ||
           r->state == REQUEST_RECEIVING;
}

void worker_free_request(struct worker *w, struct request *r)
{
    request_release(r, w->store);
    request_free(r);
    worker_poke(w);
}

void worker_drop(struct worker *w, struct request *r)
{
    loader_forget(r);
    transfer_forget(r);
    pipeline_forget(r);
    if (r->state == REQUEST_KV_WAIT)
        TAILQ_REMOVE(&w->kv_waits, r, link);
    if (is_arriving(r))
        w->n_arriving--;
    request_remove(&w->requests, r);
    if (batch_remove(w->batch, r))
        worker_free_request(w, r);
}

void worker_drop_all(struct worker *w, const struct conductor *of)
{
    struct request *r, *next;

    worker_drop_copies(w, of);
    for (uint32_t i = 0; i < REQUEST_BUCKETS; i++)
        for (r = LIST_FIRST(&w->requests.buckets[i]); r; r = next) {
            next = LIST_NEXT(r, by_id);
            if (!of || r->conductor == of)
                worker_drop(w, r);
        }
}

void worker_fail_broken(struct worker *w)
{
    struct request *r, *next;

    for (uint32_t i = 0; i < REQUEST_BUCKETS; i++)
        for (r = LIST_FIRST(&w->requests.buckets[i]); r; r = next) {
            next = LIST_NEXT(r, by_id);
            if (r->broken && !r->dead)
                worker_fail(w, r, PROTO_E_INTERNAL, "an illegal state change");
        }
}

void worker_fail(struct worker *w, struct request *r, uint16_t code,
                 const char *why)
{
    log_warn("request %llu failed while %s: %s", (unsigned long long)r->id,
             request_state_name(r->state), why);
    worker_send_tokens(w);
    worker_send_failed(w, r->conductor, r->id, code, why);
    worker_drop(w, r);
}
