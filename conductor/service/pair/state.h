/* What the files of this folder share. */
#ifndef CONDUCTOR_SERVICE_PAIR_STATE_H
#define CONDUCTOR_SERVICE_PAIR_STATE_H

#include "conductor/front/openai/pair/pair.h"
#include "conductor/service/pair/pair.h"

struct pair {
    TAILQ_ENTRY(pair) entry; /* service->pairs, without a request */
    struct service *service;
    struct service_request *request; /* NULL: it has gone */
    const struct pair_protocol *protocol;
    const struct upstream_ops *ops; /* of a prefill leg, and of one that
                                       releases; arg is the pair */
    char request_id[32];
    char *method, *path;       /* owned: a leg may outlive the request */
    char *key;                 /* owned: the client's, a header line or "" */
    struct text_buf body;      /* of the prefill leg */
    struct text_buf answering; /* of the decode leg; empty: the client's own */
    struct text_buf reply; /* the reply to the prefill leg; max_body_total_bytes
                              for all pairs together */
    struct pair_reply told;  /* of it; slices point into it */
    struct pair_ask meeting; /* without a body */
    char *host, *id;         /* owned: its */
    struct pair_usage usage;
    uint32_t decode; /* pool id of the decode engine */
    int status;      /* of the reply; 0: it has not begun */
    uint32_t silent; /* pool id of the engine that had said nothing when the leg
                        of the other failed; POOL_NO_INSTANCE: none */
    bool crowded;    /* its reply was dropped: the replies of all pairs take
                        max_body_total_bytes */
    bool held;       /* the prefill engine keeps KV that nobody has asked for */
    bool asked;      /* the decode engine has asked for it, or will */
    bool beside;     /* concurrent, and the prompt is being computed */
    bool answers;    /* the prefill leg's reply is the client's answer */
    bool unused;     /* the decode engine had no room for the request */
    int64_t sent_us; /* the decode leg */
    /* A concurrent prefill leg; and without a request: */
    struct engine *at;     /* who is asked */
    struct exchange *leg;  /* there */
    char *headers;         /* owned: its */
    struct text_buf empty; /* the body of the leg that releases */
    bool releases;         /* this is that leg */
    int64_t until_us;
};

/* What a leg with that body is made of. */
static inline struct pair_ask pair_ask_of(const struct pair *p,
                                          const char *body, size_t n)
{
    struct pair_ask ask = p->meeting;

    ask.body = body;
    ask.n = n;
    return ask;
}

/* reply.c: the next n bytes of the reply. */
void pair_keep_reply(struct pair *p, const char *bytes, size_t n);

/* reply.c: reads the reply of the prefill leg. Returns 0, or -EINVAL: it has no
 * parameters. */
[[nodiscard]] int pair_read_reply(struct pair *p);

/* reply.c: frees it; its leg is cancelled. NULL is a no-op. */
void pair_free(struct pair *p);

/* beside.c: sends both legs. Returns 0, or -ENOMEM with nothing under way. */
[[nodiscard]] int pair_send_both(struct service_request *request);

/* beside.c: the prompt of a concurrent pair is computed. seen: it ended at
 * now_us; else nobody knows when. From now on the decode engine has the
 * request; no-op if it has it already. */
void pair_pass_on(struct service_request *request, bool seen, int64_t now_us);

/* release.c: it goes on without its request. */
void pair_outlive(struct pair *p);

/* release.c. pair_outlived_ended(): the leg of a pair without a request has
 * ended: the pair is freed, or sends the leg that releases the KV.
 * pair_strand(): that leg has failed: the KV stays until its lease ends, and
 * the pair is freed. */
void pair_outlived_ended(struct pair *p);
void pair_strand(struct pair *p);

#endif
