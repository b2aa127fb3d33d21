/* A gateway's instructions for both legs of a pair of engines. */
#include <string.h>

#include "base/loop/loop.h"
#include "conductor/connector/pair.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/ticket/ticket.h"

static void copy_body(const struct text_buf *from, char to[SERVICE_LEG_BYTES])
{
    if (from->error || from->len >= SERVICE_LEG_BYTES)
        return;
    memcpy(to, from->data, from->len);
    to[from->len] = '\0';
}

/* Uses the pair's bootstrap address and an empty body: the members are the same
 * for every body. */
static struct pair_ask ask_of(const struct engine *prefill,
                              const struct pair_protocol *protocol)
{
    const struct engine_config *at = prefill->config;

    return (struct pair_ask){
        .body = "{}",
        .n = 2,
        .host = at->url.name,
        .port = at->bootstrap_port ? at->bootstrap_port : protocol->port,
        .rank = at->dp_rank > 0 ? at->dp_rank : 0,
        .room = loop_random(prefill->service->loop),
        .id = prefill->bootstrap.id,
    };
}

void ticket_legs(const struct service_request *request,
                 struct service_legs *out)
{
    const struct engine *e =
        request->attempt.prefill == request->attempt.decode
            ? NULL
            : engine_of(request->service, request->attempt.prefill);
    const struct pair_protocol *protocol =
        e ? pair_protocol(e->config->kv_connector) : NULL;
    const struct pair_reply none = {.cached_tokens = -1};
    struct text_buf body;

    *out = (struct service_legs){0};
    if (!protocol)
        return;
    struct pair_ask ask = ask_of(e, protocol);
    out->connector = pair_connector_names[e->config->kv_connector];
    out->at_once = protocol->concurrent;
    out->passes_on = protocol->passes_on;
    text_buf_init(&body, SERVICE_LEG_BYTES);
    if (protocol->prefill(&ask, &body) == 0)
        copy_body(&body, out->prefill);
    if (protocol->decode && protocol->meets) {
        text_buf_clear(&body);
        body.error = protocol->decode(&ask, &none, &body);
    }
    if (protocol->concurrent || protocol->meets)
        copy_body(&body, out->decode);
    text_buf_fini(&body);
}
