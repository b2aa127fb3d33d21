/* Hands tokens to the front. A first token may wait for its prompt's KV: see
 * hold_first of the policy plan. */
#include "base/clock.h"
#include "base/event_loop.h"
#include "conductor/service/internal.h"

bool request_token(struct service_request *request, uint32_t token)
{
    struct service *s = request->service;
    uint64_t attempt_id = request->attempt.id;
    int64_t now_us = clock_now_us();

    if (request->output.n_tokens == 0) {
        request->output.first_token_us = now_us;
        observe_first_token(request, now_us - request->dispatch.arrived_us,
                            now_us);
    } else {
        histogram_observe(&s->metrics.tbt_s,
                          (double)(now_us - request->output.last_token_us) /
                              1e6);
    }
    request->output.last_token_us = now_us;
    request->output.n_tokens++;
    s->metrics.output_tokens++;
    request->ops->token(request->arg, token);
    return request_find(s, attempt_id) == request;
}

/* The TTFT limit is near: release the held token. */
static void on_time(evutil_socket_t, short, void *arg)
{
    struct service_request *request = arg;

    request_release_first(request);
}

bool request_hold_first(struct service_request *request, uint32_t token)
{
    struct request_output *o = &request->output;
    int64_t left_us =
        dispatch_holds_until_us(&request->dispatch) - clock_now_us();

    if (!request->attempt.holds_first || o->n_early > 0 || o->early_done ||
        left_us <= 0)
        return false;
    o->held = event_new(request->service->base, -1, 0, on_time, request);
    if (!o->held)
        return false;
    if (event_loop_wait(o->held, left_us)) {
        request_drop_first(request);
        return false;
    }
    o->held_token = token;
    return true;
}

bool request_release_first(struct service_request *request)
{
    if (!request->output.held)
        return true;
    request_drop_first(request);
    return request_token(request, request->output.held_token);
}
