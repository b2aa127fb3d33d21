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
    bool streams;  /* the answer is of events, as the engine sends them */
    char last;     /* byte of it; 0: none has come */
    bool as_event; /* the answer becomes one event of the stream that a comment
                      has begun */
    bool in_line;  /* a line of that event has begun */
    struct keepalive keepalive;
    int64_t left;       /* of a body of known length; -1: not known */
    bool named, traced; /* its x-request-id, its traceparent stand in the answer
                           already */
    char request_id[FORWARD_NAME_BYTES], prefill[FORWARD_NAME_BYTES],
        decode[FORWARD_NAME_BYTES];
    int64_t predicted_ttft_us;
    bool ticket;    /* another gateway sends it (gateway/schedule.c) */
    char *redirect; /* of a ticket, owned: what nginx is to do then; NULL:
                       nothing */
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

/* refuse.c: 400, 404 or 415: no model is named where several could be meant, or
 * an unknown one, or in a body that is not read.
 *   model      that the request names; "": none.
 *   of_header  a header does. */
void forward_set_no_model(const struct front_call *call, const char *model,
                          bool of_header, struct openai_error *error);

/* refuse.c: whether a request with a key is about what its tenant may have, by
 * its path alone. Returns 0, also where no key is required; -EACCES or -ENOENT
 * with *error set. */
[[nodiscard]] int forward_check_path(const struct front_call *call,
                                     struct openai_error *error);

/* refuse.c: likewise, by all that it names of what engines of its model keep.
 */
[[nodiscard]] int forward_check_own(const struct front_call *call,
                                    const struct service *service,
                                    const struct forward_body *body,
                                    struct openai_error *error);

/* gateway/schedule.c: as forward_reply_ops, of a ticket. */
extern const struct service_reply_ops schedule_reply_ops;

/* gateway/schedule.c: what the headers say of a ticket. Returns 0; -EINVAL with
 * *error set; -ENOMEM. */
[[nodiscard]] int schedule_read_headers(struct forward_call *c,
                                        const struct front_call *call,
                                        struct service_forward *f,
                                        struct openai_error *error);

/* gateway/schedule.c: the prompt is known by the names that an engine has for
 * its blocks. Returns 0; -EINVAL or, where keys are required, -EACCES with
 * *error set. */
[[nodiscard]] int schedule_take_hashes(const struct front_call *call,
                                       const struct service *service,
                                       const struct forward_body *body,
                                       struct service_request_params *params,
                                       struct service_forward *f,
                                       struct openai_error *error);

/* answer.c: keeps what forward_add_headers() tells of it. */
void forward_note_decision(struct forward_call *c,
                           const struct service_decision *d);

/* answer.c: adds the headers that say who answers, and what was promised. */
void forward_add_headers(struct forward_call *c);

/* answer.c: the service refuses it; the client is told, and it is freed. */
void forward_refuse(struct forward_call *c,
                    const struct service_failure *failure);

#endif
