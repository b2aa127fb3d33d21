/* A bounded, growable byte buffer and the JSON string writer on it. */
#include "conductor/json/text_buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "conductor/json/utf8.h"

void text_buf_init(struct text_buf *b, size_t max_bytes)
{
    *b = (struct text_buf){.max = max_bytes};
}

void text_buf_fini(struct text_buf *b)
{
    free(b->data);
    text_buf_init(b, b->max);
}

void text_buf_clear(struct text_buf *b)
{
    b->len = 0;
    b->error = 0;
}

int text_buf_reserve(struct text_buf *b, size_t n)
{
    if (b->error)
        return b->error;
    if (n > b->max - b->len)
        return b->error = -ENOBUFS;
    return b->error = array_reserve(b->data, b->cap, b->len + n);
}

void text_buf_add(struct text_buf *b, const void *bytes, size_t n)
{
    if (n == 0 || text_buf_reserve(b, n))
        return;
    memcpy(b->data + b->len, bytes, n);
    b->len += n;
}

void text_buf_puts(struct text_buf *b, const char *text)
{
    text_buf_add(b, text, strlen(text));
}

int text_buf_printf(struct text_buf *b, const char *format, ...)
{
    char piece[1024];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(piece, sizeof(piece), format, args);
    va_end(args);
    if (n < 0 && !b->error)
        b->error = -EINVAL;
    if (n < 0 || (size_t)n < sizeof(piece)) {
        text_buf_add(b, piece, n < 0 ? 0 : (size_t)n);
    } else if (text_buf_reserve(b, (size_t)n + 1) == 0) {
        va_start(args, format);
        b->len +=
            (size_t)vsnprintf(b->data + b->len, (size_t)n + 1, format, args);
        va_end(args);
    }
    return b->error;
}

/* Appends an escaped control character, quote or backslash. */
static void add_escaped(struct text_buf *b, unsigned char c)
{
    static const char from[] = "\"\\\n\r\t", to[] = "\"\\nrt";
    const char *found = c ? strchr(from, c) : NULL;

    if (found)
        text_buf_printf(b, "\\%c", to[found - from]);
    else
        text_buf_printf(b, "\\u%04x", c);
}

void text_buf_json_piece(struct text_buf *b, const char *text, size_t n)
{
    size_t done = 0;

    while (done < n) {
        size_t at = done;
        unsigned char c = 0;

        while (at < n) {
            size_t sequence = 1;

            c = (unsigned char)text[at];
            if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f)
                break;
            if (c >= 0x80)
                sequence = utf8_sequence(text + at, n - at);
            if (sequence == 0)
                break;
            at += sequence;
        }
        text_buf_add(b, text + done, at - done);
        if (at < n && c >= 0x80)
            text_buf_puts(b, "\\ufffd");
        else if (at < n)
            add_escaped(b, c);
        done = at + 1;
    }
}

void text_buf_json(struct text_buf *b, const char *text, size_t n)
{
    text_buf_puts(b, "\"");
    text_buf_json_piece(b, text, n);
    text_buf_puts(b, "\"");
}

void text_buf_json_str(struct text_buf *b, const char *text)
{
    if (text)
        text_buf_json(b, text, strlen(text));
    else
        text_buf_puts(b, "null");
}

void text_buf_member(struct text_buf *b, const char *name, const char *text)
{
    text_buf_puts(b, name);
    text_buf_json_str(b, text);
}
