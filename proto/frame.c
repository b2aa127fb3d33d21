/* The header that precedes every payload. */
#include "proto/frame.h"

#include <errno.h>
#include <stdio.h>

#include "proto/codec.h"

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
        [FRAME_COPY] = "COPY",
        [FRAME_PREFILL_GROUP] = "PREFILL_GROUP",
        [FRAME_DROP] = "DROP",
        [FRAME_LEAVE] = "LEAVE",
        [FRAME_ROLE] = "ROLE",
        [FRAME_CONDUCTORS] = "CONDUCTORS",
        [FRAME_LEAD] = "LEAD",
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
        [FRAME_COPIED] = "COPIED",
        [FRAME_LEAVING] = "LEAVING",
        [FRAME_PATHS] = "PATHS",
        [FRAME_SHARED] = "SHARED",
        [FRAME_FETCH] = "FETCH",
        [FRAME_FETCH_END] = "FETCH_END",
        [FRAME_FETCH_CHAIN] = "FETCH_CHAIN",
        [FRAME_FETCH_KEEP] = "FETCH_KEEP",
        [FRAME_TRANSPORTS] = "TRANSPORTS",
        [FRAME_FETCH_WANT] = "FETCH_WANT",
        [FRAME_FETCH_GRANT] = "FETCH_GRANT",
        [FRAME_KV_BEGIN] = "KV_BEGIN",
        [FRAME_KV_GRANT] = "KV_GRANT",
        [FRAME_KV_REFUSE] = "KV_REFUSE",
        [FRAME_KV_LAYER] = "KV_LAYER",
        [FRAME_KV_END] = "KV_END",
        [FRAME_KV_TAKEN] = "KV_TAKEN",
        [FRAME_STAGE_BEGIN] = "STAGE_BEGIN",
        [FRAME_STAGE_READY] = "STAGE_READY",
        [FRAME_STAGE_REFUSE] = "STAGE_REFUSE",
        [FRAME_STAGE_ROWS] = "STAGE_ROWS",
        [FRAME_STAGE_KV] = "STAGE_KV",
        [FRAME_STAGE_DONE] = "STAGE_DONE",
    };
    const char *name =
        type < sizeof(names) / sizeof(names[0]) ? names[type] : NULL;

    return name ? name : "?";
}

static void header_fields(struct codec *c, struct frame_header *h,
                          uint16_t *reserved)
{
    codec_u32(c, &h->length);
    codec_u16(c, &h->type);
    codec_u16(c, reserved);
    codec_u64(c, &h->request_id);
}

void frame_fault(const struct frame_header *h, int rc, char *text, size_t size)
{
    snprintf(text, size, "frame %s (type %u, %u bytes): %s",
             frame_type_name(h->type), h->type, h->length,
             rc == -EBADMSG ? "malformed" : "out of place");
}

int frame_header_decode(const uint8_t bytes[FRAME_HEADER_BYTES],
                        uint32_t payload_limit_bytes, struct frame_header *h)
{
    struct codec c = codec_reader(bytes, FRAME_HEADER_BYTES);
    uint16_t reserved;

    header_fields(&c, h, &reserved);
    if (reserved)
        return -EPROTO;
    if (h->length > payload_limit_bytes || h->length > FRAME_PAYLOAD_MAX_BYTES)
        return -EMSGSIZE;
    return 0;
}

size_t frame_begin(struct wire_buf *buf, uint16_t type, uint64_t request_id)
{
    struct codec c = codec_writer(buf);
    size_t begin = buf->len;

    header_fields(&c, &(struct frame_header){0, type, request_id},
                  &(uint16_t){0});
    return begin;
}

void frame_end(struct wire_buf *buf, size_t begin)
{
    if (buf->failed)
        return;
    size_t length = buf->len - begin - FRAME_HEADER_BYTES;
    if (length > FRAME_PAYLOAD_MAX_BYTES) {
        buf->failed = true;
        return;
    }
    for (size_t i = 0; i < 4; i++)
        buf->data[begin + i] = (uint8_t)(length >> (8 * i));
}
