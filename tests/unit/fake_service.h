/* A service whose requests a test moves by hand. */
#ifndef TESTS_UNIT_FAKE_SERVICE_H
#define TESTS_UNIT_FAKE_SERVICE_H

#include "conductor/service/service.h"

enum { FAKE_CALLS = 256 };

struct service_request {
    struct service *service;
    const struct service_reply_ops *ops;
    void *arg;
    struct service_request_params params; /* tokens and salt copied */
    bool dead;
    bool cancelled;
};

struct service {
    struct service_model_info model;
    bool ready;
    const char *lacks;   /* while not ready; NULL: everything */
    const char *drained; /* ": all 2 are drained"; NULL = not */
    int submit_errno;    /* submit fails with this, once `allowed` is used up */
    size_t allowed;
    struct service_request *requests[FAKE_CALLS];
    size_t n_requests;
    size_t n_cancelled;
};

/* The one model. */
struct models {
    struct service *service;
    uint64_t decided;
    size_t more_bytes; /* in the list of instances */
};

/* Forget and free all requests. */
void fake_service_reset(struct service *service);

/* The request is placed on `prefill` and `decode` (NULL: none). */
void fake_schedule(struct service_request *request, const char *prefill,
                   const char *decode);

/* The request outputs the bytes of `text` as tokens. */
void fake_tokens(struct service_request *request, const char *text);

/* The request ends well. */
void fake_done(struct service_request *request);

/* The request ends with an error. */
void fake_fail(struct service_request *request, int http_status,
               const char *code, const char *message, int64_t retry_after_us);

/* All of it: placed on p0 and d0, as many letters as it may, done. */
void fake_run(struct service_request *request);

#endif
