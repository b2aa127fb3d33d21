/* The states of a request, and the transitions between them. */
#include "base/bug.h"
#include "conductor/service/internal.h"

static const char *const state_names[REQUEST_STATES] = {
    "received",     "waiting",  "scheduled", "prefilling",
    "transferring", "decoding", "ended",     "tokenizing",
};

#define TO(s) (1u << (s))
/* A retry goes back to RECEIVED. */
static const unsigned transitions[REQUEST_STATES] = {
    [REQUEST_RECEIVED] =
        TO(REQUEST_WAITING) | TO(REQUEST_SCHEDULED) | TO(REQUEST_ENDED),
    [REQUEST_WAITING] = TO(REQUEST_SCHEDULED) | TO(REQUEST_ENDED),
    [REQUEST_SCHEDULED] =
        TO(REQUEST_PREFILLING) | TO(REQUEST_RECEIVED) | TO(REQUEST_ENDED),
    [REQUEST_PREFILLING] =
        TO(REQUEST_TRANSFERRING) | TO(REQUEST_RECEIVED) | TO(REQUEST_ENDED),
    [REQUEST_TRANSFERRING] =
        TO(REQUEST_DECODING) | TO(REQUEST_RECEIVED) | TO(REQUEST_ENDED),
    [REQUEST_DECODING] = TO(REQUEST_RECEIVED) | TO(REQUEST_ENDED),
    [REQUEST_ENDED] = 0,
    [REQUEST_TOKENIZING] = TO(REQUEST_RECEIVED) | TO(REQUEST_ENDED),
};

void request_break(struct service_request *request)
{
    struct service *s = request->service;

    request->broken = s->requests.has_broken = true;
    event_active(s->requests.inbox_event, EV_TIMEOUT, 0);
}

bool request_set_state(struct service_request *request, enum request_state next)
{
    if (!(transitions[request->state] & TO(next))) {
        bug("%s: no transition from %s to %s", request->request_id,
            state_names[request->state], state_names[next]);
        if (request->state != REQUEST_ENDED)
            request_break(request);
        return false;
    }
    log_debug("%s: %s -> %s", request->request_id, state_names[request->state],
              state_names[next]);
    request->state = next;
    return true;
}
