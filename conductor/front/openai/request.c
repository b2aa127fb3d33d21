/* Request bodies: scan, parse the rest, check against the model. */
#include "conductor/front/openai/request.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "conductor/front/openai/params.h"

#define MAX_DEPTH 32
#define DEFAULT_MAX_TOKENS 16
#define DEFAULT_CHAT_MAX_TOKENS 256

static int scan_body(enum openai_kind kind, const char *body, size_t n,
                     const struct openai_model *model,
                     const struct openai_limits *limits, struct json_scan *scan,
                     struct openai_error *error)
{
    const struct json_scan_limits scan_limits = {
        .max_spans =
            kind == OPENAI_CHAT ? limits->max_messages : limits->max_prompts,
        .max_rest_bytes = limits->max_rest_bytes,
        .max_rest_values = limits->max_rest_values,
        .max_depth = MAX_DEPTH,
        .max_span_bytes = json_prompt_bytes(model->window_tokens),
    };
    int rc = json_scan(
        body, n, kind == OPENAI_CHAT ? JSON_SCAN_MESSAGES : JSON_SCAN_PROMPT,
        &scan_limits, scan);

    if (rc == -EINVAL)
        openai_error_set(error, 400,
                         scan->error_param ? "invalid_value" : "invalid_json",
                         scan->error_param, "%s", scan->error);
    return rc;
}

static int parse_rest(const struct json_scan *scan, json_t **out,
                      struct openai_error *error)
{
    json_error_t what;

    *out =
        json_loadb(scan->rest, scan->rest_bytes, JSON_REJECT_DUPLICATES, &what);
    if (*out)
        return 0;
    if (json_error_code(&what) == json_error_out_of_memory)
        return -ENOMEM;
    return openai_error_set(
        error, 400, "invalid_json", NULL, "the body isn't valid JSON: %s",
        text_is_nan_near(scan->rest, scan->rest_bytes, (size_t)what.position)
            ? "expected " TEXT_NO_NAN
            : what.text);
}

/* Makes a token id of each byte. */
static int widen(const char *bytes, size_t n, uint32_t **out)
{
    uint32_t *tokens = malloc((n + 1) * sizeof(*tokens));
    size_t i = 0;

    if (!tokens)
        return -ENOMEM;
    for (; i + 16 <= n; i += 16)
        for (size_t k = 0; k < 16; k++)
            tokens[i + k] = (unsigned char)bytes[i + k];
    for (; i < n; i++)
        tokens[i] = (unsigned char)bytes[i];
    *out = tokens;
    return 0;
}

/* Sets offsets from the ends of the n spans, which have no gaps. */
static int set_offsets(struct openai_request *out,
                       const struct json_span *spans, size_t n)
{
    out->n_prompts = n;
    out->offsets = malloc((n + 1) * sizeof(*out->offsets));
    if (!out->offsets)
        return -ENOMEM;
    out->offsets[0] = 0;
    for (size_t i = 0; i < n; i++)
        out->offsets[i + 1] = spans[i].start + spans[i].count;
    return 0;
}

static int completion_tokens(struct json_scan *scan, const json_t *rest,
                             struct openai_request *out,
                             struct openai_error *error)
{
    if (scan->form == JSON_FORM_NONE)
        return openai_error_set(
            error, 400, "missing_parameter", "prompt",
            "prompt: %s: must be a text, an array of token ids, or an "
            "array of either",
            json_object_get(rest, "prompt") ? "null" : "missing");
    if (scan->form == JSON_FORM_IDS || scan->form == JSON_FORM_ID_ARRAYS) {
        out->tokens = scan->ids;
        scan->ids = NULL;
    } else if (widen(scan->bytes, scan->n_bytes, &out->tokens)) {
        return -ENOMEM;
    }
    return set_offsets(out, scan->spans, scan->n_spans);
}

static int chat_tokens(const struct json_scan *scan, const json_t *rest,
                       struct openai_request *out, struct openai_error *error)
{
    const json_t *messages = json_object_get(rest, "messages");
    struct text_buf bytes;
    int rc;

    if (!messages)
        return openai_error_set(
            error, 400, "missing_parameter", "messages",
            "messages: missing: must be an array of messages");
    text_buf_init(&bytes, SIZE_MAX);
    /* The texts and, at a guess, 32 bytes of marks for each. */
    rc = text_buf_reserve(&bytes, scan->n_bytes + 32 * scan->n_spans);
    if (rc == 0)
        rc = openai_chat_prompt(messages, scan, &bytes, error);
    if (rc == 0)
        rc = widen(bytes.data, bytes.len, &out->tokens);
    if (rc == 0)
        rc = set_offsets(out, &(struct json_span){0, bytes.len}, 1);
    text_buf_fini(&bytes);
    return rc;
}

/* Returns the index of the first id >= vocab, n if there is none. */
static size_t first_outside(const uint32_t *ids, size_t n, uint32_t vocab)
{
    size_t at = 0;

    for (; n - at >= 64; at += 64) {
        uint32_t outside = 0;

        for (size_t k = 0; k < 64; k++)
            outside |= ids[at + k] >= vocab;
        if (outside)
            break;
    }
    while (at < n && ids[at] < vocab)
        at++;
    return at;
}

/* Checks that every id is in the vocabulary. */
static int check_ids(const struct openai_request *request,
                     const struct openai_model *model, bool batch,
                     struct openai_error *error)
{
    size_t n = request->offsets[request->n_prompts], prompt = 0;
    size_t at = first_outside(request->tokens, n, model->vocab);
    char outer[32] = "";

    if (at == n)
        return 0;
    while (at >= request->offsets[prompt + 1])
        prompt++;
    if (batch)
        snprintf(outer, sizeof(outer), "[%zu]", prompt);
    return openai_error_set(error, 400, "invalid_value", "prompt",
                            "prompt%s[%zu]: %u: must be a token id of model "
                            "\"%.100s\", from 0 to %u",
                            outer, at - request->offsets[prompt],
                            request->tokens[at], model->name, model->vocab - 1);
}

const char *openai_prompt_param(enum openai_kind kind)
{
    return kind == OPENAI_CHAT ? "messages" : "prompt";
}

/* Checks that no prompt is empty, and each leaves room for its answer; sets
 * max_tokens. */
static int check_lengths(struct openai_request *request, const char *limit,
                         const struct openai_model *model,
                         struct openai_error *error)
{
    const char *param = limit;
    size_t longest = 0, room;
    uint32_t usual = request->kind == OPENAI_CHAT ? DEFAULT_CHAT_MAX_TOKENS
                                                  : DEFAULT_MAX_TOKENS;

    for (size_t i = 0; i < request->n_prompts; i++) {
        size_t length = request->offsets[i + 1] - request->offsets[i];
        char place[32];

        snprintf(place, sizeof(place), "[%zu]", i);
        if (length == 0)
            return openai_error_set(
                error, 400, "invalid_value", "prompt",
                "prompt%.*s: must not be empty",
                request->n_prompts > 1 ? (int)strlen(place) : 0, place);
        longest = length > longest ? length : longest;
    }
    room = longest < model->window_tokens ? model->window_tokens - longest : 0;
    if (!limit)
        request->max_tokens = room && room < usual ? (uint32_t)room : usual;
    if (request->max_tokens <= room)
        return 0;
    if (room == 0 || !limit)
        param = openai_prompt_param(request->kind);
    return openai_error_set(
        error, 400, "context_length_exceeded", param,
        "%s: %zu tokens: the window of model \"%.100s\" has %u "
        "tokens, the prompt %zu, and max_tokens is %u",
        param, param == limit ? request->max_tokens : longest, model->name,
        model->window_tokens, longest, request->max_tokens);
}

static int build(struct json_scan *scan, const json_t *rest,
                 const struct openai_model *model, struct openai_request *out,
                 struct openai_error *error)
{
    bool batch = scan->form == JSON_FORM_ID_ARRAYS;
    bool ids = batch || scan->form == JSON_FORM_IDS;
    const char *limit;
    int rc = openai_params_read(rest, model, out, &limit, error);

    if (rc == 0)
        rc = out->kind == OPENAI_CHAT
                 ? chat_tokens(scan, rest, out, error)
                 : completion_tokens(scan, rest, out, error);
    if (rc == 0)
        rc = check_lengths(out, limit, model, error);
    if (rc == 0 && (ids || model->vocab < 256)) /* a byte is at most 255 */
        rc = check_ids(out, model, batch, error);
    return rc;
}

int openai_request_parse(enum openai_kind kind, const char *body, size_t n,
                         const struct openai_model *model,
                         const struct openai_limits *limits,
                         struct openai_request *out, struct openai_error *error)
{
    struct json_scan scan;
    json_t *rest = NULL;
    int rc;

    *out = (struct openai_request){.kind = kind};
    rc = scan_body(kind, body, n, model, limits, &scan, error);
    if (rc == 0)
        rc = parse_rest(&scan, &rest, error);
    if (rc == 0)
        rc = build(&scan, rest, model, out, error);
    json_decref(rest);
    json_scan_fini(&scan);
    if (rc)
        openai_request_fini(out);
    return rc;
}

void openai_request_fini(struct openai_request *request)
{
    free(request->tokens);
    free(request->offsets);
    free(request->salt);
    *request = (struct openai_request){.kind = request->kind};
}
