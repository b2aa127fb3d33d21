/*
 * Answers in OpenAI's shape, whole (JSON) or streamed (server-sent events).
 *
 * A vendor object "conductor" shows how a prompt was served; it stands beside
 * "usage" in the whole answer and in the usage chunk. With more than one prompt
 * it is {"requests":[..]}, one object each in their order:
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

#include "conductor/front/openai/error.h"
#include "conductor/front/openai/request.h"
#include "conductor/json/text_buf.h"
#include "conductor/service/service.h"

/* Values that every part of an answer repeats. Strings are borrowed. */
struct openai_reply_head {
    enum openai_kind kind;
    const char *id; /* without its "cmpl-" or "chatcmpl-" */
    const char *model;
    int64_t created_s;  /* Unix time */
    bool usage_follows; /* streamed: chunks say "usage":null */
    bool usage_each;    /* or the usage so far */
};

/* The result of one prompt. Strings are borrowed. */
struct openai_outcome {
    const char *text; /* whole answers only; the output's bytes */
    size_t text_bytes;
    size_t prompt_tokens;
    const char *request_id;
    const char *prefill;
    const char *decode; /* NULL = no decode instance */
    int64_t predicted_ttft_us;
    uint32_t output_tokens; /* so far */
    struct service_result result;
};

/* Writes the text of one output token to out[4]. Returns its length. Ids of
 * printable ASCII are that character, all others U+FFFD. */
size_t openai_token_text(uint32_t token, char *out);

/* Writes the whole answer: choice i is outcomes[i], 0 <= i < n. */
void openai_reply_write(const struct openai_reply_head *head,
                        const struct openai_outcome *outcomes, size_t n,
                        struct text_buf *out);

/* Writes the first event of choice `index`: a chat's role, nothing in a
 * completion. `o`, here and below: its outcome so far. */
void openai_chunk_start(const struct openai_reply_head *head, size_t index,
                        const struct openai_outcome *o, struct text_buf *out);

/* Writes n bytes of text of choice `index` as one event. */
void openai_chunk_text(const struct openai_reply_head *head, size_t index,
                       const struct openai_outcome *o, const char *text,
                       size_t n, struct text_buf *out);

/* Writes the last event of choice `index`: finish_reason "length", as a native
 * model has no other reason to stop. */
void openai_chunk_finish(const struct openai_reply_head *head, size_t index,
                         const struct openai_outcome *o, struct text_buf *out);

/* Writes the event with usage over all outcomes, for
 * stream_options.include_usage. */
void openai_chunk_usage(const struct openai_reply_head *head,
                        const struct openai_outcome *outcomes, size_t n,
                        struct text_buf *out);

/* Writes an error in the middle of a stream, as an event. */
void openai_chunk_error(const struct openai_error *error, struct text_buf *out);

/* Writes the event that ends every stream. */
void openai_chunk_done(struct text_buf *out);

/* A model in GET /v1/models. Strings are borrowed. */
struct openai_model_card {
    const char *name;
    const char *parent; /* of an adapter: its model; NULL = not an adapter */
    int64_t created_s;
    uint32_t vocab;
    uint32_t window_tokens;
    uint32_t block_tokens;
    const char *policy;
    int64_t engines; /* engines that have it; -1 = it has native workers */
};

/* Writes the body of GET /v1/models/NAME, which is also an element of GET
 * /v1/models. */
void openai_model_write(const struct openai_model_card *card,
                        struct text_buf *out);

#endif
