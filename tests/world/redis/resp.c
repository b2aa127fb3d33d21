/* Answers in RESP 2. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

#define LACKS "ERR the model of Redis has no "

static void put_line(struct mr_buf *out, char kind, const char *text, size_t n)
{
    mr_put(out, &kind, 1);
    mr_put(out, text, n);
    mr_put(out, "\r\n", 2);
}

void mr_out_status(struct mr_buf *out, const char *text)
{
    put_line(out, '+', text, strlen(text));
}

/* A line has no other end of line within. */
static void put_error(struct mr_buf *out, const char *begin, const char *format,
                      va_list args)
{
    char *text;

    if (vasprintf(&text, format, args) < 0)
        abort();
    for (char *p = text; *p; p++)
        if (*p == '\r' || *p == '\n')
            *p = ' ';
    mr_put(out, "-", 1);
    mr_put(out, begin, strlen(begin));
    put_line(out, text[0], text + 1, strlen(text + 1));
    free(text);
}

void mr_out_error(struct mr_buf *out, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put_error(out, "", format, args);
    va_end(args);
}

void mr_out_lacks(struct mr_buf *out, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put_error(out, LACKS, format, args);
    va_end(args);
}

const char *mr_lacks(void)
{
    return "-" LACKS;
}

static void put_number(struct mr_buf *out, char kind, long long value)
{
    char text[MR_NUMBER_MAX];

    put_line(out, kind, text,
             (size_t)snprintf(text, sizeof(text), "%lld", value));
}

void mr_out_int(struct mr_buf *out, long long value)
{
    put_number(out, ':', value);
}

void mr_out_bulk(struct mr_buf *out, struct mr_bytes b)
{
    put_number(out, '$', (long long)b.n);
    mr_put(out, b.data, b.n);
    mr_put(out, "\r\n", 2);
}

void mr_out_text(struct mr_buf *out, const char *text)
{
    mr_out_bulk(out, mr_bytes_of(text));
}

void mr_out_double(struct mr_buf *out, double value)
{
    char text[MR_NUMBER_MAX];

    snprintf(text, sizeof(text), isinf(value) ? "%g" : "%.17g", value);
    mr_out_text(out, text);
}

void mr_out_nil(struct mr_buf *out)
{
    mr_put(out, "$-1\r\n", 5);
}

void mr_out_nil_array(struct mr_buf *out)
{
    mr_put(out, "*-1\r\n", 5);
}

void mr_out_array(struct mr_buf *out, size_t n)
{
    put_number(out, '*', (long long)n);
}

void mr_out_wrong_type(struct mr_buf *out)
{
    mr_out_error(out, "WRONGTYPE Operation against a key holding the wrong "
                      "kind of value");
}

void mr_out_syntax(struct mr_buf *out)
{
    mr_out_error(out, "ERR syntax error");
}

void mr_out_not_int(struct mr_buf *out)
{
    mr_out_error(out, "ERR value is not an integer or out of range");
}
