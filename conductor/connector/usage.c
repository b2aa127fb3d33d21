/*
 * The prefill leg's cached tokens in the answer of the decode leg, whose engine
 * fetched the KV, and counts it in its own way.
 */
#include <string.h>

#include "conductor/connector/pair.h"

/* In this form it is a member's name: inside a text its last quote would be
 * escaped. Behind a backslash it is only the end of a longer name. */
static const char cached[] = "\"cached_tokens\":";
/* Most blanks before a number, and digits in it; beyond, it stays as it is. */
#define BLANKS 8
#define DIGITS 20
#define CACHED_BYTES (sizeof(cached) - 1)

/* Returns how many of the last of n bytes may begin the name, and the byte
 * before it. */
static size_t to_hold(const char *bytes, size_t n)
{
    for (size_t k = n < CACHED_BYTES ? n : CACHED_BYTES; k > 0; k--)
        if (memcmp(bytes + n - k, cached, k) == 0)
            return k < n ? k + 1 : k;
    return n > 0 && bytes[n - 1] == '\\';
}

/* Writes the next complete part of bytes. Returns its length; 0: the rest,
 * *hold bytes, is to be held. */
static size_t write_part(const struct pair_usage *u, const char *bytes,
                         size_t n, struct text_buf *out, size_t *hold)
{
    const char *name = memmem(bytes, n, cached, CACHED_BYTES);
    const char *end = bytes + n, *value, *behind;

    *hold = 0;
    if (!name) {
        *hold = to_hold(bytes, n);
        text_buf_add(out, bytes, n - *hold);
        return n - *hold;
    }
    value = name + CACHED_BYTES;
    while (value < end && *value == ' ' && value < name + CACHED_BYTES + BLANKS)
        value++;
    behind = value;
    while (behind < end && *behind >= '0' && *behind <= '9' &&
           behind < value + DIGITS)
        behind++;
    if (behind == end) {
        const char *from = name > bytes ? name - 1 : name;

        *hold = (size_t)(end - from);
        text_buf_add(out, bytes, (size_t)(from - bytes));
        return (size_t)(from - bytes);
    }
    text_buf_add(out, bytes, (size_t)(value - bytes));
    if (behind > value && (*behind < '0' || *behind > '9') &&
        (name == bytes || name[-1] != '\\'))
        text_buf_printf(out, "%lld", (long long)u->cached_tokens);
    else
        text_buf_add(out, value, (size_t)(behind - value));
    return (size_t)(behind - bytes);
}

static void write_all(struct pair_usage *u, const char *bytes, size_t n,
                      struct text_buf *out)
{
    size_t hold = 0, done;

    while (n > 0 && hold == 0) {
        done = write_part(u, bytes, n, out, &hold);
        bytes += done;
        n -= done;
    }
    memcpy(u->held, bytes, n); /* one byte, a name, blanks and digits */
    u->n_held = n;
}

void pair_usage_write(struct pair_usage *u, const char *bytes, size_t n,
                      bool last, struct text_buf *out)
{
    struct text_buf all;

    if (u->cached_tokens < 0) {
        text_buf_add(out, bytes, n);
        return;
    }
    if (u->n_held == 0) {
        write_all(u, bytes, n, out);
    } else {
        text_buf_init(&all, sizeof(u->held) + n);
        text_buf_add(&all, u->held, u->n_held);
        text_buf_add(&all, bytes, n);
        u->n_held = 0;
        write_all(u, all.data, all.len, out);
        if (all.error)
            out->error = all.error;
        text_buf_fini(&all);
    }
    if (last && u->n_held > 0) {
        text_buf_add(out, u->held, u->n_held);
        u->n_held = 0;
    }
}
