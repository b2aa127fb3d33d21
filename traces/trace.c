/* See trace.h. */
#include "traces/trace.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

int trace_request_reserve(struct trace_request *request, size_t blocks)
{
    return array_reserve(request->hash_ids, request->block_capacity, blocks);
}

int trace_request_extend(struct trace_request *request, uint32_t tokens,
                         uint64_t *next_id)
{
    size_t blocks = (tokens + TRACE_BLOCK_TOKENS - 1) / TRACE_BLOCK_TOKENS;
    int rc = trace_request_reserve(request, blocks);

    if (rc != 0)
        return rc;
    request->input_tokens = tokens;
    while (request->block_count < blocks)
        request->hash_ids[request->block_count++] = (*next_id)++;
    return 0;
}

int trace_request_copy(struct trace_request *to,
                       const struct trace_request *from)
{
    int rc = trace_request_reserve(to, from->block_count);

    if (rc != 0)
        return rc;
    to->arrival_us = from->arrival_us;
    to->input_tokens = from->input_tokens;
    to->output_tokens = from->output_tokens;
    to->tenant = from->tenant;
    to->priority = from->priority;
    to->block_count = from->block_count;
    if (from->block_count > 0) {
        memcpy(to->hash_ids, from->hash_ids,
               from->block_count * sizeof from->hash_ids[0]);
    }
    return 0;
}

void trace_request_fini(struct trace_request *request)
{
    free(request->hash_ids);
    *request = (struct trace_request){0};
}

static uint32_t scale_tokens(uint32_t tokens, uint32_t scale)
{
    uint32_t scaled = tokens / scale + (tokens % scale != 0 ? 1 : 0);

    return scaled == 0 ? 1 : scaled;
}

void trace_request_scale(struct trace_request *request, uint32_t scale)
{
    request->input_tokens = scale_tokens(request->input_tokens, scale);
    request->output_tokens = scale_tokens(request->output_tokens, scale);
}

int trace_error_set(struct trace_error *error, const char *field,
                    const char *value, size_t value_bytes, const char *reason,
                    ...)
{
    snprintf(error->field, sizeof error->field, "%s", field);
    size_t n = value_bytes < sizeof error->value - 1 ? value_bytes
                                                     : sizeof error->value - 1;
    for (size_t i = 0; i < n; i++) {
        char c = value[i];

        error->value[i] = c >= ' ' && c <= '~' ? c : '?';
    }
    error->value[n] = '\0';
    va_list args;
    va_start(args, reason);
    vsnprintf(error->reason, sizeof error->reason, reason, args);
    va_end(args);
    return -EINVAL;
}

void trace_error_format(const struct trace_error *error, const char *file,
                        char *text, size_t size)
{
    char line[24] = "";

    if (error->line > 0)
        snprintf(line, sizeof line, ":%llu", (unsigned long long)error->line);
    const char *gap =
        error->field[0] != '\0' && error->value[0] != '\0' ? " " : "";
    const char *colon =
        error->field[0] != '\0' || error->value[0] != '\0' ? ": " : "";
    snprintf(text, size, "%s%s: %s%s%s%s%s", file, line, error->field, gap,
             error->value, colon, error->reason);
}
