/*
 * Reads msgpack from a buffer, value by value: no tree, no allocation, no
 * recursion. Values that the caller does not need are skipped.
 *
 * Every function either reads one whole value, or leaves the reader failed:
 * then `expected` describes what was expected at `at`, and every later call
 * fails too. No count is believed that exceeds the bytes left.
 */
#ifndef CONDUCTOR_LINK_EVENTS_UNPACK_H
#define CONDUCTOR_LINK_EVENTS_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct unpack {
    const uint8_t *start, *at, *end;
    const char *expected; /* NULL = nothing has failed */
};

/* Bytes of the buffer that is being read; not NUL-terminated. */
struct unpack_text {
    const char *bytes;
    uint32_t n;
};

/* The kind of the next value. */
enum unpack_kind {
    UNPACK_END, /* the buffer's end, or the reader has failed */
    UNPACK_NIL,
    UNPACK_INTEGER,
    UNPACK_TEXT,
    UNPACK_BYTES,
    UNPACK_ARRAY,
    UNPACK_MAP,
    UNPACK_OTHER, /* a boolean, a float, an extension */
};

/* A reader of n bytes, borrowed. */
void unpack_init(struct unpack *u, const void *bytes, size_t n);

/* Fails the reader at its position, unless it has failed before. Returns
 * false. */
bool unpack_fail(struct unpack *u, const char *expected);

/* The kind of a value, an enum unpack_kind, by its first byte. */
extern const uint8_t unpack_kinds[256];

/* Returns the kind of the next value without reading it. */
static inline enum unpack_kind unpack_peek(const struct unpack *u)
{
    return u->expected || u->at == u->end
               ? UNPACK_END
               : (enum unpack_kind)unpack_kinds[*u->at];
}

/* Reads nil if it comes next, and returns whether it did. */
bool unpack_nil(struct unpack *u);

/* Reads the head of an array or a map: n values, or n pairs, follow.
 * Returns whether there is one that can fit into the bytes left. */
bool unpack_array(struct unpack *u, uint32_t *n);
bool unpack_map(struct unpack *u, uint32_t *n);

/* Reads a string; out points into the buffer. */
bool unpack_text(struct unpack *u, struct unpack_text *out);

/* Reads an integer of any width; a negative one as its two's complement. */
bool unpack_integer(struct unpack *u, uint64_t *out);

/* Reads a time in seconds: a float of 8 bytes. Skips any other value, and
 * leaves *out unchanged. */
bool unpack_seconds(struct unpack *u, double *out);

/* Reads a block's hash: an integer, or the last 8 bytes, big-endian, of a byte
 * string. */
bool unpack_hash(struct unpack *u, uint64_t *out);

/*
 * Reads n integers of 32 bits, signed or not, into out (n). If one of them is
 * something else, *odd is set and all n values are skipped; that is no
 * failure. Cost: some 2 ns each.
 */
bool unpack_tokens(struct unpack *u, uint32_t n, uint32_t *out, bool *odd);

/* Skips n values and all values inside. Cost: O(their bytes). */
bool unpack_skip(struct unpack *u, uint32_t n);

/* Returns whether two texts are equal. */
static inline bool unpack_text_same(struct unpack_text a, struct unpack_text b)
{
    return a.n == b.n && memcmp(a.bytes, b.bytes, a.n) == 0;
}

#endif
