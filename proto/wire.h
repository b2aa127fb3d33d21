/*
 * Little-endian reading and writing of bounded byte buffers: the two tools
 * from which every message of the protocol is built. No I/O.
 */
#ifndef PROTO_WIRE_H
#define PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A growing output buffer. All bytes are owned by the buffer. Writing past
 * limit_bytes, or failing to allocate, sets `failed` and drops what follows;
 * the caller checks it once, at the end.
 */
struct wire_buf {
    uint8_t *data;
    size_t len;
    size_t cap;
    size_t limit_bytes;
    bool failed;
};

/* wire_buf_init(buf, limit_bytes): an empty buffer that never grows past
 * limit_bytes. Allocates nothing yet. */
void wire_buf_init(struct wire_buf *buf, size_t limit_bytes);

/* wire_buf_fini(buf): frees the bytes; buf may be initialised again. */
void wire_buf_fini(struct wire_buf *buf);

/* wire_buf_reset(buf): forgets the content and keeps the memory. */
void wire_buf_reset(struct wire_buf *buf);

/* wire_put_u8(buf, v), and so on: appends v, its low byte first. */
void wire_put_u8(struct wire_buf *buf, uint8_t v);
void wire_put_u16(struct wire_buf *buf, uint16_t v);
void wire_put_u32(struct wire_buf *buf, uint32_t v);
void wire_put_u64(struct wire_buf *buf, uint64_t v);

/* wire_put_bytes(buf, p, n): appends n bytes as they are. */
void wire_put_bytes(struct wire_buf *buf, const void *p, size_t n);

/* wire_put_str(buf, s): appends a u16 length and the bytes of s, without its
 * NUL. A string longer than 65,535 bytes sets `failed`. */
void wire_put_str(struct wire_buf *buf, const char *s);

/* wire_put_array(buf, elem_bytes, p, n): appends a u32 count and the n elements
 * of 1, 4 or 8 bytes at p, which is native, aligned and borrowed. */
void wire_put_array(struct wire_buf *buf, size_t elem_bytes, const void *p,
                    uint32_t n);

/*
 * A reader over bytes that somebody else owns. Reading past the end sets
 * `failed` and yields zeroes; the caller checks it once, at the end.
 */
struct wire_reader {
    const uint8_t *data;
    size_t len;
    size_t pos;
    bool failed;
};

/* wire_reader_init(r, data, len): reads from data, which must outlive r. */
void wire_reader_init(struct wire_reader *r, const void *data, size_t len);

/* wire_get_u8(r), and so on: the next value, its low byte first; 0 past the
 * end. */
uint8_t wire_get_u8(struct wire_reader *r);
uint16_t wire_get_u16(struct wire_reader *r);
uint32_t wire_get_u32(struct wire_reader *r);
uint64_t wire_get_u64(struct wire_reader *r);

/* wire_get_bytes(r, n): a view of the next n bytes (owned by the reader's
 * source), or NULL past the end. */
const uint8_t *wire_get_bytes(struct wire_reader *r, size_t n);

/* wire_get_str(r, out, cap): reads a string into out, NUL-terminated. A string
 * that does not fit, or that holds a NUL, sets `failed`. */
void wire_get_str(struct wire_reader *r, char *out, size_t cap);

/* wire_get_array(r, elem_bytes, n): reads a u32 count into *n and returns a
 * view of that many elements; they are little-endian and not aligned. NULL
 * with *n = 0 when there are none or the bytes end early. */
const uint8_t *wire_get_array(struct wire_reader *r, size_t elem_bytes,
                              uint32_t *n);

/* wire_u32_at(p, i): element i of an unaligned little-endian array p of u32,
 * whose length the caller knows. */
uint32_t wire_u32_at(const uint8_t *p, size_t i);

/* wire_u64_at(p, i): the same of u64. */
uint64_t wire_u64_at(const uint8_t *p, size_t i);

/* wire_end(r, in_range): what a decoder returns: 0 if all was read, nothing
 * past the end, and it is in its range, else -EBADMSG. */
int wire_end(const struct wire_reader *r, bool in_range);

#endif
