/*
 * A prompt's tokens: metrics, the last hour, the access log, explain, spans and
 * tenants all read request->result.
 *
 * A worker reports them at the end of its prefill; of an engine's request they
 * are set at its end (forward_count() in forward/usage.c).
 */
#include "base/clock.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/history/history.h"
#include "conductor/service/models.h"

const char *service_known_name(enum service_known_by by)
{
    static const char *const names[] = {
        [SERVICE_BY_NOTHING] = "",      [SERVICE_BY_TOLD] = "told",
        [SERVICE_BY_TOKENS] = "tokens", [SERVICE_BY_HASHES] = "hashes",
        [SERVICE_BY_BYTES] = "bytes",   [SERVICE_BY_INDEX] = "index"};

    return names[by];
}

enum service_known_by request_known_by(const struct service_request *request)
{
    const struct forward *f = request->forward;

    if (request->result.prompt_tokens)
        return request->result.prompt_by;
    if (!f)
        return SERVICE_BY_TOKENS;
    return f->what.n_hashes ? SERVICE_BY_HASHES
           : f->what.ids    ? SERVICE_BY_TOKENS
                            : SERVICE_BY_BYTES;
}

uint32_t request_prompt_tokens(const struct service_request *request)
{
    const struct service_result *r = &request->result;

    return r->prompt_tokens ? r->prompt_tokens : request->prompt.n_tokens;
}

void request_count_prompt(struct service_request *request)
{
    struct service *s = request->service;
    const struct service_result *r = &request->result;
    struct metrics *m = &s->metrics;
    uint64_t n = r->prompt_tokens;
    uint64_t bytes = r->prompt_by == SERVICE_BY_BYTES ? n : 0;
    uint64_t index = r->cached_by == SERVICE_BY_INDEX ? n : 0;

    m->prompt_tokens += n;
    m->local_tokens += r->local_tokens;
    m->fetched_tokens += r->fetched_tokens;
    m->disk_tokens += r->disk_tokens;
    m->shared_tokens += r->shared_tokens;
    m->computed_tokens += r->computed_tokens;
    m->guessed_length_tokens += bytes;
    m->guessed_cached_tokens += index;
    history_prompt(s->models->history, n, n - r->computed_tokens,
                   bytes > index ? bytes : index, clock_now_us());
}
