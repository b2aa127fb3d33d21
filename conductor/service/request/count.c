/*
 * A prompt's tokens: metrics, the last hour, the access log, explain, spans and
 * tenants all read request->result.
 *
 * A worker reports them at the end of its prefill; of an engine's request they
 * are set at its end (forward_count() in engine_request/charge.c).
 */
#include "conductor/service/engine/engine.h"

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
    return request->result.prompt_tokens ? request->result.prompt_by
                                         : request->prompt.known_by;
}

uint32_t request_prompt_tokens(const struct service_request *request)
{
    const struct service_result *r = &request->result;

    return r->prompt_tokens ? r->prompt_tokens : request->prompt.n_tokens;
}
