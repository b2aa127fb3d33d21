/*
 * Transfers between nodes. Every node has a link that sends and receives at its
 * rate. Shared: all transfers that a node sends share its sending rate equally,
 * and so do those that it receives; a transfer runs at the smaller of its two
 * shares. Unshared: every transfer runs at the full rate. Those behind others
 * (links_start_behind()) share what is left. Internal to sim.
 */
#ifndef SIM_LINKS_H
#define SIM_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/heap.h"

#define LINKS_RANK 0u /* in the heap: before steps of nodes */

struct sim_links;

struct links_config {
    struct heap *heap; /* borrowed; ids from first_id on are the links' */
    uint32_t first_id;
    uint32_t n_nodes;
    double bytes_per_s; /* above 0, or nothing is ever started */
    bool shared;
};

/* A transfer that has ended. */
struct links_end {
    void *what; /* as given */
    int kind;   /* as given */
    double bytes;
    int64_t started_us;
};

/* Makes links without traffic. Returns them, owned, or NULL: no memory. */
[[nodiscard]] struct sim_links *links_new(const struct links_config *config);

/* Frees them; NULL is a no-op. */
void links_free(struct sim_links *links);

/*
 * Starts a transfer of `bytes`, at least 0, between two different nodes.
 *   kind, what  for the caller, returned when it ends.
 * Returns 0 or -ENOMEM. O(transfers at both nodes).
 */
[[nodiscard]] int links_start(struct sim_links *links, uint32_t from,
                              uint32_t to, double bytes, int kind, void *what,
                              int64_t now_us);

/* As links_start(), for a transfer that has what the others leave of a link: it
 * stands while one of them is at either end, and is never faster than
 * most_bytes_per_s, above 0. */
[[nodiscard]] int links_start_behind(struct sim_links *links, uint32_t from,
                                     uint32_t to, double bytes,
                                     double most_bytes_per_s, int kind,
                                     void *what, int64_t now_us);

/* As links_start(), for something that crosses no link and ends at `at_us`. */
[[nodiscard]] int links_delay(struct sim_links *links, int kind, void *what,
                              int64_t now_us, int64_t at_us);

/* Ends the transfer of an event that is due: it leaves the heap, and transfers
 * that shared a link with it speed up. O(transfers at both nodes). */
struct links_end links_finish(struct sim_links *links, uint32_t id,
                              int64_t now_us);

#endif
