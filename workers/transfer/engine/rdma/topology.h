/*
 * Which network cards are near which memory: the topology matrix. Cards and
 * NUMA nodes come from sysfs, given as the path of its root.
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
/* Memory on several nodes, or of a node that nobody knows. */
#define TOPOLOGY_ANYWHERE (-1)

struct topology_nic {
    char name[TOPOLOGY_NAME_MAX]; /* as in class/infiniband */
    int32_t node;                 /* TOPOLOGY_ANYWHERE: near to all memory */
    bool active;                  /* its first port is */
    double bytes_per_s;           /* of its first port; 0: not known */
};

struct topology {
    uint32_t n_nics;
    struct topology_nic nics[TOPOLOGY_NICS_MAX]; /* by name */
    /* The kernel's numbers; 0: not known. */
    uint8_t distance[TOPOLOGY_NODES_MAX][TOPOLOGY_NODES_MAX];
};

/*
 * Reads what is there.
 *   root   of sysfs: "/sys"
 *   only   names of cards with commas between, the others are left out; NULL or
 *          "": all
 * Returns 0; -ENODEV: there is no card; -E2BIG: more than TOPOLOGY_NICS_MAX of
 * those that are wanted.
 */
[[nodiscard]] int topology_read(const char *root, const char *only,
                                struct topology *out);

/* A line of the matrix: classes[i] of nics[i] for memory of that node, 0 for
 * the nearest. Some card has class 0. O(cards squared). */
void topology_classes(const struct topology *t, int32_t node,
                      uint32_t classes[TOPOLOGY_NICS_MAX]);

/* The node of [memory, memory + bytes), as the kernel says of its pages at the
 * begin, in the middle and at the end; TOPOLOGY_ANYWHERE. */
int32_t topology_node_of(const void *memory, uint64_t bytes);

#endif
