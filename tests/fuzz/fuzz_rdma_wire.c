/* Feeds bytes to the decoders of the transport rdma. What they take must be
 * sane, and come out again as it went in.
 *
 *   input: a descriptor, or a message if it has just its length */
#include <stdlib.h>
#include <string.h>

#include "workers/transfer/engine/rdma/wire.h"

#define CHECK(x)     \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void message(const uint8_t *data)
{
    uint8_t out[WIRE_MESSAGE_BYTES];
    struct wire_message m;

    if (wire_message_decode(data, &m) < 0)
        return;
    CHECK(m.type >= WIRE_HELLO && m.type < WIRE_TYPES);
    CHECK(m.rail < SPREAD_RAILS_MAX && m.peer_rail < SPREAD_RAILS_MAX);
    wire_message_encode(&m, out);
    CHECK(memcmp(out, data, sizeof(out)) == 0);
}

static void descriptor(const uint8_t *data, size_t size)
{
    uint8_t out[TRANSPORT_DESCRIPTOR_MAX];
    struct wire_descriptor d;

    if (wire_descriptor_decode(data, size, &d) < 0)
        return;
    CHECK(d.n_rails >= 1 && d.n_rails <= SPREAD_RAILS_MAX && d.port > 0);
    CHECK(d.n_regions <= TRANSPORT_REGIONS_MAX);
    for (uint32_t i = 0; i < d.n_regions; i++)
        CHECK(d.regions[i].address + d.regions[i].bytes >=
              d.regions[i].address);
    if (size > sizeof(out))
        return;
    CHECK(wire_descriptor_encode(&d, out) == size);
    CHECK(memcmp(out, data, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == WIRE_MESSAGE_BYTES)
        message(data);
    descriptor(data, size);
    return 0;
}
