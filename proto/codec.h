/*
 * Little-endian reading and writing of bounded bytes.
 *
 * One function for each message both writes and reads it: it names the fields
 * in their order on the wire, and the codec writes or reads them.
 *
 *   static void prefill_fields(struct codec *c, struct msg_prefill *m)
 *   {
 *       codec_u64(c, &m->key_seed);
 *       codec_str(c, m->decode_host, sizeof(m->decode_host));
 *   }
 *
 * A value out of range makes reading fail, never writing.
 */
#ifndef PROTO_CODEC_H
#define PROTO_CODEC_H

#include "proto/wire.h"

struct codec {
    struct wire_buf *out; /* NULL: this codec reads */
    const uint8_t *in;    /* what is left to read, borrowed */
    size_t in_bytes;
    bool failed; /* reading went past the end, or a value is refused */
};

/* codec_writer(out): appends to out, which is borrowed. */
struct codec codec_writer(struct wire_buf *out);

/* codec_reader(payload, len): reads payload, which must outlive the views that
 * codec_array() hands out. */
struct codec codec_reader(const void *payload, size_t len);

/* codec_u8(c, v), and so on: appends *v, or reads it: 0 past the end. */
void codec_u8(struct codec *c, uint8_t *v);
void codec_u16(struct codec *c, uint16_t *v);
void codec_u32(struct codec *c, uint32_t *v);
void codec_u64(struct codec *c, uint64_t *v);

/* codec_bytes(c, p, n): appends the n bytes at p, or copies n bytes there;
 * p is left alone past the end. */
void codec_bytes(struct codec *c, uint8_t *p, size_t n);

/* codec_str(c, s, cap): appends the string s as a u16 length and its bytes
 * without the NUL, or reads one into s, which has room for cap bytes with the
 * NUL. One that is longer, or that holds a NUL, fails. */
void codec_str(struct codec *c, char *s, size_t cap);

/* codec_array(c, elem_bytes, p, n): a u32 count and *n elements of 1, 4 or 8
 * bytes. Written, *p is native and aligned; read, *p is a view of the payload,
 * little-endian and not aligned. */
void codec_array(struct codec *c, size_t elem_bytes, const uint8_t **p,
                 uint32_t *n);

/* codec_require(c, ok): refuses the message that was read unless ok. */
void codec_require(struct codec *c, bool ok);

/* codec_skip(c): skips the rest, which belongs to a version that this side does
 * not know. */
void codec_skip(struct codec *c);

/* codec_end(c): 0 if all was read, nothing past the end, and every value was
 * in its range; else -EBADMSG. */
[[nodiscard]] int codec_end(const struct codec *c);

#endif
