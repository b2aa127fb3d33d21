/* See context.h. */
#include "conductor/service/spans/context.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether text begins with n lower case hexadecimal digits. */
static bool is_hex(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") >= n;
}

static bool is_zero(const char *text, size_t n)
{
    return strspn(text, "0") >= n;
}

/* text is NUL-terminated. */
static bool is_traceparent(const char *text, size_t n)
{
    static const size_t at[] = {0, 3, 36, 53}, digits[] = {2, 32, 16, 2};

    if (n < TRACEPARENT_BYTES - 1)
        return false;
    for (size_t i = 0; i < 4; i++)
        if (!is_hex(text + at[i], digits[i]) ||
            (i < 3 && text[at[i] + digits[i]] != '-'))
            return false;
    if (is_zero(text + 3, TRACE_HEX) || is_zero(text + 36, SPAN_HEX) ||
        memcmp(text, "ff", 2) == 0)
        return false;
    /* Later versions may append members. */
    return n == TRACEPARENT_BYTES - 1 ||
           (memcmp(text, "00", 2) != 0 && text[55] == '-');
}

bool trace_context_parse(const char *text, size_t n, struct trace_context *out)
{
    char copy[TRACEPARENT_BYTES + 1] = "";
    size_t kept = n < TRACEPARENT_BYTES ? n : TRACEPARENT_BYTES;

    if (kept)
        memcpy(copy, text, kept);
    if (strlen(copy) != kept || !is_traceparent(copy, n))
        return false;
    memcpy(out->trace, copy + 3, TRACE_HEX);
    memcpy(out->span, copy + 36, SPAN_HEX);
    out->trace[TRACE_HEX] = out->span[SPAN_HEX] = '\0';
    out->sampled = strtoul(copy + 53, NULL, 16) & 1;
    return true;
}

void trace_context_write(const struct trace_context *c,
                         char out[TRACEPARENT_BYTES])
{
    snprintf(out, TRACEPARENT_BYTES, "00-%s-%s-%02x", c->trace, c->span,
             c->sampled ? 1u : 0u);
}

/* Protobuf's JSON writes 64-bit numbers as text; readers accept both. */
static uint64_t count_of(const json_t *value)
{
    if (json_is_string(value))
        return strtoull(json_string_value(value), NULL, 10);
    return json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value)
                                         : 0;
}

uint64_t otlp_rejected(const char *text, size_t n, char why[256])
{
    json_t *answer = json_loadb(text, n, 0, NULL);
    const json_t *partial = json_object_get(answer, "partialSuccess");
    uint64_t rejected = count_of(json_object_get(partial, "rejectedSpans"));
    const char *words =
        json_string_value(json_object_get(partial, "errorMessage"));

    snprintf(why, 256, "%.255s", words ? words : "");
    json_decref(answer);
    return rejected;
}

int64_t otlp_retry_after_us(const char *text, size_t n, int64_t most_us)
{
    int64_t s = 0;

    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        s = s * 10 + (text[i] - '0');
        if (s * 1000000 > most_us)
            s = most_us / 1000000;
    }
    return s * 1000000;
}
