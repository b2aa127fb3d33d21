/*
 * Bounded byte buffers, and arrays as they stand in one. codec.h writes and
 * reads what is in them. No I/O.
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

/* wire_buf_extend(buf, n): appends n bytes, which the caller writes. Returns
 * where; NULL past limit_bytes or without memory. */
[[nodiscard]] uint8_t *wire_buf_extend(struct wire_buf *buf, size_t n);

/* wire_u32_at(p, i): element i of an unaligned little-endian array p of u32,
 * whose length the caller knows. */
uint32_t wire_u32_at(const uint8_t *p, size_t i);

/* wire_u64_at(p, i): the same of u64. */
uint64_t wire_u64_at(const uint8_t *p, size_t i);

#endif
