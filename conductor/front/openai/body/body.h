/*
 * Reads a body that goes on to an engine: the model, whether the answer is
 * streamed, and the words that the prompt's block keys are made of. All else is
 * left to the engine: only a body that is no JSON object to every parser is
 * refused. Its texts must be UTF-8 and its numbers finite, since parsers differ
 * on others.
 *
 * A prompt of token ids has these as its words. For a text, a chat or anything
 * else the words are the bytes of its JSON, four to a word: two bodies whose
 * prompts begin with the same bytes share the blocks of that beginning. In
 * English, a word of four bytes is about a token.
 *
 * Some members at the top level do not go on as they are:
 *
 *   kv_transfer_params    never goes on, nor do others that only Conductor may
 *   and others            send (steer.h)
 *   cache_salt, priority  where struct forward_rules sets them
 *   extra_key             where it sets cache_salt, which SGLang joins with it
 *
 * They are cut out of the bytes, and the values that are set come first:
 *
 *   {"a": 1,"kv_transfer_params":{} , "priority":9,"b":2}
 *   {"priority":-5,"a": 1,"b":2}
 */
#ifndef CONDUCTOR_FRONT_OPENAI_BODY_BODY_H
#define CONDUCTOR_FRONT_OPENAI_BODY_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/front/openai/error.h"
#include "conductor/http/parse.h"
#include "conductor/json/text_buf.h"

#define FORWARD_MODEL_BYTES 256
#define FORWARD_PARTS 9
/* Limit on places that are cut out of a body; one with more is refused. */
#define FORWARD_CUTS 16

/* Values set in every body, in place of the client's. NULL = the client's own
 * goes on; "" = none is set, and the client's is taken out. Borrowed. */
struct forward_rules {
    const char *cache_salt; /* printable ASCII */
    const char *priority;   /* a whole number */
    uint32_t window_tokens; /* largest window of the candidate models; 0 =
                               unlimited */
    bool keyed; /* keys are required: bodies may refer to another tenant's
                   things */
};

/* Members of the bodies at a path. */
struct forward_kind {
    const char *path;
    const char *prompts[5]; /* members that may be the prompt, then NULL */
    const char *text;       /* the one whose tokens an engine can be asked for;
                               NULL = none */
    bool chat;              /* `text` is a chat */
    bool pairs;             /* engines of a pair may share such a request */
    bool sglang;            /* SGLang's own: extra_key in place of cache_salt,
                               and the tokens of each prompt told apart */
};

/* Slices point into the body. */
struct forward_body {
    char model[FORWARD_MODEL_BYTES]; /* "" = none, or null */
    bool stream;
    bool ids;            /* words are token ids, else bytes */
    bool several;        /* words are of the first of several prompts */
    uint32_t max_tokens; /* 0 = not given */
    int32_t priority;    /* 0 = not given, or not a whole number */
    uint32_t *words;     /* owned, (n_words) */
    size_t n_words;
    uint64_t *hashes; /* owned, (n_hashes): an engine's hashes of the prompt's
                         blocks; NULL = none */
    size_t n_hashes;
    /* With hashes, as given: tokens of the prompt, and of a block; 0 = not
     * given. */
    uint32_t prompt_tokens, block_tokens;
    struct http_slice previous; /* id, in its quotes, of an answer that an
                                      engine keeps; n 0 = none */
    const char *refers; /* static: first other member that refers to things an
                           engine keeps, where keys are required; NULL = none */
    /* The part of block keys beside the prompt. With ids: cache_salt,
     * unchanged, so that the keys equal the keys in the engine's own events.
     * Else a hash, in hexadecimal, of that, the tools and the template's
     * arguments. */
    char salt[FORWARD_MODEL_BYTES];
    char cache_salt[FORWARD_MODEL_BYTES]; /* block_key_name(); "" = none */
    char adapter[FORWARD_MODEL_BYTES];    /* likewise, SGLang's lora_path */
    /* The members that the prompt's tokens depend on. */
    struct http_slice parts[FORWARD_PARTS];
    const struct forward_kind *kind;      /* NULL = nothing in it is a prompt */
    struct http_slice cuts[FORWARD_CUTS]; /* (n_cuts), in order */
    size_t n_cuts;
    bool keeps; /* some member is not cut out */
    bool whole; /* engines of a pair may not share it: several prompts or
                   answers, or the answer has the prompt */
};

/* Path at which other gateways ask where to send a body; it may have members of
 * completions and chats, token_ids, or hashes of blocks. */
#define FORWARD_SCHEDULE_PATH "/v1/schedule"

/* Returns the kind of bodies at a path of forward_path_read(); static. NULL =
 * engines keep no KV of them, as far as is known. */
const struct forward_kind *forward_kind_of(struct http_slice path);

/* Returns the member's place in body->parts; NULL = it has none. */
struct member;
struct http_slice *forward_part(struct forward_body *body,
                                const struct member *m);

/*
 * Reads body[0 .. n) of a kind, borrowed. Returns 0; -EINVAL with *error set:
 * it is no JSON object, its model is no text, or it has too many members to cut
 * out, or one where none can be cut out; -ENOMEM. On an error *out has only the
 * model, if it was read. O(n).
 */
[[nodiscard]] int forward_body_read(const struct forward_kind *kind,
                                    const char *body, size_t n,
                                    const struct forward_rules *rules,
                                    struct forward_body *out,
                                    struct openai_error *error);

/* Returns whether the engine gets other bytes than the client sent. */
bool forward_body_changes(const struct forward_body *body,
                          const struct forward_rules *rules);

/*
 * Appends the engine's body to `out`.
 *   read  result of forward_body_read() for body[0 .. n) with these rules.
 * Errors are kept in out->error. O(n).
 */
void forward_body_write(const struct forward_body *read, const char *body,
                        size_t n, const struct forward_rules *rules,
                        struct text_buf *out);

/*
 * Makes the body of vLLM's /tokenize for its prompt. Returns it (*n bytes),
 * owned by the caller; NULL: it has no such text, or out of memory.
 */
[[nodiscard]] char *forward_tokenize_body(const struct forward_body *body,
                                          size_t *n);

/* Frees what it owns. A zeroed struct is fine. */
void forward_body_fini(struct forward_body *body);

#endif
