/* Encodes and decodes the bytes of data connections. */
#include "workers/transfer/engine/tcp/wire.h"

#include <errno.h>
#include <string.h>

#include "proto/wire.h"

static void put_u32(uint8_t *out, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(v >> (8 * i));
}

static void put_u64(uint8_t *out, uint64_t v)
{
    put_u32(out, (uint32_t)v);
    put_u32(out + 4, (uint32_t)(v >> 32));
}

void tcp_request_encode(const struct tcp_request *r,
                        uint8_t out[TCP_REQUEST_BYTES])
{
    put_u32(out, r->kind);
    put_u32(out + 4, r->region);
    put_u64(out + 8, r->grant_id);
    put_u64(out + 16, r->offset);
    put_u64(out + 24, r->bytes);
    memset(out + 32, 0, 8);
}

int tcp_request_decode(const uint8_t in[TCP_REQUEST_BYTES],
                       struct tcp_request *r)
{
    *r = (struct tcp_request){
        .kind = wire_u32_at(in, 0),
        .region = wire_u32_at(in, 1),
        .grant_id = wire_u64_at(in, 1),
        .offset = wire_u64_at(in, 2),
        .bytes = wire_u64_at(in, 3),
    };
    if (r->kind != TCP_READ || r->bytes == 0 ||
        r->offset > UINT64_MAX - r->bytes || wire_u64_at(in, 4) != 0)
        return -EBADMSG;
    return 0;
}

void tcp_answer_encode(uint32_t status, uint8_t out[TCP_ANSWER_BYTES])
{
    put_u32(out, status);
    put_u32(out + 4, 0);
}

int tcp_answer_decode(const uint8_t in[TCP_ANSWER_BYTES])
{
    uint32_t status = wire_u32_at(in, 0);

    if (status > TCP_REVOKED || wire_u32_at(in, 1) != 0)
        return -EBADMSG;
    return (int)status;
}
