/*
 * What two engines of a pair are sent for one request: the leg that computes
 * the prompt, and the leg that answers. A protocol is a struct of functions
 * over bodies; who sends them, and when, is the service's business.
 *
 *   sequential   prefill leg --reply--> decode leg, with what the reply holds
 *   concurrent   both legs at once; the engines find each other
 *
 * Bodies are the client's but for the members that a protocol sets or leaves
 * out; every value that stays is byte for byte the client's.
 */
#ifndef CONDUCTOR_FRONT_OPENAI_PAIR_PAIR_H
#define CONDUCTOR_FRONT_OPENAI_PAIR_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/front/json/text_buf.h"

/* The words of an engine's kv_connector, in their order. */
enum pair_connector {
    PAIR_NONE,
    PAIR_NIXL,
    PAIR_SHARED_STORAGE,
    PAIR_SGLANG,
    PAIR_OFFLOADING,
    PAIR_MOONCAKE
};
#define PAIR_CONNECTORS 6

/* What legs are made of. All of it is borrowed. */
struct pair_ask {
    const char *body; /* (n): a JSON object, the client's */
    size_t n;
    /* Where the engines find each other, if they meet: */
    const char *host; /* the prefill engine's */
    int64_t port;
    int64_t rank;   /* of its data-parallel ones */
    uint64_t room;  /* nobody else's; any */
    const char *id; /* that its bootstrap server tells; NULL: none */
};

/* What a sequential prefill leg's reply says. Slices point into it. */
struct pair_reply {
    const char *params; /* (n_params): kv_transfer_params, an object; NULL:
                           none */
    size_t n_params;
    int64_t prompt_tokens, cached_tokens; /* of its usage; -1: not told */
};

struct pair_protocol {
    const char *name;
    bool alone;  /* its decode engines serve requests on their own, too */
    bool leased; /* the prefill engine keeps the KV of a reply with parameters
                    until the decode leg has fetched it */
    bool concurrent; /* both legs are sent at once */
    bool meets;  /* the decode leg is made of where the engines meet, and not of
                    the reply */
    bool ranked; /* which rank of a prefill engine it is must be known */
    bool bootstraps; /* prefill engines have a server that tells their ids */
    uint16_t port;   /* where engines meet, usually; 0: they do not */
    bool any;        /* requests of several prompts or answers, and on all paths
                        of prompts, can be shared, too */
    /* Append a leg's body. Return 0; -EINVAL: the body is no JSON object;
     * -ENOMEM. The decode leg without parameters, or with NULL here, is the
     * client's own body; of concurrent legs with NULL, the prefill leg's. */
    int (*prefill)(const struct pair_ask *ask, struct text_buf *out);
    int (*decode)(const struct pair_ask *ask, const struct pair_reply *reply,
                  struct text_buf *out);
};

/* The protocol of a connector; NULL: PAIR_NONE. Static. */
const struct pair_protocol *pair_protocol(enum pair_connector connector);

/* A bit of each connector whose engines cannot share a request.
 *   usual  one prompt and one answer, on a path of completions. */
uint32_t pair_apart(bool usual);

/* "none", "nixl", ...; NULL behind the last. */
extern const char *const pair_connector_names[PAIR_CONNECTORS + 1];

/*
 * Appends body[0 .. n) with other members.
 *   drop  names that are left out, NULL behind the last.
 *   set   members with their names, without a comma at either end, put first;
 *         "": none.
 * Returns 0; -EINVAL: it is no JSON object; or out->error. O(n).
 */
[[nodiscard]] int pair_edit(const char *body, size_t n, const char *const *drop,
                            const char *set, struct text_buf *out);

/* Likewise, with members that text_buf_*() have put into *set, which is freed.
 */
[[nodiscard]] int pair_edit_with(const struct pair_ask *ask,
                                 const char *const *drop, struct text_buf *set,
                                 struct text_buf *out);

/* What a client may not say of vLLM's connectors. */
extern const char *const pair_vllm_drop[];

/*
 * Appends the body of a leg that computes the prompt and one token: not
 * streamed, its limits 1.
 *   drop  names that are left out: PAIR_PREFILL_DROPS, and perhaps more.
 *   set   further members, as in pair_edit().
 */
#define PAIR_PREFILL_DROPS                                          \
    "kv_transfer_params", "stream", "stream_options", "max_tokens", \
        "max_completion_tokens", "min_tokens"
extern const char *const pair_prefill_drops[];
[[nodiscard]] int pair_edit_prefill(const struct pair_ask *ask,
                                    const char *const *drop, const char *set,
                                    struct text_buf *out);

/* Reads a prefill leg's reply. Returns 0; -EINVAL: it is no JSON object, or its
 * parameters are neither an object nor null. O(n). */
[[nodiscard]] int pair_reply_read(const char *reply, size_t n,
                                  struct pair_reply *out);

/* Puts the prefill leg's cached tokens into the answer of the decode leg, which
 * comes in pieces, in place of its own. {.cached_tokens = -1}: leaves it. */
struct pair_usage {
    int64_t cached_tokens;
    char held[64]; /* (n_held): the end of what came, which may begin a name */
    size_t n_held;
};

/* Appends what the client gets of the next n bytes; of the last ones all. */
void pair_usage_write(struct pair_usage *u, const char *bytes, size_t n,
                      bool last, struct text_buf *out);

extern const struct pair_protocol pair_nixl, pair_shared_storage, pair_sglang,
    pair_offloading, pair_mooncake;

#endif
