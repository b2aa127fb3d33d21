/* Shared by the files of a completion: completion.c submits requests, answer.c
 * writes their answers. */
#ifndef CONDUCTOR_FRONT_COMPLETION_STATE_H
#define CONDUCTOR_FRONT_COMPLETION_STATE_H

#include "conductor/front/internal.h"
#include "conductor/front/keepalive.h"
#include "conductor/front/openai/reply.h"

struct slot {
    struct completion *completion;
    struct service_request *request; /* NULL = ended, or not yet submitted */
    bool begun;                      /* its first token came */
    struct told told;
    struct text_buf text;
    struct openai_outcome *outcome; /* in completion.outcomes */
};

struct completion {
    struct front *front;
    struct http_conn *conn;
    struct openai_reply_head head;
    bool stream;
    bool named; /* the answer has its x-request-id already */
    bool include_usage;
    bool streaming;
    struct keepalive keepalive;
    struct text_buf out; /* being written */
    size_t n;
    size_t left;
    struct openai_outcome *outcomes; /* (n), behind the slots */
    struct slot slots[];             /* (n) */
};

/* Cancels requests that have not ended, and frees the completion. */
void completion_free(void *arg);

/* Sends the head of a stream; arg is the completion. */
void completion_begin_stream(void *arg);

/* Callbacks of the service; arg is the slot. */
extern const struct service_reply_ops completion_ops;

#endif
