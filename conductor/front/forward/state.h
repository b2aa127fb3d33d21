/* What the files of a forwarded request share: forward.c takes it on,
 * answer.c gives its answer. */
#ifndef CONDUCTOR_FRONT_FORWARD_STATE_H
#define CONDUCTOR_FRONT_FORWARD_STATE_H

#include "conductor/front/internal.h"
#include "conductor/front/keepalive.h"

#define FORWARD_NAME_BYTES 64

struct forward_call {
    struct front *front;
    struct http_conn *conn;
    struct service_request *request;
    bool answering;
    bool paused;
    bool as_event; /* the answer becomes one event of the stream that a comment
                      has begun */
    bool in_line;  /* a line of that event has begun */
    struct keepalive keepalive;
    int64_t left; /* of a body of known length; -1: not known */
    char client_id[FORWARD_NAME_BYTES]; /* x-request-id, cut; "": none */
    char request_id[FORWARD_NAME_BYTES], prefill[FORWARD_NAME_BYTES],
        decode[FORWARD_NAME_BYTES];
    int64_t predicted_ttft_us;
    char *tokenize; /* owned: the question for tokens; NULL: none */
    char *head; /* owned: method, path, headers, authorization, each with its
                   NUL */
};

/* Cancels its request, unless that has ended, and frees it. */
void forward_call_free(void *arg);

/* Sends the head of a stream before there is an answer; arg is the call. */
void forward_begin_stream(void *arg);

/* What the service calls; arg is the call. */
extern const struct service_reply_ops forward_reply_ops;

#endif
