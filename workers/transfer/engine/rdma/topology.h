/*
 * The topology matrix: the class of each network card for memory on each NUMA
 * node. Cards and nodes are read from sysfs.
 *
 *            mlx5_0  mlx5_1  mlx5_2  mlx5_3        0: preferred
 *   node 0      0       0       1       1          1, 2, ...: by distance,
 *   node 1      1       1       0       0             when those have failed
 *   anywhere    0       0       0       0
 */
#ifndef WORKERS_TRANSFER_ENGINE_RDMA_TOPOLOGY_H
#define WORKERS_TRANSFER_ENGINE_RDMA_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#define TOPOLOGY_NICS_MAX 16u
#define TOPOLOGY_NODES_MAX 64u
#define TOPOLOGY_NAME_MAX 64u
/* The node of memory on several nodes, or on an unknown node. */
#define TOPOLOGY_ANYWHERE (-1)

struct topology_nic {
    char name[TOPOLOGY_NAME_MAX]; /* as in class/infiniband */
    int32_t node;                 /* TOPOLOGY_ANYWHERE = near to all memory */
    bool active;                  /* state of its first port */
    double bytes_per_s;           /* of its first port; 0 = not known */
};

struct topology {
    uint32_t n_nics;
    struct topology_nic nics[TOPOLOGY_NICS_MAX]; /* by name */
    /* Distances from the kernel; 0 = unknown. */
    uint8_t distance[TOPOLOGY_NODES_MAX][TOPOLOGY_NODES_MAX];
};

/*
 * Reads the cards and distances.
 *   root   of sysfs: "/sys"
 *   only   names of the cards to use, separated by commas; NULL or "" = all
 * Returns 0; -ENODEV: no such card; or -E2BIG: more than TOPOLOGY_NICS_MAX.
 */
[[nodiscard]] int topology_read(const char *root, const char *only,
                                struct topology *out);

/* Writes a row of the matrix: classes[i] is the class of nics[i] for memory on
 * `node`; 0 = nearest, as at least one card is. O(cards squared). */
void topology_classes(const struct topology *t, int32_t node,
                      uint32_t classes[TOPOLOGY_NICS_MAX]);

/* Returns the node of [memory, memory + bytes) if its first, middle and last
 * page are on the same node, else TOPOLOGY_ANYWHERE. */
int32_t topology_node_of(const void *memory, uint64_t bytes);

#endif
