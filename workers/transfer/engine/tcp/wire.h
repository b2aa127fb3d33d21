/* The bytes on a data connection (proto/PROTOCOL.md, "Data connections"): one
 * token, then requests one way and answers the other way. */
#ifndef WORKERS_TRANSFER_ENGINE_TCP_WIRE_H
#define WORKERS_TRANSFER_ENGINE_TCP_WIRE_H

#include <stdint.h>

#define TCP_TOKEN_BYTES 16u
#define TCP_REQUEST_BYTES 40u
#define TCP_ANSWER_BYTES 8u

enum tcp_kind {
    TCP_READ = 1, /* the answer has the bytes */
};

enum tcp_status {
    TCP_DONE = 0,
    TCP_REVOKED = 1, /* the grant has ended; no bytes follow */
};

struct tcp_request {
    uint32_t kind;
    uint32_t region;
    uint64_t grant_id;
    uint64_t offset;
    uint64_t bytes;
};

/* Writes a request; the last 8 bytes are 0. */
void tcp_request_encode(const struct tcp_request *r,
                        uint8_t out[TCP_REQUEST_BYTES]);

/* Reads a request. Returns 0, or -EBADMSG: unknown kind, no bytes, an end past
 * 2^64, or padding that is not 0. */
[[nodiscard]] int tcp_request_decode(const uint8_t in[TCP_REQUEST_BYTES],
                                     struct tcp_request *r);

/* Writes an answer; the last 4 bytes are 0. */
void tcp_answer_encode(uint32_t status, uint8_t out[TCP_ANSWER_BYTES]);

/* Reads an answer. Returns its status, an enum tcp_status, or -EBADMSG. */
[[nodiscard]] int tcp_answer_decode(const uint8_t in[TCP_ANSWER_BYTES]);

#endif
