/* Bytes that tokens and header values may have. */
#ifndef CONDUCTOR_HTTP_CHARS_H
#define CONDUCTOR_HTTP_CHARS_H

#include <stdbool.h>
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

/* A byte of a header's value: no control character but a tab (section 5.5). */
static inline bool http_is_text(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

#endif
