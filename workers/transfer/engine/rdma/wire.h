/*
 * The descriptor of the transport rdma, sent once over the control connection,
 * and its messages, on a connection of their own. All numbers are
 * little-endian; messages have one size:
 *
 *   0     1     2          3    4      5  6    8   12   16   20       24  32
 *   type  rail  peer_rail  mtu  reads  0  lid  rc  qpn  psn  0 0 0 0  id  data
 *
 *   asker                              holder
 *   HELLO data: the offer's token ---> WELCOME
 *   PAIR rail, peer_rail, qpn, psn --> PAIRED the same id, qpn, psn, or rc
 *   UNPAIR id ---------------------->
 *        <---------------------------- GRANT id, REVOKE id
 *   REVOKED id: no op of it is left ->
 *        <---------------------------- RAIL rail, rc: 1 up, 0 down
 */
#ifndef WORKERS_TRANSFER_ENGINE_RDMA_WIRE_H
#define WORKERS_TRANSFER_ENGINE_RDMA_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workers/transfer/engine/rdma/spread.h"

/* Peers of another version are refused. */
#define WIRE_VERSION 4u
#define WIRE_TOKEN_BYTES 16u
#define WIRE_MESSAGE_BYTES 48u

struct wire_region {
    uint64_t address; /* of its first byte */
    uint64_t bytes;
};

struct wire_rail {
    uint8_t gid[16];
    uint16_t lid; /* InfiniBand */
    uint8_t mtu;  /* enum ibv_mtu */
    uint8_t rail_class;
    bool up;
    uint32_t rate_mb_s;                   /* MB per second; 0 = not known */
    uint32_t keys[TRANSPORT_REGIONS_MAX]; /* remote keys (n_regions) */
};

struct wire_descriptor {
    uint16_t port;
    uint8_t token[WIRE_TOKEN_BYTES];
    uint32_t n_regions;
    struct wire_region regions[TRANSPORT_REGIONS_MAX];
    uint32_t n_rails;
    struct wire_rail rails[SPREAD_RAILS_MAX];
};

enum wire_type {
    WIRE_HELLO = 1,
    WIRE_WELCOME,
    WIRE_PAIR,
    WIRE_PAIRED,
    WIRE_UNPAIR,
    WIRE_GRANT,
    WIRE_REVOKE,
    WIRE_REVOKED,
    WIRE_RAIL,
    WIRE_TYPES, /* one more than the last */
};

struct wire_message {
    enum wire_type type;
    uint8_t rail;      /* of the sender */
    uint8_t peer_rail; /* of the receiver */
    uint8_t mtu;       /* PAIR, PAIRED: enum ibv_mtu */
    uint8_t reads;     /* PAIR, PAIRED: most reads at once */
    uint16_t lid;      /* PAIR, PAIRED: of the sender, on InfiniBand */
    int32_t rc;        /* PAIRED: 0 or a negative errno; RAIL: 1 or 0 */
    uint32_t qpn;
    uint32_t psn;
    uint64_t id;      /* of a pairing or a grant; HELLO: WIRE_VERSION */
    uint8_t data[16]; /* HELLO: the token; PAIR, PAIRED: the sender's GID */
};

/* Writes a descriptor to out[TRANSPORT_DESCRIPTOR_MAX], without rails for which
 * it has no room. Returns its length. */
size_t wire_descriptor_encode(const struct wire_descriptor *d, uint8_t *out);

/* Reads a descriptor. Returns 0, or -EBADMSG: wrong magic number, no rail or
 * too many, wrong size, a region that ends past 2^64, or an unknown MTU. */
[[nodiscard]] int wire_descriptor_decode(const uint8_t *in, size_t n,
                                         struct wire_descriptor *d);

void wire_message_encode(const struct wire_message *m,
                         uint8_t out[WIRE_MESSAGE_BYTES]);

/* Reads a message. Returns 0, or -EBADMSG: unknown type, a rail beyond
 * SPREAD_RAILS_MAX, invalid values of a queue pair, or padding that is not 0.
 */
[[nodiscard]] int wire_message_decode(const uint8_t in[WIRE_MESSAGE_BYTES],
                                      struct wire_message *m);

#endif
