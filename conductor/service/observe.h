/*
 * The events of a request's life, and their observers. Code that handles
 * requests reports each event here once and knows no observer: explain, spans,
 * access log, history, tenants and metrics are rows of the table in observe.c.
 *
 * Observers are called in the table's order, on the loop. They read the
 * request; none changes its state or ends it. O(observers) an event.
 */
#ifndef CONDUCTOR_SERVICE_OBSERVE_H
#define CONDUCTOR_SERVICE_OBSERVE_H

#include <stdint.h>

#include "conductor/core/schedule/schedule.h"
#include "conductor/service/metrics.h"
#include "proto/message.h"

struct service_request;
struct service_request_params;

/* How a request ended. */
struct request_outcome {
    enum metrics_outcome outcome;
    const char *reason; /* code of the error, static; NULL: none */
    int status;         /* HTTP status; 0: none was sent, or the engine's own */
};

/* Returns "completed", "rejected", "failed", "cancelled" or "invalid";
 * static. */
const char *outcome_name(enum metrics_outcome outcome);

/* Reports that the service has accepted a request. */
void observe_began(struct service_request *request,
                   const struct service_request_params *params);

/* Reports a decision on a request, which is sent or refused next. */
void observe_decided(struct service_request *request,
                     const struct schedule_decision *decision);

/* Reports an attempt that begins on the instances of request->attempt. */
void observe_attempt(struct service_request *request);

/* Reports that a prompt, refused next, will be computed in the background. */
void observe_warmed(struct service_request *request);

/* Reports the end of a prefill, from a worker. */
void observe_prefilled(struct service_request *request,
                       const struct msg_prefill_done *done);

/* Reports that request->result has the prompt's tokens: once for each prefill
 * of a worker, and once for each request of an engine. */
void observe_prompt(struct service_request *request);

/* Reports that the first token was handed over, ttft_us after the arrival. */
void observe_first_token(struct service_request *request, int64_t ttft_us,
                         int64_t now_us);

/* Reports that an attempt failed; why is a sentence for people. */
void observe_failed(struct service_request *request, const char *why);

/* Reports that another attempt will be decided on. */
void observe_again(struct service_request *request);

/* Reports that a request has ended; it is freed next. */
void observe_ended(struct service_request *request,
                   const struct request_outcome *end);

#endif
