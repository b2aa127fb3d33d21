/*
 * Reads and writes bounded little-endian bytes.
 *
 * One function per message both writes and reads it: it names the fields in
 * wire order, and the codec writes or reads them.
 *
 *   static void prefill_fields(struct codec *c, struct msg_prefill *m)
 *   {
 *       codec_u64(c, &m->key_seed);
 *       codec_str(c, m->decode_host, sizeof(m->decode_host));
 *   }
 *
 * A value out of range fails reading, never writing.
 */
#ifndef PROTO_CODEC_H
#define PROTO_CODEC_H

#include "proto/wire.h"

struct codec {
    struct wire_buf *out; /* NULL = this codec reads */
    const uint8_t *in;    /* unread bytes, borrowed */
    size_t in_bytes;
    bool failed; /* read past the end, or a value was refused */
};

/* codec_writer(out): returns a codec that appends to out, which is borrowed. */
struct codec codec_writer(struct wire_buf *out);

/* codec_reader(payload, len): returns a codec that reads payload, which must
 * outlive the views from codec_array(). */
struct codec codec_reader(const void *payload, size_t len);

/* codec_u8(c, v) and so on: appends *v, or reads it; reads 0 past the end. */
void codec_u8(struct codec *c, uint8_t *v);
void codec_u16(struct codec *c, uint16_t *v);
void codec_u32(struct codec *c, uint32_t *v);
void codec_u64(struct codec *c, uint64_t *v);

/* codec_bytes(c, p, n): appends the n bytes at p, or reads n bytes to p; past
 * the end, p is unchanged. */
void codec_bytes(struct codec *c, uint8_t *p, size_t n);

/* codec_str(c, s, cap): appends the string s as a u16 length and its bytes
 * without the NUL, or reads one into s[cap], NUL included. Reading fails if it
 * is longer, or holds a NUL. */
void codec_str(struct codec *c, char *s, size_t cap);

/* codec_array(c, elem_bytes, p, n): appends or reads a u32 count and *n
 * elements of 1, 4 or 8 bytes. To write, *p is native and aligned; after
 * reading, *p is a view of the payload, little-endian and unaligned. */
void codec_array(struct codec *c, size_t elem_bytes, const uint8_t **p,
                 uint32_t *n);

/* codec_require(c, ok): fails reading unless ok. */
void codec_require(struct codec *c, bool ok);

/* codec_skip(c): skips the rest of a payload, for fields of a newer
 * version. */
void codec_skip(struct codec *c);

/* codec_end(c): returns 0 if exactly the whole payload was read and every
 * value was in its range; else -EBADMSG. */
[[nodiscard]] int codec_end(const struct codec *c);

#endif
