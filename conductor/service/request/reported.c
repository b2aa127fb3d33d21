/* Checks a worker's report about a prefill. */
#include "conductor/service/internal.h"

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
