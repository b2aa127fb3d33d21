/* Queries about the pair of a request. */
#include "conductor/service/pair/state.h"

struct engine *pair_silent(const struct service_request *request)
{
    const struct pair *p = request->forward->pair;

    return p && p->silent != POOL_NO_INSTANCE
               ? engine_of(request->service, p->silent)
               : NULL;
}

bool pair_tells_cached(const struct forward *f)
{
    const struct pair *p = f->pair;

    return p && !p->answers &&
           (p->protocol->leased || !p->protocol->concurrent);
}

bool pair_is_leased(const struct service_request *request)
{
    const struct pair *p = request->forward->pair;

    return p && p->protocol->leased && p->answering.len && p->sent_us > 0;
}

bool pair_fetches_from(const struct service_request *request,
                       const struct engine *e)
{
    const struct forward *f = request->forward;
    int64_t us =
        1000 * ENGINE_FAILURES_MAX * request->service->config.engine_timeout_ms;

    return pair_is_leased(request) && request->attempt.prefill == e->id &&
           (f->what.stream || f->pair->sent_us + us > e->health.well_us);
}

bool pair_changes(const struct forward *f)
{
    const struct pair *p = f->pair;

    return p && (p->usage.cached_tokens >= 0 ||
                 (pair_tells_cached(f) && p->protocol->concurrent));
}
