/* The header that precedes every payload. */
#include "proto/frame.h"

#include <errno.h>

const char *frame_type_name(uint16_t type)
{
    switch ((enum frame_type)type) {
    case FRAME_HELLO:
        return "HELLO";
    case FRAME_WELCOME:
        return "WELCOME";
    case FRAME_ERROR:
        return "ERROR";
    case FRAME_STATUS:
        return "STATUS";
    case FRAME_CHALLENGE:
        return "CHALLENGE";
    case FRAME_PROOF:
        return "PROOF";
    case FRAME_PREFILL:
        return "PREFILL";
    case FRAME_DECODE:
        return "DECODE";
    case FRAME_CANCEL:
        return "CANCEL";
    case FRAME_DECODE_READY:
        return "DECODE_READY";
    case FRAME_PREFILL_STARTED:
        return "PREFILL_STARTED";
    case FRAME_PREFILL_DONE:
        return "PREFILL_DONE";
    case FRAME_TOKENS:
        return "TOKENS";
    case FRAME_DONE:
        return "DONE";
    case FRAME_FAILED:
        return "FAILED";
    case FRAME_BLOCKS_STORED:
        return "BLOCKS_STORED";
    case FRAME_BLOCKS_REMOVED:
        return "BLOCKS_REMOVED";
    case FRAME_BLOCKS_CLEARED:
        return "BLOCKS_CLEARED";
    case FRAME_FETCH:
        return "FETCH";
    case FRAME_FETCH_DATA:
        return "FETCH_DATA";
    case FRAME_FETCH_END:
        return "FETCH_END";
    case FRAME_FETCH_CHAIN:
        return "FETCH_CHAIN";
    case FRAME_FETCH_READ:
        return "FETCH_READ";
    case FRAME_FETCH_KEEP:
        return "FETCH_KEEP";
    case FRAME_KV_BEGIN:
        return "KV_BEGIN";
    case FRAME_KV_GRANT:
        return "KV_GRANT";
    case FRAME_KV_REFUSE:
        return "KV_REFUSE";
    case FRAME_KV_LAYER:
        return "KV_LAYER";
    case FRAME_KV_END:
        return "KV_END";
    }
    return "?";
}

int frame_header_decode(const uint8_t bytes[FRAME_HEADER_BYTES],
                        uint32_t payload_limit_bytes, struct frame_header *h)
{
    struct wire_reader r;

    wire_reader_init(&r, bytes, FRAME_HEADER_BYTES);
    h->length = wire_get_u32(&r);
    h->type = wire_get_u16(&r);
    uint16_t reserved = wire_get_u16(&r);
    h->request_id = wire_get_u64(&r);
    if (reserved)
        return -EPROTO;
    if (h->length > payload_limit_bytes || h->length > FRAME_PAYLOAD_MAX_BYTES)
        return -EMSGSIZE;
    return 0;
}

size_t frame_begin(struct wire_buf *buf, uint16_t type, uint64_t request_id)
{
    size_t begin = buf->len;

    wire_put_u32(buf, 0);
    wire_put_u16(buf, type);
    wire_put_u16(buf, 0);
    wire_put_u64(buf, request_id);
    return begin;
}

void frame_end(struct wire_buf *buf, size_t begin, size_t later_bytes)
{
    if (buf->failed)
        return;
    size_t length = buf->len - begin - FRAME_HEADER_BYTES + later_bytes;
    if (length > FRAME_PAYLOAD_MAX_BYTES) {
        buf->failed = true;
        return;
    }
    for (size_t i = 0; i < 4; i++)
        buf->data[begin + i] = (uint8_t)(length >> (8 * i));
}
