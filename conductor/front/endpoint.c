/* What endpoints share: the SLO of a request's headers, and refusing it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/internal.h"

#define MAX_SLO_MS 86400000.0
#define DEFAULT_RETRY_US 1000000

void endpoint_reply_error(struct http_conn *conn,
                          const struct openai_error *error, int64_t retry_us)
{
    char seconds[24];

    if (retry_us == 0 &&
        (error->http_status == 429 || error->http_status == 503))
        retry_us = DEFAULT_RETRY_US;
    if (retry_us > 0) {
        snprintf(seconds, sizeof(seconds), "%" PRId64,
                 (retry_us - 1) / 1000000 + 1);
        http_add_header(conn, "Retry-After", seconds);
        snprintf(seconds, sizeof(seconds), "%" PRId64,
                 (retry_us - 1) / 1000 + 1);
        http_add_header(conn, "retry-after-ms", seconds);
    }
    if (retry_us < 0)
        http_add_header(conn, "x-should-retry", "false");
    http_reply_error(conn, error);
}

int endpoint_slo_header(const struct http_head *head, const char *name,
                        int64_t *us, struct openai_error *error)
{
    const struct http_slice *value = http_find(head, name);
    char text[32], *end = text;
    double ms = 0;

    if (!value) {
        *us = 0;
        return 0;
    }
    if (value->n < sizeof(text)) {
        memcpy(text, value->at, value->n);
        text[value->n] = '\0';
        if (strspn(text, "0123456789.") == value->n)
            ms = strtod(text, &end);
    }
    if (value->n >= sizeof(text) || end == text || *end ||
        !(ms >= 0.001 && ms <= MAX_SLO_MS)) {
        openai_error_set(error, 400, "invalid_value", name,
                         "header '%s' is '%.*s': it must be a number of "
                         "milliseconds from 0.001 to 86400000",
                         name, value->n < 40 ? (int)value->n : 40, value->at);
        return -EINVAL;
    }
    *us = (int64_t)(ms * 1000.0 + 0.5);
    return 0;
}

void endpoint_set_no_memory(struct openai_error *error)
{
    openai_error_set(error, 500, "out_of_memory", NULL, "out of memory");
}

void endpoint_set_unready(const struct front *front, struct openai_error *error)
{
    const char *lacks = service_lacks(front->native);
    char code[sizeof(error->code)];

    if (!lacks || !*lacks) {
        openai_error_set(error, 503, "no_ready_instance", NULL,
                         "no instance is ready to take the request");
        return;
    }
    snprintf(code, sizeof(code), "no_%s_instance", lacks);
    openai_error_set(error, 503, code, NULL, "no %s instance is ready", lacks);
}
