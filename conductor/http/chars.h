/* Bytes that tokens and header values may have. */
#ifndef CONDUCTOR_HTTP_CHARS_H
#define CONDUCTOR_HTTP_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A byte of a token, as the name of a header (RFC 9110, section 5.6.2). */
static inline bool http_is_token(unsigned char c)
{
#define BIT(c) (UINT64_C(1) << ((c) % 64))
    static const uint64_t tokens[4] = {
        UINT64_C(0x3ff) << '0' | BIT('!') | BIT('#') | BIT('$') | BIT('%') |
            BIT('&') | BIT('\'') | BIT('*') | BIT('+') | BIT('-') | BIT('.'),
        UINT64_C(0x3ffffff) << 'A' % 64 | UINT64_C(0x3ffffff) << 'a' % 64 |
            BIT('^') | BIT('_') | BIT('`') | BIT('|') | BIT('~'),
    };
#undef BIT

    return tokens[c / 64] >> c % 64 & 1;
}

/* Returns a hex digit's value; -1: it is none. */
static inline int http_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the first byte of at[0 .. n) with a %XX decoded, n > 0; *used: its
 * length there. */
static inline int http_decode(const char *at, size_t n, size_t *used)
{
    int high = n > 2 && *at == '%' ? http_hex(at[1]) : -1;
    int low = high >= 0 ? http_hex(at[2]) : -1;

    *used = low >= 0 ? 3 : 1;
    return low >= 0 ? high * 16 + low : (unsigned char)*at;
}

/* A byte of a header's value: no control character but a tab (section 5.5). */
static inline bool http_is_text(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

#endif
