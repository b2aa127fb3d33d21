/* Which bytes may stand where. */
#ifndef CONDUCTOR_HTTP_CHARS_H
#define CONDUCTOR_HTTP_CHARS_H

#include <stdbool.h>
#include <string.h>

/* A byte of a token, as the name of a header (RFC 9110, section 5.6.2). */
static inline bool http_is_token(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* A byte of the value of a header: no control character but a tab (section
 * 5.5). */
static inline bool http_is_text(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

#endif
