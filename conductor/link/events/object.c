/* Names of a store's objects. */
#include "conductor/link/events/object.h"

#define HASH_DIGITS 16u

/* A digit's value; 16 = not a digit. */
static uint32_t hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return (uint32_t)(c - '0');
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10 : 16;
}

bool kv_object_name(struct unpack_text name, uint64_t *hash, uint16_t *part)
{
    uint32_t end = 0, longest = 0, run = 0, digest = 0;
    uint64_t value = 0;

    for (uint32_t i = 0; i < name.n; i++) {
        run = hex_digit(name.bytes[i]) < 16 ? run + 1 : 0;
        if (run > longest) {
            longest = run;
            end = i + 1;
        }
    }
    if (longest < HASH_DIGITS)
        return false;
    for (uint32_t i = 0; i < name.n; i++)
        if (i < end - longest || i >= end)
            digest = digest * 31 + (uint8_t)name.bytes[i];
    for (uint32_t i = end - HASH_DIGITS; i < end; i++)
        value = value << 4 | hex_digit(name.bytes[i]);
    *hash = value;
    *part = (uint16_t)(digest ^ digest >> 16);
    return true;
}
