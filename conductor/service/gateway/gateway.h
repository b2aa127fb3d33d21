/*
 * What the front may ask on behalf of other gateways, beside service.h: where a
 * request is to be sent that they send themselves.
 *
 *   service_submit, its forward->ticket set
 *     -> scheduled: service_ticket_take() in there ends the front's part
 *     -> failed: there is no place for it
 *   models_report_ticket: what became of it
 */
#ifndef CONDUCTOR_SERVICE_GATEWAY_GATEWAY_H
#define CONDUCTOR_SERVICE_GATEWAY_GATEWAY_H

#include "conductor/service/service.h"

#define SERVICE_TICKET_BYTES 64
#define SERVICE_ADDRESS_BYTES 280

/* An instance of a ticket. Borrowed for the callback only. */
struct service_place {
    const char *name;                    /* NULL: none takes part */
    const char *url;                     /* as it was configured */
    char address[SERVICE_ADDRESS_BYTES]; /* host:port to connect to */
    int dp_rank; /* it is this one of a server's ranks; -1: it is not */
};

/* A decision that another gateway carries out. */
struct service_ticket {
    char id[SERVICE_TICKET_BYTES]; /* no blanks, hard to guess */
    struct service_place prefill, decode;
    uint32_t prompt_tokens, cached_tokens;
    uint32_t local_tokens, fetched_tokens; /* of cached_tokens */
    const char *mode;                      /* how blocks are loaded */
    bool tokens_known; /* false: the prompt is known by its bytes */
    bool predicts;     /* the times below are times */
    int64_t ttft_us, queue_us, prefill_us, tbt_us;
    int64_t expires_us; /* from now: without a word by then it ends */
    const char *costs;  /* what the times rest on: "file", "learned", .. */
};

/*
 * In the callback `scheduled` of a request with a ticket: the request is the
 * service's from now on, and none of its callbacks comes any more. Until
 * models_report_ticket() or its time-out ends it, it counts as being where the
 * ticket says.
 */
void service_ticket_take(struct service_request *request,
                         struct service_ticket *out);

enum service_ticket_state {
    SERVICE_TICKET_FIRST_TOKEN, /* the answer has begun */
    SERVICE_TICKET_DONE,        /* it ended well */
    SERVICE_TICKET_FAILED,      /* there is none */
};

/* What a gateway says of a ticket. */
struct service_ticket_report {
    enum service_ticket_state state;
    int64_t ttft_us;       /* of the answer, from the ticket on; -1: not told */
    int64_t output_tokens; /* so far; -1: not told */
    int64_t cached_tokens; /* as the engine told; -1: not told */
};

/* Takes a report. Returns 0; -ENOENT: no such ticket is open. */
[[nodiscard]] int
models_report_ticket(const struct models *models, const char *id,
                     const struct service_ticket_report *report);

#endif
