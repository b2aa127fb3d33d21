/*
 * Transfers between nodes. Every node has a link that sends and receives at
 * full rate. Shared links: all transfers that a node sends share its rate
 * equally, and so do all that it receives; a transfer runs at the smaller of
 * its two shares. Unshared links: every transfer runs at the full rate.
 * Background transfers (links_start_behind()) use the rate that is left.
 * Internal to sim.
 */
#ifndef SIM_LINKS_H
#define SIM_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/heap.h"

#define LINKS_RANK 0u /* in the heap: before the ends of steps */

struct sim_links;

struct links_config {
    struct heap *heap; /* borrowed; the links use ids from first_id on */
    uint32_t first_id;
    uint32_t n_nodes;
    double bytes_per_s; /* rate of a link, each direction; 0 = no transfers */
    bool shared;
};

/* A transfer that has ended. */
struct links_end {
    void *what; /* the caller's, from its start */
    int kind;   /* the caller's, from its start */
    double bytes;
    int64_t started_us;
};

/* Creates idle links. Returns them, owned, or NULL when out of memory. */
[[nodiscard]] struct sim_links *links_new(const struct links_config *config);

/* Frees the links; NULL is a no-op. */
void links_free(struct sim_links *links);

/*
 * Starts a transfer of `bytes`, at least 0, between two different nodes.
 *   kind, what  the caller's; returned when it ends.
 * Returns 0 or -ENOMEM. O(transfers at both nodes).
 */
[[nodiscard]] int links_start(struct sim_links *links, uint32_t from,
                              uint32_t to, double bytes, int kind, void *what,
                              int64_t now_us);

/* Starts a background transfer, otherwise as links_start(): it stands while a
 * normal transfer shares a link with it, and never exceeds most_bytes_per_s,
 * above 0. */
[[nodiscard]] int links_start_behind(struct sim_links *links, uint32_t from,
                                     uint32_t to, double bytes,
                                     double most_bytes_per_s, int kind,
                                     void *what, int64_t now_us);

/* Adds a timer for `at_us` that uses no link, otherwise as links_start(). */
[[nodiscard]] int links_delay(struct sim_links *links, int kind, void *what,
                              int64_t now_us, int64_t at_us);

/* Ends the transfer or timer of a due event: removes it from the heap, and
 * speeds up the transfers that shared a link with it. O(transfers at both
 * nodes). */
struct links_end links_finish(struct sim_links *links, uint32_t id,
                              int64_t now_us);

#endif
