/* Checks and writes UTF-8. */
#include "conductor/json/utf8.h"

#include <endian.h>
#include <stdbool.h>
#include <string.h>

size_t utf8_sequence(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned char low = 0x80, high = 0xbf;
    size_t need;

    if (n == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    need = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n < need)
        return 0;
    /* The second byte's range keeps overlong forms and surrogates out. */
    if (s[0] == 0xe0)
        low = 0xa0;
    else if (s[0] == 0xed)
        high = 0x9f;
    else if (s[0] == 0xf0)
        low = 0x90;
    else if (s[0] == 0xf4)
        high = 0x8f;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < need; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return need;
}

/* Whether the lowest three bytes are a sequence, as most of the world's letters
 * are. 0x200f: the bits that show an overlong form or a surrogate. */
static bool is_common_three(uint64_t word)
{
    uint64_t lead = word & 0x200f;

    return (word & 0xc0c0f0) == 0x8080e0 && lead != 0 && lead != 0x200d;
}

size_t utf8_valid_prefix(const char *text, size_t n)
{
    size_t at = 0;

    while (at < n) {
        uint64_t word;
        size_t sequence;

        if (n - at >= 8) {
            memcpy(&word, text + at, 8);
            if (!(word & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
            if (is_common_three(le64toh(word))) {
                at += 3;
                continue;
            }
        }
        sequence = utf8_sequence(text + at, n - at);
        if (sequence == 0)
            return at;
        at += sequence;
    }
    return n;
}

size_t utf8_put(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}
