/* The topology matrix, from a sysfs that the test makes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/unit/suite.h"
#include "workers/transfer/engine/rdma/topology.h"

static char root[] = "/tmp/conductor-topology-XXXXXX";

/* Writes a file below the root, with the folders that lead to it. */
static void put(const char *path, const char *text)
{
    char whole[256];
    FILE *file;

    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    for (char *at = whole + sizeof(root); (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    file = fopen(whole, "w");
    if (!file)
        abort();
    fputs(text, file);
    fclose(file);
}

static void put_nic(const char *name, const char *node, const char *state,
                    const char *rate)
{
    char path[128];

    snprintf(path, sizeof(path), "class/infiniband/%s/ports/1/state", name);
    put(path, state);
    snprintf(path, sizeof(path), "class/infiniband/%s/ports/1/rate", name);
    put(path, rate);
    snprintf(path, sizeof(path), "class/infiniband/%s/device/numa_node", name);
    if (node)
        put(path, node);
}

/* Four cards at two sockets of two nodes each, one of them down, and one that
 * is nowhere. */
static int make_root(void)
{
    if (!mkdtemp(root))
        return -1;
    put_nic("mlx5_10", "2\n", "4: ACTIVE\n", "400 Gb/sec (4X NDR)\n");
    put_nic("mlx5_2", "0\n", "4: ACTIVE\n", "100 Gb/sec (4X EDR)\n");
    put_nic("mlx5_0", "0\n", "1: DOWN\n", "2.5 Gb/sec (1X SDR)\n");
    put_nic("mlx5_1", "1\n", "4: ACTIVE\n", "x\n");
    put_nic("rxe0", NULL, "4: ACTIVE\n", "2.5 Gb/sec (1X SDR)\n");
    put("devices/system/node/node0/distance", "10 12 32 32\n");
    put("devices/system/node/node1/distance", "12 10 32 32\n");
    put("devices/system/node/node2/distance", "32 32 10 12\n");
    return 0;
}

static int drop_root(void)
{
    char command[64];

    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

static void test_read(void)
{
    struct topology t;

    CU_ASSERT_EQUAL_FATAL(topology_read(root, NULL, &t), 0);
    CU_ASSERT_EQUAL_FATAL(t.n_nics, 5);
    CU_ASSERT_STRING_EQUAL(t.nics[0].name, "mlx5_0");
    CU_ASSERT_STRING_EQUAL(t.nics[2].name, "mlx5_2");
    CU_ASSERT_STRING_EQUAL(t.nics[3].name, "mlx5_10"); /* not behind mlx5_1 */
    CU_ASSERT_EQUAL(t.nics[3].node, 2);
    CU_ASSERT_EQUAL(t.nics[4].node, TOPOLOGY_ANYWHERE);
    CU_ASSERT_FALSE(t.nics[0].active);
    CU_ASSERT_TRUE(t.nics[1].active);
    CU_ASSERT_DOUBLE_EQUAL(t.nics[1].bytes_per_s, 0, 0);
    CU_ASSERT_DOUBLE_EQUAL(t.nics[3].bytes_per_s, 50e9, 1);
    CU_ASSERT_DOUBLE_EQUAL(t.nics[4].bytes_per_s, 0.3125e9, 1);
}

static void test_only(void)
{
    struct topology t;

    CU_ASSERT_EQUAL_FATAL(topology_read(root, "rxe0,mlx5_1,ib9", &t), 0);
    CU_ASSERT_EQUAL_FATAL(t.n_nics, 2);
    CU_ASSERT_STRING_EQUAL(t.nics[0].name, "mlx5_1");
    CU_ASSERT_STRING_EQUAL(t.nics[1].name, "rxe0");
    CU_ASSERT_EQUAL(topology_read(root, "mlx5", &t), -ENODEV);
    CU_ASSERT_EQUAL(topology_read("/nowhere", "", &t), -ENODEV);
    CU_ASSERT_EQUAL(t.n_nics, 2);
}

static void expect(int32_t node, const uint32_t want[5])
{
    uint32_t classes[TOPOLOGY_NICS_MAX];
    struct topology t;

    CU_ASSERT_EQUAL_FATAL(topology_read(root, "", &t), 0);
    topology_classes(&t, node, classes);
    for (uint32_t i = 0; i < 5; i++)
        CU_ASSERT_EQUAL(classes[i], want[i]);
}

/* In the order mlx5_0, _1, _2, _10, rxe0: on nodes 0, 1, 0, 2 and anywhere. */
static void test_classes(void)
{
    expect(0, (uint32_t[]){0, 1, 0, 2, 0});
    expect(1, (uint32_t[]){1, 0, 1, 2, 0});
    expect(2, (uint32_t[]){1, 1, 1, 0, 0});
    expect(TOPOLOGY_ANYWHERE, (uint32_t[]){0, 0, 0, 0, 0});
    /* A node that the kernel says nothing of: all of the others are far. */
    expect(7, (uint32_t[]){1, 1, 1, 1, 0});
    expect(1000, (uint32_t[]){0, 0, 0, 0, 0});
}

/* No card at the memory's own node: the nearest are preferred. */
static void test_nearest(void)
{
    uint32_t classes[TOPOLOGY_NICS_MAX];
    struct topology t;

    CU_ASSERT_EQUAL_FATAL(topology_read(root, "mlx5_1,mlx5_10", &t), 0);
    topology_classes(&t, 0, classes);
    CU_ASSERT_EQUAL(classes[0], 0);
    CU_ASSERT_EQUAL(classes[1], 1);
}

static void test_too_many(void)
{
    struct topology t;

    for (int i = 0; i < 20; i++) {
        char name[16];

        snprintf(name, sizeof(name), "z%d", i);
        put_nic(name, NULL, "4: ACTIVE\n", "1\n");
    }
    CU_ASSERT_EQUAL(topology_read(root, NULL, &t), -E2BIG);
    CU_ASSERT_EQUAL(topology_read(root, "z1,z2,z3", &t), 0);
}

static void test_node_of(void)
{
    static char memory[3 * 4096];

    memset(memory, 1, sizeof(memory));
    CU_ASSERT(topology_node_of(memory, sizeof(memory)) >= TOPOLOGY_ANYWHERE);
    CU_ASSERT_EQUAL(topology_node_of(NULL, 1), TOPOLOGY_ANYWHERE);
}

static const struct suite_test tests[] = {
    {"read", test_read},         {"only some", test_only},
    {"classes", test_classes},   {"the nearest", test_nearest},
    {"too many", test_too_many}, {"the node of memory", test_node_of},
};

int main(void)
{
    int failed = make_root() || SUITE_RUN("rdma_topology", tests);

    return drop_root() || failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
