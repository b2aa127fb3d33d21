/*
 * Answers in OpenAI's shape, whole (JSON) or streamed (server-sent events).
 *
 * A vendor object "conductor" says what the conductor did for a prompt; it
 * stands beside "usage" in the whole answer and in the usage chunk. With more
 * than one prompt it is {"requests":[..]}, one object each in their order:
 *
 *   {"request_id":"..","prefill":"p0","decode":"d0","predicted_ttft_ms":3.2,
 *    "local_tokens":0,"fetched_tokens":256,"disk_tokens":0,"shared_tokens":0,
 *    "computed_tokens":40,"queue_ms":0.1,"prefill_ms":2.9,"retries":0}
 */
#ifndef CONDUCTOR_FRONT_OPENAI_REPLY_H
#define CONDUCTOR_FRONT_OPENAI_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/front/json/text_buf.h"
#include "conductor/front/openai/error.h"
#include "conductor/front/openai/request.h"

/* What every part of one answer repeats. Strings are borrowed. */
struct openai_reply_head {
    enum openai_kind kind;
    const char *id; /* without its "cmpl-" or "chatcmpl-" */
    const char *model;
    int64_t created_s;  /* Unix time */
    bool usage_follows; /* streamed: chunks say "usage":null */
    bool usage_each;    /* or what it is so far */
};

/* What became of one prompt. Strings are borrowed. */
struct openai_outcome {
    const char *text; /* whole answers only; the output's bytes */
    size_t text_bytes;
    size_t prompt_tokens;
    const char *request_id;
    const char *prefill;
    const char *decode; /* NULL: none took part */
    int64_t predicted_ttft_us;
    int64_t queue_us;
    int64_t prefill_us;
    uint32_t local_tokens;
    uint32_t fetched_tokens;
    uint32_t disk_tokens;
    uint32_t shared_tokens;
    uint32_t computed_tokens;
    uint32_t output_tokens;
    uint32_t retries;
};

/* The text of one output token, into out[4]; its bytes. Ids of printable
 * ASCII are that character, all others U+FFFD. */
size_t openai_token_text(uint32_t token, char *out);

/* The whole answer: choice i is outcomes[i], 0 <= i < n. */
void openai_reply_write(const struct openai_reply_head *head,
                        const struct openai_outcome *outcomes, size_t n,
                        struct text_buf *out);

/* First event of choice `index`: a chat's role, nothing in a completion. Its
 * outcome so far is `o`, here and below. */
void openai_chunk_start(const struct openai_reply_head *head, size_t index,
                        const struct openai_outcome *o, struct text_buf *out);

/* n bytes of text of choice `index` as one event. */
void openai_chunk_text(const struct openai_reply_head *head, size_t index,
                       const struct openai_outcome *o, const char *text,
                       size_t n, struct text_buf *out);

/* Last event of choice `index`: finish_reason "length", as a native model
 * has no other reason to stop. */
void openai_chunk_finish(const struct openai_reply_head *head, size_t index,
                         const struct openai_outcome *o, struct text_buf *out);

/* The event with usage over all outcomes, for stream_options.include_usage. */
void openai_chunk_usage(const struct openai_reply_head *head,
                        const struct openai_outcome *outcomes, size_t n,
                        struct text_buf *out);

/* An error in the middle of a stream, as an event. */
void openai_chunk_error(const struct openai_error *error, struct text_buf *out);

/* The event that ends every stream. */
void openai_chunk_done(struct text_buf *out);

/* What GET /v1/models tells. Strings are borrowed. */
struct openai_model_card {
    const char *name;
    const char *parent; /* of an adapter: its model; NULL: it is none */
    int64_t created_s;
    uint32_t vocab;
    uint32_t window_tokens;
    uint32_t block_tokens;
    const char *policy;
    int64_t engines; /* that have it; -1: native workers do */
};

/* The body of GET /v1/models/NAME, one of those in that of GET /v1/models. */
void openai_model_write(const struct openai_model_card *card,
                        struct text_buf *out);

#endif
