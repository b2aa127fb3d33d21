/* A pair, shared by the files of this folder. */
#ifndef CONDUCTOR_SERVICE_PAIR_STATE_H
#define CONDUCTOR_SERVICE_PAIR_STATE_H

#include "conductor/connector/pair.h"
#include "conductor/service/pair/pair.h"

struct pair {
    TAILQ_ENTRY(pair) entry; /* in engines.pairs, once its request has ended */
    struct service *service;
    struct service_request *request; /* NULL = the request has ended */
    const struct pair_protocol *protocol;
    const struct upstream_ops *ops; /* of all legs but the decode leg */
    char request_id[32];
    char *method, *path;  /* owned, since a leg may outlive the request */
    char *key;            /* owned: client's API key as a header line, or "" */
    struct text_buf body; /* of the prefill leg */
    struct text_buf answering; /* key of the decode leg; empty = the client's */
    struct text_buf reply;   /* to the prefill leg; max_body_total_bytes bounds
                                those of all pairs together */
    struct pair_reply told;  /* parsed reply; slices point into it */
    struct pair_ask meeting; /* meeting point; without a body */
    char *host, *id;         /* owned, of `meeting` */
    struct pair_usage usage;
    uint32_t decode; /* pool id of the decode engine */
    int status;      /* of the reply; 0 = none yet */
    bool crowded;    /* reply dropped: all replies together reached
                        max_body_total_bytes */
    bool held;       /* the prefill engine keeps KV not yet asked for */
    bool asked;      /* the decode engine is fetching the KV */
    bool beside;     /* concurrent legs, and the prompt is being computed */
    bool answers;    /* the prefill leg's reply is the client's answer */
    bool unused;     /* the decode engine had no room for the request */
    int64_t sent_us; /* when the decode leg was sent */
    /* The concurrent prefill leg, or a leg after the request's end: */
    struct engine *at;     /* the engine asked */
    struct exchange *leg;  /* in flight there; NULL = none */
    char *headers;         /* owned, of `leg` */
    struct text_buf empty; /* the body of the leg that releases */
    bool releases;         /* the leg is for the release of KV */
    int64_t until_us;
};

/* Returns the parts of a leg with this body. */
static inline struct pair_ask pair_ask_of(const struct pair *p,
                                          const char *body, size_t n)
{
    struct pair_ask ask = p->meeting;

    ask.body = body;
    ask.n = n;
    return ask;
}

/* reply.c: keeps the next n bytes of the reply. */
void pair_keep_reply(struct pair *p, const char *bytes, size_t n);

/* reply.c: reads the prefill leg's reply into `told`. Returns 0 or -EINVAL. */
[[nodiscard]] int pair_read_reply(struct pair *p);

/* reply.c: frees a pair, and cancels its leg. NULL is a no-op. */
void pair_free(struct pair *p);

/* pair.c: begins the prefill leg of a request, whose forward->engine is chosen.
 * Returns 0 or -ENOMEM; pair_abort() cleans up. */
[[nodiscard]] int pair_ask_prefill(struct service_request *request);

/* beside.c: handles a failure of a concurrent pair's decode leg: from then on
 * the decode engine, not the prefill engine, is blamed. */
void pair_blames_decode(struct service_request *request);

/* beside.c: returns the engine whose answer the client gets. */
struct engine *pair_answerer(const struct service_request *request);

/* beside.c: does instance_ops.lost_with. Cancels a prefill leg at e that is no
 * longer needed. */
bool pair_lost_with(struct service_request *request, const struct engine *e);

/* release.c: do instance_ops.abort and free. The pair is freed, or releases the
 * KV kept at the prefill engine, or waits for the end of a prefill leg. */
void pair_abort(struct service_request *request);
void pair_end(struct service_request *request);

/* beside.c: sends both legs. Returns 0 or -ENOMEM; pair_abort() cleans up. */
[[nodiscard]] int pair_send_both(struct service_request *request);

/* beside.c: ends the prefill of a concurrent pair; no-op if it has ended. seen:
 * it ended at now_us; else the time is unknown. The decode engine has the
 * request from then on. */
void pair_pass_on(struct service_request *request, bool seen, int64_t now_us);

/* release.c: keeps the pair beyond its request. */
void pair_outlive(struct pair *p);

/* release.c. pair_outlived_ended(): handles the end of a leg of a pair without
 * a request: frees the pair, or sends the leg that releases the KV.
 * pair_strand(): handles a failure of that leg: frees the pair; the KV stays
 * until its lease ends. */
void pair_outlived_ended(struct pair *p);
void pair_strand(struct pair *p);

#endif
