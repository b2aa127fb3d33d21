/* The header that precedes every payload. */
#include "proto/frame.h"

#include <errno.h>

const char *frame_type_name(uint16_t type)
{
    static const char *const names[] = {
        [FRAME_HELLO] = "HELLO",
        [FRAME_WELCOME] = "WELCOME",
        [FRAME_ERROR] = "ERROR",
        [FRAME_STATUS] = "STATUS",
        [FRAME_CHALLENGE] = "CHALLENGE",
        [FRAME_PROOF] = "PROOF",
        [FRAME_PREFILL] = "PREFILL",
        [FRAME_DECODE] = "DECODE",
        [FRAME_CANCEL] = "CANCEL",
        [FRAME_INVENTORY] = "INVENTORY",
        [FRAME_DECODE_READY] = "DECODE_READY",
        [FRAME_PREFILL_STARTED] = "PREFILL_STARTED",
        [FRAME_PREFILL_DONE] = "PREFILL_DONE",
        [FRAME_TOKENS] = "TOKENS",
        [FRAME_DONE] = "DONE",
        [FRAME_FAILED] = "FAILED",
        [FRAME_BLOCKS_STORED] = "BLOCKS_STORED",
        [FRAME_BLOCKS_REMOVED] = "BLOCKS_REMOVED",
        [FRAME_BLOCKS_CLEARED] = "BLOCKS_CLEARED",
        [FRAME_INVENTORY_MARK] = "INVENTORY_MARK",
        [FRAME_FETCH] = "FETCH",
        [FRAME_FETCH_DATA] = "FETCH_DATA",
        [FRAME_FETCH_END] = "FETCH_END",
        [FRAME_FETCH_CHAIN] = "FETCH_CHAIN",
        [FRAME_FETCH_READ] = "FETCH_READ",
        [FRAME_FETCH_KEEP] = "FETCH_KEEP",
        [FRAME_KV_BEGIN] = "KV_BEGIN",
        [FRAME_KV_GRANT] = "KV_GRANT",
        [FRAME_KV_REFUSE] = "KV_REFUSE",
        [FRAME_KV_LAYER] = "KV_LAYER",
        [FRAME_KV_END] = "KV_END",
    };
    const char *name =
        type < sizeof(names) / sizeof(names[0]) ? names[type] : NULL;

    return name ? name : "?";
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
