/* Errors in OpenAI's shape. */
#include "conductor/front/openai/error.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void openai_error_vset(struct openai_error *error, int http_status,
                       const char *code, const char *param, const char *format,
                       va_list args)
{
    const char *type = http_status == 429   ? "rate_limit_error"
                       : http_status >= 500 ? "server_error"
                                            : "invalid_request_error";

    *error = (struct openai_error){.http_status = http_status};
    snprintf(error->type, sizeof(error->type), "%s", type);
    snprintf(error->code, sizeof(error->code), "%s", code ? code : "");
    snprintf(error->param, sizeof(error->param), "%s", param ? param : "");
    vsnprintf(error->message, sizeof(error->message), format, args);
}

int openai_error_set(struct openai_error *error, int http_status,
                     const char *code, const char *param, const char *format,
                     ...)
{
    va_list args;

    va_start(args, format);
    openai_error_vset(error, http_status, code, param, format, args);
    va_end(args);
    return -EINVAL;
}

void openai_error_write(const struct openai_error *error, struct text_buf *out)
{
    text_buf_member(out, "{\"error\":{\"message\":", error->message);
    text_buf_member(out, ",\"type\":", error->type);
    text_buf_member(out, ",\"param\":", error->param[0] ? error->param : NULL);
    text_buf_member(out, ",\"code\":", error->code[0] ? error->code : NULL);
    text_buf_puts(out, "}}");
}

const char *openai_cut(const char *text, char out[OPENAI_CUT_BYTES])
{
    const size_t most = OPENAI_CUT_BYTES - sizeof("...");
    size_t n = strnlen(text, most + 1);
    bool cut = n > most;

    if (cut)
        for (n = most; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
            n--;
    memcpy(out, text, n);
    memcpy(out + n, "...", sizeof("..."));
    if (!cut)
        out[n] = '\0';
    return out;
}

struct shown {
    char text[OPENAI_SHOWN_BYTES];
    size_t n;
};

/* Ends the dump when there is enough to show. */
static int add_shown(const char *text, size_t n, void *arg)
{
    struct shown *shown = arg;
    size_t room = OPENAI_SHOWN_BYTES - 1 - shown->n;
    bool cut = n > room;

    memcpy(shown->text + shown->n, text, cut ? room : n);
    shown->n += cut ? room : n;
    return cut ? -1 : 0;
}

const char *openai_show(const json_t *value, char out[OPENAI_SHOWN_BYTES])
{
    struct shown shown = {.n = 0};

    if (!value)
        return "missing";
    if (json_dump_callback(value, add_shown, &shown,
                           JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII |
                               JSON_REAL_PRECISION(6)))
        memcpy(shown.text + OPENAI_SHOWN_BYTES - 4, "...", 3);
    memcpy(out, shown.text, OPENAI_SHOWN_BYTES);
    return out;
}
