/*
 * A growable byte buffer with an upper bound and a sticky error, so that a
 * writer appends many pieces and looks at the outcome once.
 *
 *   data[0 .. len)  written bytes; not terminated
 *   len <= cap, len <= max
 *   error == 0, or the first failure, after which nothing is appended
 */
#ifndef CONDUCTOR_JSON_TEXT_BUF_H
#define CONDUCTOR_JSON_TEXT_BUF_H

#include <stddef.h>

struct text_buf {
    char *data;
    size_t len;
    size_t cap;
    size_t max;
    int error;
};

/* Makes `b` empty with room for at most max_bytes. Allocates nothing. */
void text_buf_init(struct text_buf *b, size_t max_bytes);

/* Frees the bytes of `b` and makes it empty. */
void text_buf_fini(struct text_buf *b);

/* Forgets the bytes and the error, keeps the memory. */
void text_buf_clear(struct text_buf *b);

/*
 * Makes room for n more bytes. Returns 0, -ENOMEM, -ENOBUFS (over the bound) or
 * the earlier error. Amortised O(1) per byte.
 */
[[nodiscard]] int text_buf_reserve(struct text_buf *b, size_t n);

/* Appends n bytes, borrowed. A failure is kept in b->error. */
void text_buf_add(struct text_buf *b, const void *bytes, size_t n);

/* Appends a C string, borrowed. */
void text_buf_puts(struct text_buf *b, const char *text);

/* Appends as printf does. Returns b->error. */
int text_buf_printf(struct text_buf *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Appends n bytes of UTF-8 as a JSON string with its quotes. Bytes that are not
 * UTF-8 become U+FFFD, so the output is always valid JSON.
 */
void text_buf_json(struct text_buf *b, const char *text, size_t n);

/* As text_buf_json without quotes, to build a string from pieces. */
void text_buf_json_piece(struct text_buf *b, const char *text, size_t n);

/* Append a C string as a JSON string, NULL as null; likewise behind a member's
 * name, as `,"name":`. */
void text_buf_json_str(struct text_buf *b, const char *text);
void text_buf_member(struct text_buf *b, const char *name, const char *text);

#endif
