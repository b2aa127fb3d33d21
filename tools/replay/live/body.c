/* The body of a completion request; see run.h. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/live/run.h"

/* Decimal digits of `n` and a comma; returns the end. */
static char *put_token(char *to, uint32_t n)
{
    char digits[10];
    size_t count = 0;

    do {
        digits[count++] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    while (count > 0)
        *to++ = digits[--count];
    *to++ = ',';
    return to;
}

/* The prompt as JSON numbers, without a JSON node for each of them. */
static int add_prompt(struct evbuffer *body, const uint32_t *tokens, size_t n)
{
    char text[4096];
    char *end = text;

    for (size_t i = 0; i < n; i++) {
        end = put_token(end, tokens[i]);
        bool last = i + 1 == n;
        end -= last ? 1 : 0;
        if (last || end > text + sizeof text - 16) {
            if (evbuffer_add(body, text, (size_t)(end - text)) != 0)
                return -1;
            end = text;
        }
    }
    return 0;
}

struct evbuffer *replay_body_new(const struct trace_request *request,
                                 const char *model,
                                 const struct trace_token_options *tokens)
{
    size_t n = request->input_tokens;
    uint32_t max_tokens =
        request->output_tokens > 0 ? request->output_tokens : 1;
    struct evbuffer *body = evbuffer_new();
    uint32_t *prompt = malloc((n + 1) * sizeof prompt[0]);
    json_t *name_json = json_string(model);
    char *name = json_dumps(name_json, JSON_ENCODE_ANY);
    bool good = body && prompt && name;

    if (good) {
        trace_tokens(request, tokens, prompt);
        good = evbuffer_add_printf(
                   body,
                   "{\"model\":%s,\"max_tokens\":%u,\"stream\":true,"
                   "\"stream_options\":{\"include_usage\":true},\"prompt\":[",
                   name, (unsigned)max_tokens) > 0 &&
               add_prompt(body, prompt, n) == 0 &&
               evbuffer_add(body, "]}", 2) == 0;
    }
    free(name);
    json_decref(name_json);
    free(prompt);
    if (!good && body) {
        evbuffer_free(body);
        body = NULL;
    }
    return body;
}
