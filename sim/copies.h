/* The blocks that nodes have: their caches, and what the index is told. */
#ifndef SIM_COPIES_H
#define SIM_COPIES_H

#include "sim/internal.h"

/* Nodes that keep blocks, the first so many: those that prefill, or may. */
uint32_t sim_copies_nodes(const struct sim *sim);

/* Makes the caches, told to the indexes. Returns 0 or -ENOMEM. */
[[nodiscard]] int sim_copies_init(struct sim *sim);

/* Frees them. */
void sim_copies_fini(struct sim *sim);

/* Matches, touches and places all blocks of a request on its node at
 * dispatch. */
void sim_copies_dispatch(struct sim *sim, struct sim_node *node,
                         const struct sim_request *request);

/* The blocks that the request placed at dispatch are ready. */
void sim_copies_ready(struct sim *sim, struct sim_node *node,
                      const struct sim_request *request);

/* Whether a node has a block where reading it takes no time. */
bool sim_copies_at_hand(const struct sim_node *node, uint64_t key);

/* How many of a request's first `most` blocks the node has at hand. */
uint32_t sim_copies_there(const struct sim_node *node,
                          const struct sim_request *request, uint32_t most);

/* The blocks that the node has of a request that will wait there become the
 * most recently used of their tiers, as in a worker. */
void sim_copies_keep(struct sim_node *node, const struct sim_request *request);

/* How many leading blocks of a request the node's cache has; they become the
 * most recently used. Those from `planned` on count only where they are at no
 * cost. *load_us: to read them into the device. */
uint32_t sim_copies_match(struct sim *sim, struct sim_node *node,
                          const struct sim_request *request, uint32_t planned,
                          int64_t *load_us);

/* The blocks first .. last - 1 of a request have been loaded. */
void sim_copies_loaded(struct sim *sim, struct sim_node *node,
                       const struct sim_request *request, uint32_t first,
                       uint32_t last);

/* The blocks first .. last - 1 of a request are now on the node. */
void sim_copies_store(struct sim *sim, struct sim_node *node,
                      const struct sim_request *request, uint32_t first,
                      uint32_t last);

/* A request's first n blocks become the most recently used, the last one before
 * the one in front of it: leaves are older, and leave first. */
void sim_copies_touch(struct sim_node *node, const struct sim_request *request,
                      uint32_t n);

/* How much memory decodes of a coupled node leave to its cache. */
void sim_copies_share_memory(struct sim *sim, struct sim_node *node);

/* Tells the copies of the watched blocks at each time up to now. */
void sim_copies_watch(struct sim *sim, int64_t now_us);

#endif
