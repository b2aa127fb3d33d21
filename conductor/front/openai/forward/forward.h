/*
 * What the daemon looks at in a body that an engine gets as it is: the model,
 * whether the answer is streamed, and what the prompt's blocks are known by.
 * Whatever else is in it is the engine's business: nothing is refused here but
 * what is no JSON object to everybody. Its texts must be UTF-8 and its numbers
 * finite: what one parser takes another refuses, or reads as something else.
 *
 * A prompt of token ids is known by its ids. A text, a chat or anything else is
 * known by the bytes of its JSON, four to a word: two bodies whose prompts
 * begin with the same bytes share the blocks of that beginning. In English, a
 * word of four bytes is about a token.
 *
 * Some members at the top level do not go on as they are:
 *
 *   kv_transfer_params    never goes on, nor does all else that only Conductor
 *   and others            may say (steer.h)
 *   cache_salt, priority  where struct forward_rules sets them
 *   extra_key             where it sets cache_salt, which SGLang joins with it
 *
 * They are cut out of the bytes, and what is set comes first:
 *
 *   {"a": 1,"kv_transfer_params":{} , "priority":9,"b":2}
 *   {"priority":-5,"a": 1,"b":2}
 */
#ifndef CONDUCTOR_FRONT_OPENAI_FORWARD_FORWARD_H
#define CONDUCTOR_FRONT_OPENAI_FORWARD_FORWARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/front/json/text_buf.h"
#include "conductor/front/openai/error.h"

#define FORWARD_MODEL_BYTES 256
#define FORWARD_MEMBERS 9
/* Places in a body that are cut out; one with more of them is refused. */
#define FORWARD_CUTS 16

/* Slices point into the body. */
struct forward_slice {
    const char *at;
    size_t n;
};

/* What is set in every body, in place of what the client says. NULL: the
 * client's own goes on; "": nothing is set. Borrowed. */
struct forward_rules {
    const char *cache_salt; /* printable ASCII */
    const char *priority;   /* a whole number */
    uint32_t window_tokens; /* the widest of those that may be meant; 0: any */
    bool keyed; /* keys are required: what bodies refer to may be another
                   tenant's */
};

/* What a path's bodies hold. */
struct forward_kind {
    const char *path;
    const char *prompts[5]; /* members that are the prompt; NULL behind them */
    const char *text;       /* whose tokens an engine can be asked for; NULL:
                               none */
    bool chat;              /* that is a chat */
    bool pairs;             /* engines of a pair may share such a request */
    bool sglang;            /* SGLang's own: extra_key in place of cache_salt,
                               and the tokens of each prompt told apart */
};

struct forward_body {
    char model[FORWARD_MODEL_BYTES]; /* "" or null: none is named */
    bool stream;
    bool ids;            /* words are token ids */
    bool several;        /* those of the first of several prompts */
    uint32_t max_tokens; /* 0: not said */
    int32_t priority;    /* likewise, or no whole number */
    uint32_t *words;     /* owned, (n_words) */
    size_t n_words;
    uint64_t *hashes; /* owned, (n_hashes): an engine's names of the prompt's
                         blocks; NULL: none are said */
    size_t n_hashes;
    /* Of such a prompt, as said: its tokens, and those of a block; 0: not. */
    uint32_t prompt_tokens, block_tokens;
    struct forward_slice previous; /* of an answer that an engine keeps: the id,
                                      in its quotes; n 0: none is named */
    const char *refers; /* static: the first other member that refers to what an
                           engine keeps, where keys are required; NULL: none */
    /* What the blocks depend on besides. With ids: cache_salt, as it is, so
     * that the keys are those of the engine's own events. Else that, tools and
     * the template's arguments, as one number in hexadecimal. "": on nothing.
     */
    char salt[FORWARD_MODEL_BYTES];
    char cache_salt[FORWARD_MODEL_BYTES]; /* block_key_name(); "": none */
    char adapter[FORWARD_MODEL_BYTES];    /* likewise, SGLang's lora_path */
    /* The members that decide what the prompt's tokens are. */
    struct forward_slice members[FORWARD_MEMBERS];
    const struct forward_kind *kind; /* NULL: nothing in it is a prompt */
    struct forward_slice cuts[FORWARD_CUTS]; /* (n_cuts), in order */
    size_t n_cuts;
    bool keeps; /* some member is not cut out */
    bool whole; /* no pair of engines may share it: several prompts or answers,
                   or the prompt is part of the answer */
};

/* Where another gateway asks where to send such a body; it may hold what those
 * of completions do, or token_ids, or hashes of blocks. */
#define FORWARD_SCHEDULE_PATH "/v1/schedule"

/* The kind of bodies at a path of forward_path_read(); static. NULL: the
 * engine keeps no KV of what is in them, as far as is known. */
const struct forward_kind *forward_kind_of(const char *path, size_t n);

/* Where in forward_body.members a member of that name stands; -1: nowhere. */
int forward_member(const struct forward_kind *kind, const char *name);

/*
 * Reads body[0 .. n) of a kind, borrowed. Returns 0; -EINVAL with *error set:
 * it is no JSON object, or its model is no text, or it has too many members to
 * cut out, or one in a place where none can be; -ENOMEM. On an error *out has
 * nothing but the model, as far as it was read. O(n).
 */
[[nodiscard]] int forward_body_read(const struct forward_kind *kind,
                                    const char *body, size_t n,
                                    const struct forward_rules *rules,
                                    struct forward_body *out,
                                    struct openai_error *error);

/* Whether the engine gets other bytes than the client sent. */
bool forward_body_changes(const struct forward_body *body,
                          const struct forward_rules *rules);

/*
 * Appends what the engine gets to `out`.
 *   read  what forward_body_read() made of body[0 .. n) with these rules.
 * Errors are kept in out->error. O(n).
 */
void forward_body_write(const struct forward_body *read, const char *body,
                        size_t n, const struct forward_rules *rules,
                        struct text_buf *out);

/*
 * The question what the tokens of its prompt are, in the words of vLLM's
 * /tokenize. Returns it (*n bytes), owned by the caller; NULL: it has no such
 * text, or out of memory.
 */
[[nodiscard]] char *forward_tokenize_body(const struct forward_body *body,
                                          size_t *n);

/* Frees what it owns. A zeroed struct is fine. */
void forward_body_fini(struct forward_body *body);

#endif
