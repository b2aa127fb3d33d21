/* The inbox, and the list of those that wait for room.
 *
 * First come, first served: while somebody waits, whoever comes later waits
 * behind. A callback to the front may cancel any request, so nothing here keeps
 * a place in a list across one: each turn starts from the head again. */
#include "conductor/service/state.h"

static void wait_at(struct service_request *request, bool head)
{
    struct service *s = request->service;

    if (!request_set_state(request, REQUEST_WAITING))
        return;
    if (head)
        TAILQ_INSERT_HEAD(&s->waiting, request, entry);
    else
        TAILQ_INSERT_TAIL(&s->waiting, request, entry);
}

void request_retry_waiting(struct service *service)
{
    struct service_request *request;

    while ((request = TAILQ_FIRST(&service->waiting))) {
        TAILQ_REMOVE(&service->waiting, request, entry);
        if (request_set_state(request, REQUEST_RECEIVED) &&
            !request_place(request, false)) {
            wait_at(request, true);
            return;
        }
    }
}

void request_take_inbox(struct service *service)
{
    struct service_request *request;

    while ((request = TAILQ_FIRST(&service->inbox))) {
        TAILQ_REMOVE(&service->inbox, request, entry);
        bool behind = !TAILQ_EMPTY(&service->waiting);
        if (!request_place(request, behind))
            wait_at(request, false);
    }
}

static struct service_request *first_expired(struct service *service,
                                             int64_t now_us)
{
    struct service_request *request;

    TAILQ_FOREACH(request, &service->waiting, entry)
    {
        if (request->slo_ttft_us && !request->accepted &&
            now_us - request->arrived_us >= request->slo_ttft_us)
            return request;
    }
    return NULL;
}

void request_expire_waiting(struct service *service, int64_t now_us)
{
    struct service_request *request;

    while ((request = first_expired(service, now_us))) {
        TAILQ_REMOVE(&service->waiting, request, entry);
        service->metrics.rejected_ttft++;
        request_fail(
            request, 429, "slo_ttft_exceeded",
            "no instance had room within the time to first token limit", 0);
    }
}
