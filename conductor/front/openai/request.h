/*
 * Turns a request body of POST /v1/completions or /v1/chat/completions into
 * parameters for the service, or an error that names the field and its value.
 *
 * Text is tokenised as bytes: a token id is a byte's value. A chat becomes
 * bytes by this template, one line pair per message, in order:
 *
 *   <|ROLE|>\n CONTENT \n      for every message
 *   <|assistant|>\n            at the end, for the answer to come
 *
 * (without the blanks), where CONTENT is the string, or the texts of the
 * parts one after the other, and behind it the JSON of tool_calls, if any. So
 * the next turn of a conversation, with the answer put in as an assistant
 * message, begins with the bytes of this turn: its KV cache is found again. No
 * content can be mistaken for another tenant or conversation: it can only spell
 * the marks of its own template.
 */
#ifndef CONDUCTOR_FRONT_OPENAI_REQUEST_H
#define CONDUCTOR_FRONT_OPENAI_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/front/openai/error.h"

enum openai_kind { OPENAI_COMPLETION, OPENAI_CHAT };

/* Facts of the served model for the checks. */
struct openai_model {
    const char *name;
    uint32_t vocab;         /* ids are < vocab */
    uint32_t window_tokens; /* prompt and output together */
};

struct openai_limits {
    size_t max_prompts;     /* in a batch */
    size_t max_messages;    /* texts in a chat */
    size_t max_rest_bytes;  /* the body without its prompt */
    size_t max_rest_values; /* beside the prompt, at any depth; 0 = unlimited */
};

/* Prompt i is tokens[offsets[i] .. offsets[i + 1]), 0 <= i < n_prompts, and
 * none is empty. */
struct openai_request {
    enum openai_kind kind;
    uint32_t *tokens; /* owned, (offsets[n_prompts]) */
    size_t *offsets;  /* owned, (n_prompts + 1) */
    size_t n_prompts;
    uint32_t max_tokens; /* per prompt, prompt + max_tokens <= window */
    bool stream;
    bool include_usage;
    bool usage_each;  /* in every event, too */
    int32_t priority; /* "priority", or 0 */
    char *salt;       /* owned, or NULL: "cache_salt" */
};

/*
 * Parses body[0 .. n), borrowed. Returns 0; -EINVAL with *error set; -ENOMEM.
 * On an error `out` is zeroed. O(n); prompts at GB/s, the rest through jansson.
 */
[[nodiscard]] int openai_request_parse(enum openai_kind kind, const char *body,
                                       size_t n,
                                       const struct openai_model *model,
                                       const struct openai_limits *limits,
                                       struct openai_request *out,
                                       struct openai_error *error);

/* Returns the parameter that holds the prompt, for errors; static. */
const char *openai_prompt_param(enum openai_kind kind);

/* Frees what a request owns. A zeroed struct is fine. */
void openai_request_fini(struct openai_request *request);

#endif
