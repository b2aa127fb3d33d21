/*
 * A frame: the unit on every connection between conductor and workers, and
 * between workers. PROTOCOL.md gives every byte.
 *
 *    0        4      6      8                 16
 *    +--------+------+------+-----------------+---------------------+
 *    | length | type | zero | request id      | payload             |
 *    | u32    | u16  | u16  | u64             | `length` bytes      |
 *    +--------+------+------+-----------------+---------------------+
 *
 * All integers are little-endian. `length` counts the payload alone.
 */
#ifndef PROTO_FRAME_H
#define PROTO_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "proto/wire.h"

#define FRAME_HEADER_BYTES 16u
/* The hard limit of a payload; a connection may set a lower limit. */
#define FRAME_PAYLOAD_MAX_BYTES (64u << 20)

enum frame_type {
    /* Every connection. */
    FRAME_HELLO = 1,     /* the side that connected, first frame */
    FRAME_WELCOME = 2,   /* the answer to HELLO */
    FRAME_ERROR = 3,     /* why this connection is closed now */
    FRAME_STATUS = 4,    /* worker: heartbeat and load */
    FRAME_CHALLENGE = 5, /* the answer to HELLO if a secret is required */
    FRAME_PROOF = 6,     /* proof of the secret; both sides send one */

    /* Conductor to worker. */
    FRAME_PREFILL = 10,
    FRAME_DECODE = 11,
    FRAME_CANCEL = 12,
    FRAME_INVENTORY = 13,
    FRAME_COPY = 14,
    FRAME_PREFILL_GROUP = 15,
    FRAME_DROP = 16,
    FRAME_LEAVE = 17,
    FRAME_ROLE = 18,
    FRAME_CONDUCTORS = 19,

    FRAME_LEAD = 70,

    /* Worker to conductor. */
    FRAME_DECODE_READY = 20,
    FRAME_PREFILL_STARTED = 21,
    FRAME_PREFILL_DONE = 22,
    FRAME_TOKENS = 23,
    FRAME_DONE = 24,
    FRAME_FAILED = 25,
    FRAME_BLOCKS_STORED = 26,
    FRAME_BLOCKS_REMOVED = 27,
    FRAME_BLOCKS_CLEARED = 28,
    FRAME_INVENTORY_MARK = 29,
    FRAME_COPIED = 30,
    FRAME_LEAVING = 31,
    FRAME_PATHS = 32,
    FRAME_SHARED = 33,

    /* Worker to worker. */
    FRAME_FETCH = 40,
    FRAME_FETCH_END = 42,
    FRAME_FETCH_CHAIN = 43,
    FRAME_FETCH_KEEP = 45,
    FRAME_TRANSPORTS = 46,
    FRAME_FETCH_WANT = 47,
    FRAME_FETCH_GRANT = 48,
    FRAME_KV_BEGIN = 50,
    FRAME_KV_GRANT = 51,
    FRAME_KV_REFUSE = 52,
    FRAME_KV_LAYER = 53,
    FRAME_KV_END = 54,
    FRAME_KV_TAKEN = 55,
    FRAME_STAGE_BEGIN = 60,
    FRAME_STAGE_READY = 61,
    FRAME_STAGE_REFUSE = 62,
    FRAME_STAGE_ROWS = 63,
    FRAME_STAGE_KV = 64,
    FRAME_STAGE_DONE = 65,
};

struct frame_header {
    uint32_t length; /* payload bytes */
    uint16_t type;   /* enum frame_type, or an unknown type */
    uint64_t request_id;
};

/* frame_type_name(type): returns the name in PROTOCOL.md, "?" if unknown. */
const char *frame_type_name(uint16_t type);

/* frame_fault(h, rc, text, size): writes why a receiver refuses a frame. rc
 * -EBADMSG: malformed; else: out of place. */
void frame_fault(const struct frame_header *h, int rc, char *text, size_t size);

/*
 * frame_header_decode(bytes, payload_limit_bytes, h): reads the 16 bytes of a
 * header into *h. Returns 0; -EMSGSIZE if length exceeds payload_limit_bytes or
 * the hard limit (*h is still filled, for messages); -EPROTO if the reserved
 * field is not zero.
 */
[[nodiscard]] int frame_header_decode(const uint8_t bytes[FRAME_HEADER_BYTES],
                                      uint32_t payload_limit_bytes,
                                      struct frame_header *h);

/*
 * frame_begin(buf, type, request_id): appends a header without its length.
 * Returns the position for frame_end().
 */
size_t frame_begin(struct wire_buf *buf, uint16_t type, uint64_t request_id);

/* frame_end(buf, begin): writes the length of the frame that frame_begin()
 * opened at `begin`. A payload over the hard limit sets buf->failed. */
void frame_end(struct wire_buf *buf, size_t begin);

#endif
