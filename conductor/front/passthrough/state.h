/* Shared by the files of a forwarded request: passthrough.c submits it,
 * answer.c passes its answer on. */
#ifndef CONDUCTOR_FRONT_PASSTHROUGH_STATE_H
#define CONDUCTOR_FRONT_PASSTHROUGH_STATE_H

#include "conductor/front/internal.h"
#include "conductor/front/keepalive.h"

struct forward_call {
    struct front *front;
    struct http_conn *conn;
    struct service_request *request;
    bool answering;
    bool paused;
    bool streams;  /* the engine's answer is a stream of events */
    char last[3];  /* last bytes of the answer; 0 = none yet */
    bool as_event; /* the answer becomes one event of the stream that a comment
                      began */
    bool in_line;  /* a line of that event has begun */
    struct keepalive keepalive;
    int64_t left;       /* bytes of the body; -1 = unknown */
    bool named, traced; /* the answer has its x-request-id, its traceparent
                           already */
    struct told told;
    bool ticket;    /* another gateway sends it (gateway/schedule.c) */
    char *redirect; /* owned: nginx location that continues a ticket's request;
                       NULL = none */
    char *tokenize; /* owned: body of the /tokenize request; NULL = none */
    char *head; /* owned: method, path, headers, authorization, each with its
                   NUL */
};

/* Cancels its request, unless that has ended, and frees the call. */
void forward_call_free(void *arg);

/* Sends the head of a stream before there is an answer; arg is the call. */
void forward_begin_stream(void *arg);

/* Callbacks of the service; arg is the call. */
extern const struct service_reply_ops forward_reply_ops;

/* refuse.c: sets a 400, 404 or 415, and returns -EINVAL: the request names no
 * model where there are several, or an unknown one, or its body is of a type
 * that is not read. model      the name in the request; "" = none. of_header  a
 * header has the name. */
int forward_set_no_model(const struct front_call *call, const char *model,
                         bool of_header, struct openai_error *error);

/* refuse.c: checks by its path alone that a request with a key is about its
 * tenant's own things. Returns 0, also where no key is required; -EINVAL with
 * *error set. */
[[nodiscard]] int forward_check_path(const struct front_call *call,
                                     struct openai_error *error);

/* refuse.c: does the same for all that it names and engines of its model
 * keep. */
[[nodiscard]] int forward_check_own(const struct front_call *call,
                                    const struct service *service,
                                    const struct forward_body *body,
                                    struct openai_error *error);

/* gateway/schedule.c: as forward_reply_ops, for a ticket. */
extern const struct service_reply_ops schedule_reply_ops;

/* gateway/schedule.c: reads a ticket's headers. Returns 0; -EINVAL with *error
 * set; -ENOMEM. */
[[nodiscard]] int schedule_read_headers(struct forward_call *c,
                                        const struct front_call *call,
                                        struct service_forward *f,
                                        struct openai_error *error);

/* gateway/schedule.c: uses an engine's hashes of the prompt's blocks in place
 * of its tokens. Returns 0; -EINVAL or, where keys are required, -EACCES with
 * *error set. */
[[nodiscard]] int schedule_take_hashes(const struct front_call *call,
                                       const struct service *service,
                                       const struct forward_body *body,
                                       struct service_request_params *params,
                                       struct service_forward *f,
                                       struct openai_error *error);

/* answer.c: tells the client that the service refuses the request, and frees
 * the call. */
void forward_refuse(struct forward_call *c,
                    const struct service_failure *failure);

#endif
