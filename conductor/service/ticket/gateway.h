/*
 * Calls of the front for other gateways, beside service.h: decides where a
 * gateway sends its request.
 *
 *   service_submit, its forward->ticket set
 *     -> scheduled: service_ticket_take() in there ends the front's part
 *     -> failed: the request has no place
 *   models_report_ticket: reports of the gateway
 */
#ifndef CONDUCTOR_SERVICE_TICKET_GATEWAY_H
#define CONDUCTOR_SERVICE_TICKET_GATEWAY_H

#include "conductor/service/service.h"

#define SERVICE_TICKET_BYTES 64
#define SERVICE_ADDRESS_BYTES 280

/* An instance of a ticket. Borrowed for the callback only. */
struct service_place {
    const char *name;                    /* NULL = none takes part */
    const char *url;                     /* as configured */
    char address[SERVICE_ADDRESS_BYTES]; /* host:port to connect to */
    int dp_rank; /* data-parallel rank of its server; -1 = none */
};

#define SERVICE_LEG_BYTES 1024

/* The gateway's instructions for a pair of engines. */
struct service_legs {
    const char *connector; /* NULL = one engine computes all */
    bool at_once; /* both legs are sent at once; else the decode leg follows the
                     prefill leg's answer */
    /* Members to replace in a leg's body, as a JSON object; "" = the client's
     * body unchanged, or with members from the prefill leg's answer. */
    char prefill[SERVICE_LEG_BYTES], decode[SERVICE_LEG_BYTES];
    const char *passes_on; /* member of the prefill leg's answer to put into the
                              decode leg; NULL = none */
};

/* A decision that another gateway carries out. */
struct service_ticket {
    char id[SERVICE_TICKET_BYTES]; /* no blanks, hard to guess */
    struct service_place prefill, decode;
    struct service_legs legs;
    uint32_t prompt_tokens, cached_tokens;
    uint32_t local_tokens, fetched_tokens; /* of cached_tokens */
    const char *mode;                      /* how blocks are loaded */
    const char *known_by; /* as "tokens", "hashes" or "bytes" */
    bool predicts;        /* the times below are times */
    int64_t ttft_us, queue_us, prefill_us, tbt_us;
    int64_t expires_us; /* from now; the ticket ends without a report by then */
    const char *costs;  /* source of the times: "file", "learned", .. */
};

/*
 * Takes over a request with a ticket; call it in the callback `scheduled`. From
 * then on the service owns the request, and calls none of its callbacks. It
 * occupies the ticket's instances until models_report_ticket() or a time-out
 * ends it.
 */
void service_ticket_take(struct service_request *request,
                         struct service_ticket *out);

enum service_ticket_state {
    SERVICE_TICKET_FIRST_TOKEN, /* the answer has begun */
    SERVICE_TICKET_DONE,        /* it ended well */
    SERVICE_TICKET_FAILED,      /* no answer will come */
};

/* A gateway's report about a ticket. */
struct service_ticket_report {
    enum service_ticket_state state;
    int64_t ttft_us;       /* from ticket to first token; -1 = unknown */
    int64_t output_tokens; /* so far; -1 = unknown */
    /* By the engine's usage; -1 = unknown. */
    int64_t prompt_tokens, cached_tokens;
};

/* Takes a report. Returns 0 or -ENOENT: no such ticket is open. */
[[nodiscard]] int
models_report_ticket(const struct models *models, const char *id,
                     const struct service_ticket_report *report);

/* A question about the cached blocks of a prompt. All borrowed. */
struct service_question {
    const uint32_t *tokens; /* (n) */
    const uint64_t *hashes; /* (n): an engine's hashes of the prompt's blocks;
                               NULL = use tokens */
    size_t n;
    const char *adapter, *salt; /* for tokens; "" = none */
};

/* Tokens of a prompt's leading whole blocks that an instance holds: on its
 * device; on device or in host memory; in any tier. */
struct service_holding {
    const char *name; /* borrowed until the loop's next turn */
    int rank;
    uint32_t device, host, all;
};

struct service_holdings {
    struct service_holding *at; /* (n) */
    size_t n;
};

/* Finds the instances that hold blocks of a prompt. Returns 0 with *out, which
 * the caller gives to service_holdings_fini(), or -ENOMEM. A hash that no
 * engine has published ends the prompt. Cost: a match and O(instances). */
[[nodiscard]] int service_ask_index(struct service *s,
                                    const struct service_question *question,
                                    struct service_holdings *out);
void service_holdings_fini(struct service_holdings *holdings);

/* An instance and its sources of KV events. Borrowed for the call. */
struct service_listener {
    const char *name, *endpoint, *replay, *state, *kind;
    int rank;
    uint64_t blocks; /* in the index */
};

/* service_listeners(): calls each(arg, ..) for the instances of a model. */
typedef void service_listener_fn(void *arg,
                                 const struct service_listener *listener);
void service_listeners(const struct service *s, service_listener_fn *each,
                       void *arg);

#endif
