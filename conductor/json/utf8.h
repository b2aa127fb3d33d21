/*
 * UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above
 * U+10FFFF.
 */
#ifndef CONDUCTOR_JSON_UTF8_H
#define CONDUCTOR_JSON_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Returns the length (1 .. 4) of the valid sequence at text[0 .. n); 0 =
 * none. */
size_t utf8_sequence(const char *text, size_t n);

/* Returns the offset of the first byte of text[0 .. n) that begins no valid
 * sequence, or n if all are valid. O(n): 8 bytes of ASCII at a time. */
size_t utf8_valid_prefix(const char *text, size_t n);

/* Writes code point c (not a surrogate, <= 0x10ffff) to out[4]. Returns its
 * length. */
size_t utf8_put(char *out, uint32_t c);

#endif
