/*
 * The spans of a request: which trace it is of, and what the trace is told when
 * an attempt or the request ends. Nothing is done where there is no receiver,
 * or the client's traceparent says that its trace is not sampled.
 *
 *   <operation> <model>                from its arrival to its end
 *     decision                         to the choice of instances, or the end
 *     attempt                          on the chosen instances
 *       queue, transfer, prefill,      as far as they are known
 *       transfer, decode
 */
#ifndef CONDUCTOR_SERVICE_SPANS_SPANS_H
#define CONDUCTOR_SERVICE_SPANS_SPANS_H

#include "conductor/service/spans/context.h"

struct service_request;
struct service_request_params;

struct request_spans {
    struct trace_context at;  /* its trace, and its own span; trace "": none */
    char above[SPAN_HEX + 1]; /* "": it is the first one of the trace */
    char attempt[SPAN_HEX + 1]; /* "": none has begun */
    const char *operation;      /* static; NULL: not known */
    int64_t epoch_us;           /* Unix time of the clock's 0 */
    int64_t undecided_us;       /* since when it is to be decided; 0: it is */
    int64_t prefill_us;         /* when its prefill began; 0: not known */
    int64_t prefilled_us;       /* and ended; 0 */
    bool held;                  /* its first token waited for its KV */
    int64_t decode_us;          /* when its KV was where it decodes, if that was
                                   elsewhere; 0 */
    int64_t load_us, loaded_us; /* of blocks: how long, and until when; 0 */
};

/* spans_begin(request, params): of a request that is being submitted. */
void spans_begin(struct service_request *request,
                 const struct service_request_params *params);

/* spans_decided(request): instances were chosen; another attempt begins. */
void spans_decided(struct service_request *request);

/* spans_failed(request, why): the attempt ended, if there was one, and there
 * may be another one. */
void spans_failed(struct service_request *request, const char *why);

/* spans_again(request): it is to be decided anew; an attempt that has not
 * failed ends. */
void spans_again(struct service_request *request);

/* spans_ended(request, how, reason, status): as access_ended(). */
void spans_ended(struct service_request *request, const char *how,
                 const char *reason, int status);

/* What engines get in place of the client's traceparent: its value; "": the
 * client's goes on as it is. */
void spans_traceparent(const struct service_request *request,
                       char out[TRACEPARENT_BYTES]);

/* Whether the client had none, or not a good one: its tracestate says nothing
 * then. */
bool spans_is_new(const struct service_request *request);

#endif
