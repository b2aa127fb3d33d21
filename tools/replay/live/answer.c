/* See answer.h. */
#include "tools/replay/live/answer.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/tail_mean.h"

/* Most intervals kept; no model writes that much. */
#define INTERVALS_MAX ((size_t)1 << 20)

/* The parser's buffer holds: data of this event | unfinished line. */
static int append(struct sse_parser *p, char c)
{
    size_t used = p->data_bytes + p->line_bytes;

    if (used + 2 > SSE_EVENT_BYTES_MAX)
        return -EMSGSIZE;
    if (array_reserve(p->buffer, p->capacity, used + 2))
        return -ENOMEM;
    p->buffer[used] = c;
    p->line_bytes++;
    return 0;
}

/* Appends the value of a finished `data` line to the event's data. */
static void take_line(struct sse_parser *p)
{
    char *line = p->buffer + p->data_bytes;
    size_t n = p->line_bytes;

    p->line_bytes = 0;
    if (n < 4 || memcmp(line, "data", 4) != 0 || (n > 4 && line[4] != ':'))
        return;
    size_t skip = n > 4 ? 5 : 4;
    skip += n > 5 && line[5] == ' ' ? 1 : 0;
    /* There is room: "data" is longer than the newline that joins two lines. */
    if (p->has_data)
        p->buffer[p->data_bytes++] = '\n';
    memmove(p->buffer + p->data_bytes, line + skip, n - skip);
    p->data_bytes += n - skip;
    p->has_data = true;
}

static void end_line(struct sse_parser *p, sse_event_cb *cb, void *arg)
{
    if (p->line_bytes > 0) {
        take_line(p);
        return;
    }
    if (p->has_data) {
        p->buffer[p->data_bytes] = '\0';
        cb(arg, p->buffer, p->data_bytes);
    }
    p->data_bytes = 0;
    p->has_data = false;
}

int sse_feed(struct sse_parser *parser, const char *bytes, size_t count,
             sse_event_cb *cb, void *arg)
{
    for (size_t i = 0; i < count; i++) {
        char c = bytes[i];

        if (c == '\n' && parser->after_cr) {
            parser->after_cr = false;
            continue;
        }
        parser->after_cr = c == '\r';
        if (c == '\r' || c == '\n') {
            end_line(parser, cb, arg);
            continue;
        }
        int rc = append(parser, c);
        if (rc != 0)
            return rc;
    }
    return 0;
}

void sse_fini(struct sse_parser *parser)
{
    free(parser->buffer);
    *parser = (struct sse_parser){0};
}

static void fail(struct replay_record *record, const char *reason,
                 const char *message)
{
    if (record->outcome == REPLAY_FAILED)
        return;
    record->outcome = REPLAY_FAILED;
    replay_copy_text(record->reason, sizeof record->reason, reason);
    replay_copy_text(record->message, sizeof record->message, message);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* Returns a count from JSON; 0 when missing or out of range. */
static uint32_t count_of(const json_t *object, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(object, key));

    return n > 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
}

/* Converts JSON milliseconds to microseconds; -1 when missing or negative. */
static int64_t time_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    double ms = json_number_value(value);

    return json_is_number(value) && ms >= 0 && ms < 1e12
               ? (int64_t)(ms * 1000.0 + 0.5)
               : -1;
}

/* Reads an OpenAI error object: {"error": {"message", "type", "code"}}. */
static void read_error(struct replay_record *record, const json_t *error,
                       const char *prefix)
{
    const char *code = text_of(error, "code");

    if (code[0] == '\0')
        code = text_of(error, "type");
    char reason[sizeof record->reason];
    snprintf(reason, sizeof reason, "%s%s%.30s", prefix,
             code[0] != '\0' ? " " : "", code);
    fail(record, reason, text_of(error, "message"));
}

void replay_answer_init(struct replay_answer *answer,
                        struct replay_record *record)
{
    memset(answer, 0, sizeof *answer);
    answer->record = record;
    answer->finish_us = -1;
}

static void keep_interval(struct replay_answer *a, int64_t interval_us)
{
    if (a->interval_count < INTERVALS_MAX &&
        array_reserve(a->intervals_us, a->interval_capacity,
                      a->interval_count + 1) == 0)
        a->intervals_us[a->interval_count++] = interval_us;
}

static void read_token(struct replay_answer *a)
{
    if (a->record->first_token_us < 0)
        a->record->first_token_us = a->now_us;
    else
        keep_interval(a, a->now_us - a->last_token_us);
    a->last_token_us = a->now_us;
    a->record->generated_tokens++;
}

/* Reads a choice: it has a token, unless it only has a finish reason. */
static void read_choice(struct replay_answer *a, const json_t *choice)
{
    const char *text = text_of(choice, "text");
    const json_t *finish = json_object_get(choice, "finish_reason");

    if (text[0] != '\0' || !json_is_string(finish))
        read_token(a);
    else
        a->finish_us = a->now_us;
}

static void read_usage(struct replay_answer *a, const json_t *usage)
{
    struct replay_record *r = a->record;
    const json_t *details = json_object_get(usage, "prompt_tokens_details");

    a->has_usage = true;
    r->prompt_tokens = count_of(usage, "prompt_tokens");
    r->generated_tokens = count_of(usage, "completion_tokens");
    r->reused_tokens = count_of(details, "cached_tokens");
    r->tells_reused =
        json_is_integer(json_object_get(details, "cached_tokens"));
    if (r->reused_tokens > r->prompt_tokens)
        r->reused_tokens = r->prompt_tokens;
    r->computed_tokens = r->prompt_tokens - r->reused_tokens;
}

/* Reads the fields that only a conductor sends, with or after the usage. */
static void read_vendor(struct replay_answer *a, const json_t *vendor)
{
    struct replay_record *r = a->record;

    replay_copy_text(r->id, sizeof r->id, text_of(vendor, "request_id"));
    replay_copy_text(r->prefill, sizeof r->prefill, text_of(vendor, "prefill"));
    replay_copy_text(r->decode, sizeof r->decode, text_of(vendor, "decode"));
    if (json_object_get(vendor, "predicted_ttft_ms"))
        r->predicted_ttft_us = time_of(vendor, "predicted_ttft_ms");
    r->local_tokens = count_of(vendor, "local_tokens");
    r->fetched_tokens = count_of(vendor, "fetched_tokens");
    if (json_object_get(vendor, "computed_tokens"))
        r->computed_tokens = count_of(vendor, "computed_tokens");
    r->queue_us = time_of(vendor, "queue_ms");
    r->prefill_us = time_of(vendor, "prefill_ms");
    r->retries = count_of(vendor, "retries");
}

static void read_event(void *arg, const char *data, size_t bytes)
{
    struct replay_answer *a = arg;

    if (bytes == 6 && memcmp(data, "[DONE]", 6) == 0) {
        a->done = true;
        return;
    }
    json_t *event = json_loadb(data, bytes, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(event)) {
        fail(a->record, "bad event", data);
        json_decref(event);
        return;
    }
    const json_t *error = json_object_get(event, "error");
    const json_t *choices = json_object_get(event, "choices");
    const json_t *usage = json_object_get(event, "usage");
    const json_t *vendor = json_object_get(event, "conductor");
    if (json_is_object(error))
        read_error(a->record, error, "error event");
    if (json_array_size(choices) > 0)
        read_choice(a, json_array_get(choices, 0));
    if (json_is_object(usage))
        read_usage(a, usage);
    if (json_is_object(vendor))
        read_vendor(a, vendor);
    json_decref(event);
}

static void keep_body(struct replay_answer *a, const char *bytes, size_t count)
{
    size_t room = ANSWER_BODY_BYTES_MAX - a->body_bytes;
    size_t n = count < room ? count : room;

    memcpy(a->body + a->body_bytes, bytes, n);
    a->body_bytes += n;
}

void replay_answer_feed(struct replay_answer *answer, int status,
                        const char *bytes, size_t count, int64_t now_us)
{
    answer->now_us = now_us;
    if (status != 200) {
        keep_body(answer, bytes, count);
        return;
    }
    if (sse_feed(&answer->sse, bytes, count, read_event, answer) != 0)
        fail(answer->record, "event too long", "");
}

static void finish_error(struct replay_answer *a, int status)
{
    char prefix[16];

    snprintf(prefix, sizeof prefix, "http %d", status);
    json_t *body = json_loadb(a->body, a->body_bytes, 0, NULL);
    const json_t *error = json_object_get(body, "error");
    if (json_is_object(error))
        read_error(a->record, error, prefix);
    else
        fail(a->record, prefix, a->body);
    json_decref(body);
    if (status == 429)
        a->record->outcome = REPLAY_REJECTED;
}

void replay_answer_finish(struct replay_answer *answer, int status,
                          const char *reason, int64_t now_us)
{
    struct replay_record *r = answer->record;

    r->status = status;
    r->end_us = now_us;
    if (r->first_token_us < 0 && r->generated_tokens > 0)
        r->first_token_us = answer->finish_us;
    if (reason)
        fail(r, reason, "");
    else if (status != 200)
        finish_error(answer, status);
    else if (!answer->done)
        fail(r, "stream ended early", "");
    else if (r->first_token_us < 0)
        fail(r, "no token", "");
    if (!answer->has_usage && r->outcome == REPLAY_PENDING) {
        r->prompt_tokens = r->input_tokens;
        r->computed_tokens = r->input_tokens;
    }
    if (r->outcome == REPLAY_PENDING)
        r->outcome = REPLAY_COMPLETED;
    r->tbt_us = tail_mean(answer->intervals_us, answer->interval_count);
    free(answer->intervals_us);
    sse_fini(&answer->sse);
}
