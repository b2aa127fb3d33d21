/* What the transports do alike with the parts of a slice. */
#ifndef WORKERS_TRANSFER_ENGINE_PART_H
#define WORKERS_TRANSFER_ENGINE_PART_H

#include "workers/transfer/engine/transport.h"

/* transport_part_bytes(slice, at_bytes, most): how much of the slice goes into
 * one part from at_bytes on: whole pieces that have a sum, and `most` bytes
 * unless such a piece is longer. */
static inline uint64_t transport_part_bytes(const struct transport_slice *slice,
                                            uint64_t at_bytes, uint64_t most)
{
    uint64_t left = slice->bytes - at_bytes;

    if (slice->sums && slice->sum_bytes > most)
        most = slice->sum_bytes;
    else if (slice->sums)
        most -= most % slice->sum_bytes;
    return left < most ? left : most;
}

#endif
