/* Serves requests that other gateways send. */
#include "conductor/service/ticket/ticket.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/service/engine/engine.h"
#include "conductor/service/models.h"

/* The callbacks of a ticket do nothing: no client is connected. */
static void on_done(void *arg, const struct service_result *result)
{
    (void)arg;
    (void)result;
}

static void on_failed(void *arg, const struct service_failure *failure)
{
    (void)arg;
    (void)failure;
}

static const struct service_reply_ops silent_ops = {
    .done = on_done,
    .failed = on_failed,
};

/* Moves a request to the end of the list, sorted by the last report. */
static void note_heard(struct service_request *request)
{
    struct request_list *open = &request->service->tickets.open;

    request->attempt.heard_us = loop_now_us(request->service->loop);
    TAILQ_REMOVE(open, request, entry);
    TAILQ_INSERT_TAIL(open, request, entry);
}

static struct service_place place_of(const struct service *s, uint32_t id)
{
    const struct engine *e = engine_of(s, id);
    struct service_place place = {.dp_rank = -1};

    if (!e)
        return place;
    const struct address *at = &e->config->url.at;
    bool v6 = strchr(at->host, ':');

    place.name = e->config->name;
    place.url = e->config->url_text;
    place.dp_rank = (int)e->config->dp_rank;
    snprintf(place.address, sizeof(place.address), "%s%s%s:%u", v6 ? "[" : "",
             at->host, v6 ? "]" : "", at->port);
    return place;
}

static void describe(const struct service_request *request,
                     struct service_ticket *out)
{
    const struct service *s = request->service;
    const struct request_attempt *a = &request->attempt;
    const struct prefill_estimate *p = &a->plan;
    uint32_t block_tokens = (uint32_t)s->config.block_tokens;
    uint32_t cached = (uint32_t)p->cached_tokens;
    uint32_t local = p->local_blocks * block_tokens;

    *out = (struct service_ticket){
        .prefill = place_of(s, a->prefill),
        .decode = place_of(s, a->decode),
        .prompt_tokens = request->prompt.n_tokens,
        .cached_tokens = cached,
        .local_tokens = local < cached ? local : cached,
        .mode = p->planned ? load_mode_name(p->load_mode) : NULL,
        .known_by = service_known_name(request_known_by(request)),
        .predicts = s->costs.predicts,
        .ttft_us = a->forecast.ttft_us,
        .queue_us = p->queue_us,
        .prefill_us = p->prefill_us,
        .tbt_us = a->predicted_tbt_us,
        .expires_us = s->config.ticket_timeout_ms * 1000,
        .costs = s->costs.source,
    };
    ticket_legs(request, &out->legs);
    out->fetched_tokens = cached - out->local_tokens;
    snprintf(out->id, sizeof(out->id), "%" PRIx32 "-%" PRIx64 "-%016" PRIx64,
             s->number, a->id, request->forward->ticket);
}

void service_ticket_take(struct service_request *request,
                         struct service_ticket *out)
{
    struct service *s = request->service;
    struct forward *f = request->forward;

    f->ticket = loop_random(s->loop) | 1;
    request->ops = &silent_ops;
    request->arg = NULL;
    /* All of these were borrowed from the front. */
    f->what.method = f->what.path = f->what.headers = "";
    f->what.authorization = f->what.cache_salt = "";
    f->what.body = f->what.tokenize = NULL;
    f->what.n = f->what.n_tokenize = 0;
    request->output.n_tokens = 1; /* no retry: the gateway decides on that */
    TAILQ_INSERT_TAIL(&s->tickets.open, request, entry);
    s->metrics.tickets++;
    describe(request, out);
}

/* Enters the request at the chosen engines; the gateway sends it there. */
static int ticket_send(struct service_request *request)
{
    struct forward *f = request->forward;

    forward_begin(request, NULL);
    f->engine->n_tickets++;
    f->shares = engine_of(request->service, request->attempt.decode);
    if (f->shares == f->engine)
        f->shares = NULL;
    if (f->shares)
        f->shares->n_tickets++;
    f->engine->count.sent++;
    f->engine->count.excused++; /* the gateway may never send it */
    forward_sent(request);
    return 0;
}

static void ticket_abort(struct service_request *request)
{
    ticket_let_go(request->forward);
    forward_abort(request);
}

static bool ticket_lost_with(struct service_request *request,
                             const struct engine *e)
{
    return request->forward->engine == e || request->forward->shares == e;
}

/* A ticket has no exchange: without reports only its time-out ends it. */
const struct instance_ops ticket_ops = {
    .take = forward_take,
    .tokenize = tokenize_begin,
    .send = ticket_send,
    .abort = ticket_abort,
    .count = forward_count,
    .fail_silent = forward_fail_silent,
    .free = ticket_free,
    .lost_with = ticket_lost_with,
    .leaves = forward_leaves,
    .tells_last = true,
};

/* Returns the request of an open ticket, or NULL. */
static struct service_request *find(const struct models *models, const char *id)
{
    uint32_t number;
    uint64_t attempt, nonce;
    char end;

    if (sscanf(id, "%8" SCNx32 "-%16" SCNx64 "-%16" SCNx64 "%c", &number,
               &attempt, &nonce, &end) != 3)
        return NULL;
    for (struct service *s = models->first; s; s = s->next) {
        struct service_request *r =
            s->number == number ? service_request_find(s, attempt) : NULL;

        if (r && r->by == &ticket_ops && r->forward->ticket &&
            r->forward->ticket == nonce)
            return r;
    }
    return NULL;
}

static void first_token(struct service_request *request,
                        const struct service_ticket_report *report)
{
    int64_t now_us = loop_now_us(request->service->loop), at_us = now_us;

    if (report->ttft_us >= 0 &&
        report->ttft_us < now_us - request->attempt.planned_us)
        at_us = request->attempt.planned_us + report->ttft_us;
    forward_first_token(request, at_us);
}

static void take_numbers(struct service_request *request,
                         const struct service_ticket_report *report)
{
    struct service *s = request->service;
    struct request_output *out = &request->output;

    if (report->output_tokens > (int64_t)out->n_tokens) {
        int64_t n = report->output_tokens < UINT32_MAX ? report->output_tokens
                                                       : UINT32_MAX;

        s->metrics.output_tokens += (uint64_t)n - out->n_tokens;
        out->n_tokens = (uint32_t)n;
        out->last_token_us = loop_now_us(s->loop);
        pool_decode_progress(s->pool, request->attempt.decode,
                             request->attempt.id, out->n_tokens);
    }
    if (report->state == SERVICE_TICKET_DONE)
        forward_told(request, report->prompt_tokens, report->cached_tokens);
}

static void end_well(struct service_request *request,
                     const struct service_ticket_report *report)
{
    struct service *s = request->service;
    const struct request_output *out = &request->output;

    expect_ended(request);
    if (report->output_tokens > 0)
        request_answered(request, report->output_tokens);
    if (request->forward->what.stream && report->output_tokens > 4)
        engine_learn_step(engine_of(s, request->attempt.decode),
                          (out->last_token_us - out->first_token_us) /
                              (report->output_tokens - 1));
    request_end(request, METRICS_COMPLETED, NULL);
}

int models_report_ticket(const struct models *models, const char *id,
                         const struct service_ticket_report *report)
{
    struct service_request *request = find(models, id);

    if (!request)
        return -ENOENT;
    note_heard(request);
    if (report->state == SERVICE_TICKET_FAILED) {
        request_fail(request, 502, "gateway_failed",
                     "the gateway reported that the request failed", 0);
        return 0;
    }
    if (request->state != REQUEST_DECODING) {
        /* A report of the end alone does not tell when the first token came. */
        if (report->state == SERVICE_TICKET_DONE && report->ttft_us < 0)
            request->forward->what.stream = false;
        first_token(request, report);
    }
    take_numbers(request, report);
    if (report->state == SERVICE_TICKET_DONE)
        end_well(request, report);
    return 0;
}

void tickets_tick(struct service *s)
{
    int64_t limit_us = s->config.ticket_timeout_ms * 1000;
    int64_t now_us = loop_now_us(s->loop);
    struct service_request *first;

    while ((first = TAILQ_FIRST(&s->tickets.open)) &&
           now_us - first->attempt.heard_us >= limit_us) {
        s->metrics.tickets_expired++;
        log_debug("%s: its ticket has expired", first->request_id);
        if (first->state != REQUEST_DECODING) {
            first->forward->what.stream = false;
            forward_first_token(first, now_us);
        }
        expect_ended(first);
        request_end(first, METRICS_COMPLETED, "ticket_timeout");
    }
}
