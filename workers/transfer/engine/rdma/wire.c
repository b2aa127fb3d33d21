/* Encodes and decodes the descriptor and the messages of the transport rdma. */
#include "workers/transfer/engine/rdma/wire.h"

#include <errno.h>
#include <string.h>

#define MAGIC 0x31414d44u /* "DMA1" */
#define HEAD_BYTES 24u
#define REGION_BYTES 16u
/* Bytes of a rail without its keys. */
#define RAIL_BYTES 28u
/* enum ibv_mtu: 256 to 4096 bytes. */
#define MTU_MIN 1u
#define MTU_MAX 5u

static void put(uint8_t *out, uint64_t value, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *in, unsigned n)
{
    uint64_t value = 0;

    for (unsigned i = n; i-- > 0;)
        value = value << 8 | in[i];
    return value;
}

static size_t rail_bytes(uint32_t n_regions)
{
    return RAIL_BYTES + 4 * (size_t)n_regions;
}

static void put_rail(uint8_t *out, const struct wire_rail *r, uint32_t n_keys)
{
    memcpy(out, r->gid, 16);
    put(out + 16, r->lid, 2);
    out[18] = r->mtu;
    out[19] = r->rail_class;
    put(out + 20, r->rate_mb_s, 4);
    put(out + 24, r->up, 4);
    for (uint32_t i = 0; i < n_keys; i++)
        put(out + RAIL_BYTES + 4 * (size_t)i, r->keys[i], 4);
}

size_t wire_descriptor_encode(const struct wire_descriptor *d, uint8_t *out)
{
    size_t at = HEAD_BYTES, of_rail = rail_bytes(d->n_regions);
    uint32_t n_rails = 0;

    put(out, MAGIC, 4);
    put(out + 4, d->port, 2);
    out[6] = (uint8_t)d->n_regions;
    memcpy(out + 8, d->token, WIRE_TOKEN_BYTES);
    for (uint32_t i = 0; i < d->n_regions; i++, at += REGION_BYTES) {
        put(out + at, d->regions[i].address, 8);
        put(out + at + 8, d->regions[i].bytes, 8);
    }
    for (; n_rails < d->n_rails && at + of_rail <= TRANSPORT_DESCRIPTOR_MAX;
         n_rails++, at += of_rail)
        put_rail(out + at, &d->rails[n_rails], d->n_regions);
    out[7] = (uint8_t)n_rails;
    return at;
}

static int get_rail(const uint8_t *in, struct wire_rail *r, uint32_t n_keys)
{
    uint64_t up = get(in + 24, 4);

    memcpy(r->gid, in, 16);
    r->lid = (uint16_t)get(in + 16, 2);
    r->mtu = in[18];
    r->rail_class = in[19];
    r->rate_mb_s = (uint32_t)get(in + 20, 4);
    r->up = up == 1;
    for (uint32_t i = 0; i < n_keys; i++)
        r->keys[i] = (uint32_t)get(in + RAIL_BYTES + 4 * (size_t)i, 4);
    return up <= 1 && r->mtu >= MTU_MIN && r->mtu <= MTU_MAX ? 0 : -EBADMSG;
}

int wire_descriptor_decode(const uint8_t *in, size_t n,
                           struct wire_descriptor *d)
{
    size_t at = HEAD_BYTES;

    memset(d, 0, sizeof(*d));
    if (n < HEAD_BYTES || get(in, 4) != MAGIC)
        return -EBADMSG;
    d->port = (uint16_t)get(in + 4, 2);
    d->n_regions = in[6];
    d->n_rails = in[7];
    memcpy(d->token, in + 8, WIRE_TOKEN_BYTES);
    if (d->port == 0 || d->n_regions > TRANSPORT_REGIONS_MAX ||
        d->n_rails == 0 || d->n_rails > SPREAD_RAILS_MAX ||
        n != HEAD_BYTES + d->n_regions * (size_t)REGION_BYTES +
                 d->n_rails * rail_bytes(d->n_regions))
        return -EBADMSG;
    for (uint32_t i = 0; i < d->n_regions; i++, at += REGION_BYTES) {
        d->regions[i].address = get(in + at, 8);
        d->regions[i].bytes = get(in + at + 8, 8);
        if (d->regions[i].bytes > UINT64_MAX - d->regions[i].address)
            return -EBADMSG;
    }
    for (uint32_t i = 0; i < d->n_rails; i++, at += rail_bytes(d->n_regions))
        if (get_rail(in + at, &d->rails[i], d->n_regions) < 0)
            return -EBADMSG;
    return 0;
}

void wire_message_encode(const struct wire_message *m,
                         uint8_t out[WIRE_MESSAGE_BYTES])
{
    memset(out, 0, WIRE_MESSAGE_BYTES);
    out[0] = (uint8_t)m->type;
    out[1] = m->rail;
    out[2] = m->peer_rail;
    out[3] = m->mtu;
    out[4] = m->reads;
    put(out + 6, m->lid, 2);
    put(out + 8, (uint32_t)m->rc, 4);
    put(out + 12, m->qpn, 4);
    put(out + 16, m->psn, 4);
    put(out + 24, m->id, 8);
    memcpy(out + 32, m->data, sizeof(m->data));
}

/* Returns whether a queue pair can be connected with the message's values. */
static bool pairs(const struct wire_message *m)
{
    return m->mtu >= MTU_MIN && m->mtu <= MTU_MAX && m->qpn < 1u << 24 &&
           m->psn < 1u << 24;
}

int wire_message_decode(const uint8_t in[WIRE_MESSAGE_BYTES],
                        struct wire_message *m)
{
    *m = (struct wire_message){
        .type = (enum wire_type)in[0],
        .rail = in[1],
        .peer_rail = in[2],
        .mtu = in[3],
        .reads = in[4],
        .lid = (uint16_t)get(in + 6, 2),
        .rc = (int32_t)(uint32_t)get(in + 8, 4),
        .qpn = (uint32_t)get(in + 12, 4),
        .psn = (uint32_t)get(in + 16, 4),
        .id = get(in + 24, 8),
    };
    memcpy(m->data, in + 32, sizeof(m->data));
    if (in[0] < WIRE_HELLO || in[0] >= WIRE_TYPES ||
        m->rail >= SPREAD_RAILS_MAX || m->peer_rail >= SPREAD_RAILS_MAX ||
        in[5] != 0 || get(in + 20, 4) != 0)
        return -EBADMSG;
    if (m->type == WIRE_PAIR && !pairs(m))
        return -EBADMSG;
    if (m->type == WIRE_PAIRED && (m->rc > 0 || (m->rc == 0 && !pairs(m))))
        return -EBADMSG;
    return m->type == WIRE_RAIL && m->rc != 0 && m->rc != 1 ? -EBADMSG : 0;
}
