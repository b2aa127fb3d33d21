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

#define TEXT_NEAR_BYTES 40

/* Returns the number of letters to insert, delete or replace (Levenshtein). */
static inline size_t text_distance(const char *a, size_t n_a, const char *b,
                                   size_t n_b)
{
    size_t row[TEXT_NEAR_BYTES + 1];

    for (size_t j = 0; j <= n_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t before = row[0];

        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = before + (a[i - 1] != b[j - 1]);

            before = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n_b];
}

/* Returns whether known[0 .. n) is more like name[0 .. bytes) than all before:
 * fewer than *least letters differ, or it begins with the name. Sets *least,
 * which begins at bytes / 3 + 1. O(bytes x n). */
static inline bool text_nearer(const char *name, size_t bytes,
                               const char *known, size_t n, size_t *least)
{
    bool same = n == bytes && memcmp(name, known, n) == 0;

    if (n == 0 || (!same && (n > TEXT_NEAR_BYTES || bytes > TEXT_NEAR_BYTES)))
        return false;
    size_t d = same ? 0 : text_distance(name, bytes, known, n);
    /* The beginning of a name counts as a far typing error. */
    if (bytes >= 3 && bytes < n && memcmp(name, known, bytes) == 0 &&
        bytes / 3 < d)
        d = bytes / 3;
    if (d >= *least)
        return false;
    *least = d;
    return true;
}

#endif
