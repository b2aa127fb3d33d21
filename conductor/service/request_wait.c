/* The inbox, and the list of those that wait for room.
 *
 * First come, first served: while somebody waits, whoever comes later waits
 * behind. A callback to the front may cancel any call, so nothing here keeps a
 * place in a list across one: each turn starts from the head again. */
#include "conductor/service/state.h"

static void wait_at(struct service_call *call, bool head)
{
    struct service *s = call->service;
    if (!call_set_state(call, CALL_WAITING))
        return;
    if (head)
        TAILQ_INSERT_HEAD(&s->waiting, call, entry);
    else
        TAILQ_INSERT_TAIL(&s->waiting, call, entry);
}

void call_retry_waiting(struct service *service)
{
    struct service_call *call;
    while ((call = TAILQ_FIRST(&service->waiting))) {
        TAILQ_REMOVE(&service->waiting, call, entry);
        if (call_set_state(call, CALL_RECEIVED) && !call_place(call, false)) {
            wait_at(call, true);
            return;
        }
    }
}

void call_take_inbox(struct service *service)
{
    struct service_call *call;
    while ((call = TAILQ_FIRST(&service->inbox))) {
        TAILQ_REMOVE(&service->inbox, call, entry);
        bool behind = !TAILQ_EMPTY(&service->waiting);
        if (!call_place(call, behind))
            wait_at(call, false);
    }
}

static struct service_call *first_expired(struct service *service,
                                          int64_t now_us)
{
    struct service_call *call;
    TAILQ_FOREACH(call, &service->waiting, entry)
    {
        if (call->slo_ttft_us && !call->accepted &&
            now_us - call->arrived_us >= call->slo_ttft_us)
            return call;
    }
    return NULL;
}

void call_expire_waiting(struct service *service, int64_t now_us)
{
    struct service_call *call;
    while ((call = first_expired(service, now_us))) {
        TAILQ_REMOVE(&service->waiting, call, entry);
        service->metrics.rejected_ttft++;
        call_fail(call, 429, "slo_ttft_exceeded",
                  "no instance had room within the time to first token limit",
                  0);
    }
}
