/* Answers in OpenAI's shape. */
#include "conductor/front/openai/reply.h"

#include <inttypes.h>
#include <string.h>

#include "conductor/json/utf8.h"

size_t openai_token_text(uint32_t token, char *out)
{
    bool printable = (token >= 32 && token < 127) || token == '\n';

    return utf8_put(out, printable ? token : 0xfffd);
}

static void write_head(const struct openai_reply_head *head, bool chunk,
                       struct text_buf *out)
{
    bool chat = head->kind == OPENAI_CHAT;
    const char *object = !chat   ? "text_completion"
                         : chunk ? "chat.completion.chunk"
                                 : "chat.completion";

    text_buf_printf(out, "{\"id\":\"%s-", chat ? "chatcmpl" : "cmpl");
    text_buf_json_piece(out, head->id, strlen(head->id));
    text_buf_printf(
        out, "\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", object,
        head->created_s);
    text_buf_json_str(out, head->model);
}

/* Writes "usage" without its closing brace. */
static void write_counts(uint64_t prompt, uint64_t output, struct text_buf *out)
{
    text_buf_printf(out,
                    "\"usage\":{\"prompt_tokens\":%" PRIu64
                    ",\"completion_tokens\":%" PRIu64
                    ",\"total_tokens\":%" PRIu64,
                    prompt, output, prompt + output);
}

static void write_usage(const struct openai_outcome *outcomes, size_t n,
                        struct text_buf *out)
{
    uint64_t prompt = 0, output = 0, cached = 0;

    for (size_t i = 0; i < n; i++) {
        const struct service_result *r = &outcomes[i].result;

        prompt += outcomes[i].prompt_tokens;
        output += outcomes[i].output_tokens;
        cached += (uint64_t)r->local_tokens + r->fetched_tokens +
                  r->disk_tokens + r->shared_tokens;
    }
    write_counts(prompt, output, out);
    text_buf_printf(
        out, ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64 "}}",
        cached);
}

/* Writes microseconds as milliseconds. */
static void write_ms(const char *name, int64_t us, struct text_buf *out)
{
    text_buf_printf(out, ",\"%s\":%.3f", name, (double)us / 1e3);
}

static void write_vendor_one(const struct openai_outcome *o,
                             struct text_buf *out)
{
    const struct service_result *r = &o->result;

    text_buf_member(out, "{\"request_id\":", o->request_id);
    text_buf_member(out, ",\"prefill\":", o->prefill);
    text_buf_member(out, ",\"decode\":", o->decode);
    if (o->predicted_ttft_us > 0)
        write_ms("predicted_ttft_ms", o->predicted_ttft_us, out);
    else
        text_buf_puts(out, ",\"predicted_ttft_ms\":null");
    text_buf_printf(out,
                    ",\"local_tokens\":%u,\"fetched_tokens\":%u,"
                    "\"disk_tokens\":%u,\"shared_tokens\":%u,"
                    "\"computed_tokens\":%u",
                    r->local_tokens, r->fetched_tokens, r->disk_tokens,
                    r->shared_tokens, r->computed_tokens);
    write_ms("queue_ms", r->queue_us, out);
    write_ms("prefill_ms", r->prefill_us, out);
    text_buf_printf(out, ",\"retries\":%u}", r->retries);
}

static void write_vendor(const struct openai_outcome *outcomes, size_t n,
                         struct text_buf *out)
{
    text_buf_puts(out, ",\"conductor\":");
    if (n == 1) {
        write_vendor_one(outcomes, out);
        return;
    }
    text_buf_puts(out, "{\"requests\":[");
    for (size_t i = 0; i < n; i++) {
        text_buf_puts(out, i ? "," : "");
        write_vendor_one(&outcomes[i], out);
    }
    text_buf_puts(out, "]}");
}

void openai_reply_write(const struct openai_reply_head *head,
                        const struct openai_outcome *outcomes, size_t n,
                        struct text_buf *out)
{
    bool chat = head->kind == OPENAI_CHAT;

    write_head(head, false, out);
    text_buf_puts(out, ",\"choices\":[");
    for (size_t i = 0; i < n; i++) {
        const struct openai_outcome *o = &outcomes[i];

        text_buf_printf(out, "%s{\"index\":%zu,", i ? "," : "", i);
        text_buf_puts(out,
                      chat ? "\"message\":{\"role\":\"assistant\",\"content\":"
                           : "\"text\":");
        text_buf_json(out, o->text, o->text_bytes);
        text_buf_puts(out, chat ? ",\"refusal\":null}" : "");
        text_buf_puts(out, ",\"logprobs\":null,\"finish_reason\":\"length\"}");
    }
    text_buf_puts(out, "],");
    write_usage(outcomes, n, out);
    write_vendor(outcomes, n, out);
    text_buf_puts(out, "}");
}

/* Writes an event with one choice; content NULL = only the chat's role. */
static void write_chunk(const struct openai_reply_head *head, size_t index,
                        const struct openai_outcome *o, const char *content,
                        size_t n, bool finish, struct text_buf *out)
{
    text_buf_puts(out, "data: ");
    write_head(head, true, out);
    text_buf_printf(out, ",\"choices\":[{\"index\":%zu,", index);
    if (head->kind == OPENAI_COMPLETION) {
        text_buf_puts(out, "\"text\":");
        text_buf_json(out, content, n);
    } else if (finish) {
        text_buf_puts(out, "\"delta\":{}");
    } else if (content) {
        text_buf_puts(out, "\"delta\":{\"content\":");
        text_buf_json(out, content, n);
        text_buf_puts(out, "}");
    } else {
        text_buf_puts(out,
                      "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    }
    text_buf_printf(out, ",\"logprobs\":null,\"finish_reason\":%s}]",
                    finish ? "\"length\"" : "null");
    if (head->usage_each) {
        text_buf_puts(out, ",");
        write_counts(o->prompt_tokens, o->output_tokens, out);
        text_buf_puts(out, "}");
    } else if (head->usage_follows) {
        text_buf_puts(out, ",\"usage\":null");
    }
    text_buf_puts(out, "}\n\n");
}

void openai_chunk_start(const struct openai_reply_head *head, size_t index,
                        const struct openai_outcome *o, struct text_buf *out)
{
    if (head->kind == OPENAI_CHAT)
        write_chunk(head, index, o, NULL, 0, false, out);
}

void openai_chunk_text(const struct openai_reply_head *head, size_t index,
                       const struct openai_outcome *o, const char *text,
                       size_t n, struct text_buf *out)
{
    write_chunk(head, index, o, text, n, false, out);
}

void openai_chunk_finish(const struct openai_reply_head *head, size_t index,
                         const struct openai_outcome *o, struct text_buf *out)
{
    write_chunk(head, index, o, "", 0, true, out);
}

void openai_chunk_usage(const struct openai_reply_head *head,
                        const struct openai_outcome *outcomes, size_t n,
                        struct text_buf *out)
{
    text_buf_puts(out, "data: ");
    write_head(head, true, out);
    text_buf_puts(out, ",\"choices\":[],");
    write_usage(outcomes, n, out);
    write_vendor(outcomes, n, out);
    text_buf_puts(out, "}\n\n");
}

void openai_chunk_error(const struct openai_error *error, struct text_buf *out)
{
    text_buf_puts(out, "data: ");
    openai_error_write(error, out);
    text_buf_puts(out, "\n\n");
}

void openai_chunk_done(struct text_buf *out)
{
    text_buf_puts(out, "data: [DONE]\n\n");
}

/* Writes a number, or null for 0, which means unknown. */
static void put_known(struct text_buf *out, uint32_t n)
{
    if (n > 0)
        text_buf_printf(out, "%u", n);
    else
        text_buf_puts(out, "null");
}

void openai_model_write(const struct openai_model_card *card,
                        struct text_buf *out)
{
    text_buf_member(out, "{\"id\":", card->name);
    text_buf_printf(out,
                    ",\"object\":\"model\",\"created\":%" PRId64
                    ",\"owned_by\":\"conductor\",\"max_model_len\":",
                    card->created_s);
    put_known(out, card->window_tokens);
    if (card->parent)
        text_buf_member(out, ",\"parent\":", card->parent);
    text_buf_printf(out, ",\"conductor\":{\"block_tokens\":%u,\"vocab\":",
                    card->block_tokens);
    put_known(out, card->vocab);
    text_buf_puts(out, ",\"window_tokens\":");
    put_known(out, card->window_tokens);
    text_buf_member(out, ",\"policy\":", card->policy);
    if (card->engines >= 0)
        text_buf_printf(out, ",\"engines\":%" PRId64, card->engines);
    text_buf_puts(out, "}}");
}
