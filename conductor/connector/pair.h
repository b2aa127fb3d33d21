/*
 * Bodies for the two engines of a pair for one request: the leg that computes
 * the prompt, and the leg that answers. A protocol is a struct of functions
 * over bodies; the service sends them.
 *
 *   sequential   prefill leg --reply--> decode leg, with parameters of the
 *                reply
 *   concurrent   both legs at once; the engines find each other
 *
 * Bodies are the client's except for the members that a protocol sets or leaves
 * out; every value that stays is byte for byte the client's.
 */
#ifndef CONDUCTOR_CONNECTOR_PAIR_H
#define CONDUCTOR_CONNECTOR_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/json/text_buf.h"

/* Values of an engine's kv_connector, in the order of their names. */
enum pair_connector {
    PAIR_NONE,
    PAIR_NIXL,
    PAIR_SHARED_STORAGE,
    PAIR_SGLANG,
    PAIR_OFFLOADING,
    PAIR_MOONCAKE
};
#define PAIR_CONNECTORS 6

/* Values that legs are made of. All of it is borrowed. */
struct pair_ask {
    const char *body; /* (n): a JSON object, the client's */
    size_t n;
    /* For engines that meet, where they find each other: */
    const char *host; /* the prefill engine's */
    int64_t port;
    int64_t rank;   /* of its data-parallel ones */
    uint64_t room;  /* unique; any number */
    const char *id; /* from its bootstrap server; NULL = none */
};

/* Values of a sequential prefill leg's reply. Slices point into it. */
struct pair_reply {
    const char *params; /* (n_params): kv_transfer_params, an object; NULL =
                           none */
    size_t n_params;
    int64_t prompt_tokens, cached_tokens; /* of its usage; -1 = unknown */
};

struct pair_protocol {
    const char *kind;      /* of its engines, as in their entries */
    const char *passes_on; /* member of the prefill leg's reply that the decode
                              leg's body gets; NULL = none */
    bool alone;  /* its decode engines serve requests on their own, too */
    bool leased; /* the prefill engine keeps the KV of a reply with parameters
                    until the decode leg has fetched it */
    bool concurrent; /* both legs are sent at once */
    bool meets;  /* the decode leg names the meeting place, and needs no part of
                    the reply */
    bool ranked; /* the prefill engine's rank must be known */
    bool bootstraps; /* prefill engines' ids come from a bootstrap server */
    uint16_t port;   /* default port where engines meet; 0 = they do not */
    bool any;        /* it also serves requests with several prompts or answers,
                        on all paths that take prompts */
    /* Append a leg's body. Return 0; -EINVAL: the body is no JSON object;
     * -ENOMEM. The decode leg without parameters, or with NULL here, is the
     * client's own body; of concurrent legs with NULL, the prefill leg's. */
    int (*prefill)(const struct pair_ask *ask, struct text_buf *out);
    int (*decode)(const struct pair_ask *ask, const struct pair_reply *reply,
                  struct text_buf *out);
};

/* Returns a connector's protocol, static; NULL for PAIR_NONE. */
const struct pair_protocol *pair_protocol(enum pair_connector connector);

/* Returns a bit for each connector whose engines cannot share a request.
 *   usual  one prompt and one answer, on a path of completions. */
uint32_t pair_apart(bool usual);

/* "none", "nixl", ..., NULL. */
extern const char *const pair_connector_names[PAIR_CONNECTORS + 1];

/*
 * Appends body[0 .. n) with members left out and set.
 *   drop  names to leave out, then NULL.
 *   set   members with their names, put first, without a comma at either end;
 *         "" = none.
 * Returns 0; -EINVAL: it is no JSON object; or out->error. O(n).
 */
[[nodiscard]] int pair_edit(const char *body, size_t n, const char *const *drop,
                            const char *set, struct text_buf *out);

/* Does the same as pair_edit() with the members in *set, and frees that. */
[[nodiscard]] int pair_edit_with(const struct pair_ask *ask,
                                 const char *const *drop, struct text_buf *set,
                                 struct text_buf *out);

/* Members of bodies that are connectors' alone: a client's reach no engine. */
#define PAIR_MEMBERS(of)                                                  \
    of("kv_transfer_params"), of("bootstrap_host"), of("bootstrap_port"), \
        of("bootstrap_room"), of("bootstrap_pair_key")
#define PAIR_MEMBER_NAME(name) name
extern const char *const pair_drops[];

/*
 * Appends the body of a leg that computes the prompt and one token: not
 * streamed, its limits 1.
 *   drop  names to leave out: PAIR_PREFILL_DROPS, and perhaps more.
 *   set   further members, as in pair_edit().
 */
#define PAIR_PREFILL_DROPS                                                    \
    PAIR_MEMBERS(PAIR_MEMBER_NAME), "stream", "stream_options", "max_tokens", \
        "max_completion_tokens", "min_tokens"
extern const char *const pair_prefill_drops[];
[[nodiscard]] int pair_edit_prefill(const struct pair_ask *ask,
                                    const char *const *drop, const char *set,
                                    struct text_buf *out);

/* Reads a prefill leg's reply. Returns 0; -EINVAL: it is no JSON object, or its
 * parameters are neither an object nor null. O(n). */
[[nodiscard]] int pair_reply_read(const char *reply, size_t n,
                                  struct pair_reply *out);

/* Replaces cached_tokens in the decode leg's answer, which comes in pieces, by
 * the prefill leg's. {.cached_tokens = -1} changes nothing. */
struct pair_usage {
    int64_t cached_tokens;
    char held[64]; /* (n_held): end of the input so far, perhaps a part of the
                      member */
    size_t n_held;
};

/* Appends the client's bytes for the next n bytes; all of them if `last`. */
void pair_usage_write(struct pair_usage *u, const char *bytes, size_t n,
                      bool last, struct text_buf *out);

extern const struct pair_protocol pair_nixl, pair_shared_storage, pair_sglang,
    pair_offloading, pair_mooncake;

#endif
