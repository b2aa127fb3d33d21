/* A peer that dies in the middle of transfers. */
#ifndef TESTS_RDMA_DEAD_H
#define TESTS_RDMA_DEAD_H

#include <stdint.h>

/* A process that writes into this one's memory, over so many rails, is killed,
 * stopped, or stopped and cut off: what it was granted comes back, in so many
 * seconds as is printed, and is not touched any more. Then one dies that this
 * one reads from: the reads end. */
void dead_peer(uint32_t rails);

#endif
