/*
 * The spans of a request, written when an attempt or the request ends. No spans
 * are written without a receiver, or if the client's trace is not sampled.
 *
 *   <operation> <model>                from its arrival to its end
 *     decision                         until instances are chosen, or the end
 *     attempt                          on the chosen instances
 *       queue, transfer, prefill,      as far as they are known
 *       transfer, decode
 */
#ifndef CONDUCTOR_SERVICE_SPANS_SPANS_H
#define CONDUCTOR_SERVICE_SPANS_SPANS_H

#include "conductor/service/spans/context.h"

struct request_outcome;
struct service_request;
struct service_request_params;

struct request_spans {
    struct trace_context at;    /* its own span; trace "" = not traced */
    char above[SPAN_HEX + 1];   /* parent span; "" = root of the trace */
    char attempt[SPAN_HEX + 1]; /* span of the attempt; "" = none */
    const char *operation;      /* static; NULL = unknown */
    int64_t epoch_us;           /* Unix time of the clock's 0 */
    int64_t undecided_us; /* start of the wait for a decision; 0 = decided */
    int64_t prefill_us;   /* begin of its prefill; 0 = unknown */
    int64_t prefilled_us; /* end of its prefill; 0 = unknown */
    bool held;            /* its first token waited for its KV */
    int64_t decode_us;    /* arrival of its KV at another instance; 0 = none */
    int64_t load_us, loaded_us; /* duration of its loads, end; 0 = none */
};

/* spans_begin(request, params): begins the trace of a new request. */
void spans_begin(struct service_request *request,
                 const struct service_request_params *params);

/* spans_decided(request): ends the decision; begins an attempt. */
void spans_decided(struct service_request *request);

/* spans_failed(request, why): ends the attempt, if there is one, as failed. */
void spans_failed(struct service_request *request, const char *why);

/* spans_again(request): ends the attempt, if there is one, and begins another
 * decision. */
void spans_again(struct service_request *request);

/* spans_ended(request, end): ends the request's span, and its open child. */
void spans_ended(struct service_request *request,
                 const struct request_outcome *end);

/* Writes the traceparent for engines; "" = send the client's unchanged. */
void spans_traceparent(const struct service_request *request,
                       char out[TRACEPARENT_BYTES]);

/* Returns whether the trace begins here: the client sent no valid traceparent,
 * so its tracestate must not be passed on. */
bool spans_is_new(const struct service_request *request);

#endif
