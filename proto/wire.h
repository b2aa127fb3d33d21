/*
 * Bounded byte buffers, and access to encoded arrays. No I/O.
 */
#ifndef PROTO_WIRE_H
#define PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A growing output buffer. All bytes are owned by the buffer. Writing past
 * limit_bytes, or failing to allocate, sets `failed` and drops all further
 * writes; the caller checks it once, at the end.
 */
struct wire_buf {
    uint8_t *data;
    size_t len;
    size_t cap;
    size_t limit_bytes;
    bool failed;
};

/* wire_buf_init(buf, limit_bytes): makes an empty buffer that never grows past
 * limit_bytes. Allocates nothing yet. */
void wire_buf_init(struct wire_buf *buf, size_t limit_bytes);

/* wire_buf_fini(buf): frees the bytes; buf may be initialised again. */
void wire_buf_fini(struct wire_buf *buf);

/* wire_buf_reset(buf): empties it and clears `failed`; keeps the memory. */
void wire_buf_reset(struct wire_buf *buf);

/* wire_buf_extend(buf, n): appends n bytes. Returns where the caller writes
 * them; NULL past limit_bytes or out of memory. */
[[nodiscard]] uint8_t *wire_buf_extend(struct wire_buf *buf, size_t n);

/* wire_u32_at(p, i): returns element i of the unaligned little-endian u32 array
 * p; no bounds check. */
uint32_t wire_u32_at(const uint8_t *p, size_t i);

/* wire_u64_at(p, i): does the same for u64. */
uint64_t wire_u64_at(const uint8_t *p, size_t i);

#endif
