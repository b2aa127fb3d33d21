/* Moves requests away from a drained instance. */
#include <stdio.h>

#include "base/log.h"
#include "conductor/service/internal.h"

static bool is_at(const struct service_request *request, uint32_t id)
{
    return request && request->attempt.id &&
           (request->attempt.prefill == id || request->attempt.decode == id);
}

/* Whether other instances can take over the instance's part of the request. */
static bool has_others(const struct service *s,
                       const struct service_request *request, uint32_t id)
{
    return (request->attempt.prefill != id ||
            instances_count(s, ROLE_PREFILL, NULL) > 0) &&
           (request->attempt.decode != id ||
            instances_count(s, ROLE_DECODE, NULL) > 0);
}

void request_move_waiting(struct service *s, uint32_t id)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->requests.size; i++) {
        struct service_request *request = s->requests.by_slot[i];

        if (!is_at(request, id) || !request->by->tells_begin ||
            request->state != REQUEST_SCHEDULED || !has_others(s, request, id))
            continue;
        request_place_again(request);
        n++;
    }
    if (n > 0)
        log_info("instance %s is drained: %u requests that had not begun there "
                 "are scheduled again",
                 pool_get(s->pool, id)->name, n);
}

void request_end_work(struct service *s, uint32_t id)
{
    char why[MSG_TEXT_MAX];
    uint32_t n = 0;

    snprintf(
        why, sizeof(why),
        "instance %s is drained, and the time limit of its requests is over",
        pool_get(s->pool, id)->name);
    for (uint32_t i = 0; i < s->requests.size; i++) {
        struct service_request *request = s->requests.by_slot[i];

        if (!is_at(request, id) ||
            (request->attempt.decode != id && request->by->hands_over &&
             request->state == REQUEST_DECODING))
            continue;
        request_instance_lost(request, id, why);
        n++;
    }
    if (n > 0)
        log_warn("%s: %u requests", why, n);
}
