/* Finds the network cards, and which memory each is near. */
#include "workers/transfer/engine/rdma/topology.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's distance of local memory, and our value for an unknown one. */
#define DISTANCE_LOCAL 10
#define DISTANCE_UNKNOWN 255

/* Returns the first line of a file without its newline; "" if it cannot be
 * read. */
static const char *read_line(const char *path, char *text, int n)
{
    FILE *file = fopen(path, "re");

    text[0] = '\0';
    if (file) {
        if (!fgets(text, n, file))
            text[0] = '\0';
        fclose(file);
    }
    text[strcspn(text, "\n")] = '\0';
    return text;
}

/* Returns whether the list `only` has `name`, or is empty. */
static bool is_wanted(const char *only, const char *name)
{
    size_t n = strlen(name);

    if (!only || !only[0])
        return true;
    for (const char *at = only; *at;) {
        size_t word = strcspn(at, ",");

        if (word == n && strncmp(at, name, n) == 0)
            return true;
        at += word + (at[word] == ',');
    }
    return false;
}

static void read_nic(const char *root, struct topology_nic *nic)
{
    char path[512], text[64];

    snprintf(path, sizeof(path), "%s/class/infiniband/%s/device/numa_node",
             root, nic->name);
    read_line(path, text, sizeof(text));
    long node = text[0] ? strtol(text, NULL, 10) : TOPOLOGY_ANYWHERE;
    nic->node = node >= 0 && node < (long)TOPOLOGY_NODES_MAX
                    ? (int32_t)node
                    : TOPOLOGY_ANYWHERE;
    snprintf(path, sizeof(path), "%s/class/infiniband/%s/ports/1/state", root,
             nic->name);
    nic->active = strncmp(read_line(path, text, sizeof(text)), "4:", 2) == 0;
    snprintf(path, sizeof(path), "%s/class/infiniband/%s/ports/1/rate", root,
             nic->name);
    nic->bytes_per_s =
        strtod(read_line(path, text, sizeof(text)), NULL) * 1e9 / 8;
    if (!(nic->bytes_per_s > 0 && nic->bytes_per_s < 1e15))
        nic->bytes_per_s = 0;
}

static void read_distances(const char *root, struct topology *t, uint32_t node)
{
    char path[512], text[512], *at = text;

    snprintf(path, sizeof(path), "%s/devices/system/node/node%u/distance", root,
             node);
    read_line(path, text, sizeof(text));
    for (uint32_t other = 0; other < TOPOLOGY_NODES_MAX; other++) {
        char *end;
        unsigned long distance = strtoul(at, &end, 10);

        if (end == at)
            return;
        t->distance[node][other] =
            distance < DISTANCE_UNKNOWN ? (uint8_t)distance : DISTANCE_UNKNOWN;
        at = end;
    }
}

static int by_name(const void *a, const void *b)
{
    const struct topology_nic *one = a, *other = b;

    return strverscmp(one->name, other->name);
}

/* Reads the names of the cards. */
static int read_names(DIR *dir, const char *only, struct topology *t)
{
    const struct dirent *entry;

    while ((entry = readdir(dir))) {
        size_t n = strlen(entry->d_name);

        if (entry->d_name[0] == '.' || n >= TOPOLOGY_NAME_MAX ||
            !is_wanted(only, entry->d_name))
            continue;
        if (t->n_nics == TOPOLOGY_NICS_MAX)
            return -E2BIG;
        memcpy(t->nics[t->n_nics++].name, entry->d_name, n + 1);
    }
    return t->n_nics > 0 ? 0 : -ENODEV;
}

int topology_read(const char *root, const char *only, struct topology *out)
{
    struct topology t = {0};
    char path[512];
    DIR *dir;
    int rc;

    snprintf(path, sizeof(path), "%s/class/infiniband", root);
    dir = opendir(path);
    if (!dir)
        return -ENODEV;
    rc = read_names(dir, only, &t);
    closedir(dir);
    if (rc < 0)
        return rc;
    qsort(t.nics, t.n_nics, sizeof(t.nics[0]), by_name);
    for (uint32_t i = 0; i < t.n_nics; i++)
        read_nic(root, &t.nics[i]);
    for (uint32_t node = 0; node < TOPOLOGY_NODES_MAX; node++)
        read_distances(root, &t, node);
    *out = t;
    return 0;
}

static int distance_to(const struct topology *t, int32_t node,
                       const struct topology_nic *nic)
{
    if (node < 0 || node >= (int32_t)TOPOLOGY_NODES_MAX || nic->node < 0 ||
        nic->node == node)
        return DISTANCE_LOCAL;
    int distance = t->distance[node][nic->node];
    return distance > 0 ? distance : DISTANCE_UNKNOWN;
}

void topology_classes(const struct topology *t, int32_t node,
                      uint32_t classes[TOPOLOGY_NICS_MAX])
{
    int taken = -1;

    /* One rank for each distance, from the smallest on. */
    for (uint32_t rank = 0; rank < t->n_nics; rank++) {
        int least = DISTANCE_UNKNOWN + 1;

        for (uint32_t i = 0; i < t->n_nics; i++) {
            int distance = distance_to(t, node, &t->nics[i]);

            if (distance > taken && distance < least)
                least = distance;
        }
        for (uint32_t i = 0; i < t->n_nics; i++)
            if (distance_to(t, node, &t->nics[i]) == least)
                classes[i] = rank;
        taken = least;
    }
}

int32_t topology_node_of(const void *memory, uint64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)memory;
    void *pages[3] = {
        (void *)(first & ~(page - 1)),
        (void *)((first + bytes / 2) & ~(page - 1)),
        (void *)((first + bytes - 1) & ~(page - 1)),
    };
    int nodes[3] = {-1, -1, -1};

    /* Called without target nodes: moves nothing and only returns the nodes. */
    if (syscall(SYS_move_pages, 0, 3ul, pages, NULL, nodes, 0) != 0)
        return TOPOLOGY_ANYWHERE;
    if (nodes[0] < 0 || nodes[0] != nodes[1] || nodes[0] != nodes[2])
        return TOPOLOGY_ANYWHERE;
    return nodes[0];
}
