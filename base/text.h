/* Copies and parses small texts. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* Copies a C string into to[0 .. size), cut to fit and terminated; size > 0.
 * Ten times as fast as snprintf(), for work done per request. */
static inline void text_copy(char *to, size_t size, const char *from)
{
    size_t n = strnlen(from, size - 1);

    memcpy(to, from, n);
    to[n] = '\0';
}

/* Writes a number in decimal, at most TEXT_NUMBER_BYTES and no '\0'. Returns
 * its end. */
#define TEXT_NUMBER_BYTES 20
static inline char *text_number(char *to, uint64_t n)
{
    char digits[TEXT_NUMBER_BYTES], *end = digits + sizeof(digits), *at = end;

    do
        *--at = (char)('0' + n % 10);
    while (n /= 10);
    return (char *)mempcpy(to, at, (size_t)(end - at));
}

/* As text_number(), in hexadecimal: at most 16 digits, zero-padded to
 * `least`. */
static inline char *text_hex(char *to, uint64_t n, int least)
{
    int shift = 60;

    while (shift > 0 && shift >= least * 4 && n >> shift == 0)
        shift -= 4;
    for (; shift >= 0; shift -= 4)
        *to++ = "0123456789abcdef"[n >> shift & 15];
    return to;
}

/* Returns whether at[0 .. n) begins with NaN or Infinity, in any case and with
 * any sign: many programs write them, but JSON has no such numbers. */
#define TEXT_NO_NAN "a number: JSON has no NaN and no Infinity"
static inline bool text_is_nan(const char *at, size_t n)
{
    size_t word = 0;

    if (n > 0 && (*at == '-' || *at == '+')) {
        at++;
        n--;
    }
    while (word < n && (at[word] | 0x20) >= 'a' && (at[word] | 0x20) <= 'z')
        word++;
    return (word == 3 && (strncasecmp(at, "nan", 3) == 0 ||
                          strncasecmp(at, "inf", 3) == 0)) ||
           (word == 8 && strncasecmp(at, "infinity", 8) == 0);
}

/* Does text_is_nan() for the word around text[at], where a parser stopped. */
static inline bool text_is_nan_near(const char *text, size_t n, size_t at)
{
    at = at < n ? at : n;
    while (at > 0 && (text[at - 1] | 0x20) >= 'a' &&
           (text[at - 1] | 0x20) <= 'z')
        at--;
    if (at > 0 && text[at - 1] == '"') /* an unterminated string */
        return false;
    at -= at > 0 && (text[at - 1] == '-' || text[at - 1] == '+');
    return text_is_nan(text + at, n - at);
}

#endif
