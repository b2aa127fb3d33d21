/* An error as OpenAI's API shows it, and its JSON. */
#ifndef CONDUCTOR_FRONT_OPENAI_ERROR_H
#define CONDUCTOR_FRONT_OPENAI_ERROR_H

#include <jansson.h>
#include <stdarg.h>

#include "conductor/json/text_buf.h"

struct openai_error {
    int http_status;
    char type[32];
    char code[48];  /* "" is null */
    char param[64]; /* the parameter at fault; "" is null */
    char message[512];
};

/*
 * Fills `error` with a status, a code ("" = none), a parameter ("" or NULL =
 * none) and a formatted message, cut off at the size of its field. The type
 * follows from the status: invalid_request_error for 4xx, rate_limit_error for
 * 429, server_error for 5xx. Returns -EINVAL, for the caller to return.
 */
int openai_error_set(struct openai_error *error, int http_status,
                     const char *code, const char *param, const char *format,
                     ...) __attribute__((format(printf, 5, 6)));
void openai_error_vset(struct openai_error *error, int http_status,
                       const char *code, const char *param, const char *format,
                       va_list args) __attribute__((format(printf, 5, 0)));

/* Appends {"error":{"message":..,"type":..,"param":..,"code":..}}. */
void openai_error_write(const struct openai_error *error, struct text_buf *out);

#define OPENAI_CUT_BYTES 104

/* Copies a text to `out` for a message; one of more than 100 bytes is cut at a
 * whole UTF-8 character, with "..." behind it. Returns `out`. */
const char *openai_cut(const char *text, char out[OPENAI_CUT_BYTES]);

#define OPENAI_SHOWN_BYTES 64

/* Returns a value as JSON for a message, cut short, in `out`; or "missing" if
 * it is NULL. */
const char *openai_show(const json_t *value, char out[OPENAI_SHOWN_BYTES]);

#endif
