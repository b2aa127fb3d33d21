/* The nodes' caches, and their events for the prefix index. */
#ifndef SIM_COPIES_H
#define SIM_COPIES_H

#include "sim/internal.h"

/* Returns the number of nodes with a cache, numbered from 0: the nodes that
 * prefill, or all nodes where roles switch. */
uint32_t sim_copies_nodes(const struct sim *sim);

/* Creates the caches, which report to the indexes. Returns 0 or -ENOMEM. */
[[nodiscard]] int sim_copies_init(struct sim *sim);

/* Frees the caches. */
void sim_copies_fini(struct sim *sim);

/* Places or touches all blocks of a request on its node, at dispatch. */
void sim_copies_dispatch(struct sim *sim, struct sim_node *node,
                         const struct sim_request *request);

/* Marks the blocks that the request placed at dispatch as ready. */
void sim_copies_ready(struct sim *sim, struct sim_node *node,
                      const struct sim_request *request);

/* Returns whether a node has a block in a tier that takes no time to read. */
bool sim_copies_at_hand(const struct sim_node *node, uint64_t key);

/* Returns how many leading blocks, of a request's first `most`, a node has at
 * hand. */
uint32_t sim_copies_there(const struct sim_node *node,
                          const struct sim_request *request, uint32_t most);

/* Makes the leading blocks of a request that the node caches the most recently
 * used of their tiers, as a worker does while the request waits. */
void sim_copies_keep(struct sim_node *node, const struct sim_request *request);

/* Returns how many leading blocks of a request the node's cache has, and makes
 * them the most recently used. Blocks from `planned` on count only where
 * reading is free. *load_us: the time to read them into the device. */
uint32_t sim_copies_match(struct sim *sim, struct sim_node *node,
                          const struct sim_request *request, uint32_t planned,
                          int64_t *load_us);

/* Caches blocks first .. last - 1 of a request, which have been loaded. */
void sim_copies_loaded(struct sim *sim, struct sim_node *node,
                       const struct sim_request *request, uint32_t first,
                       uint32_t last);

/* Caches blocks first .. last - 1 of a request, which have been computed,
 * fetched or copied. */
void sim_copies_store(struct sim *sim, struct sim_node *node,
                      const struct sim_request *request, uint32_t first,
                      uint32_t last);

/* Makes a request's first n blocks the most recently used, from the last to the
 * first: leaves are older than their parents, and are evicted first. */
void sim_copies_touch(struct sim_node *node, const struct sim_request *request,
                      uint32_t n);

/* Gives the cache of a coupled node the memory that its decodes leave. */
void sim_copies_share_memory(struct sim *sim, struct sim_node *node);

/* Reports the copies of the watched blocks at each sampling time up to now. */
void sim_copies_watch(struct sim *sim, int64_t now_us);

#endif
