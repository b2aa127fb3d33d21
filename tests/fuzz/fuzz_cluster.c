/* Any bytes are refused with a message of one line, or give a cluster that
 * passes its own check. */
#include <assert.h>
#include <string.h>

#include "sim/cluster/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[CLUSTER_ERROR_BYTES] = "";
    struct cluster c;
    int rc = cluster_load_buffer((const char *)data, size, "fuzz", &c, err);

    if (rc != 0) {
        assert(err[0] != '\0' && !strchr(err, '\n'));
        return 0;
    }
    assert(cluster_check(&c, err) == 0);
    assert(cluster_nodes(&c) >= 1 && cluster_nodes(&c) <= CLUSTER_NODES_MAX);
    for (size_t i = 0; i < COST_MODEL_PREFILL_TERMS; i++)
        assert(c.cost.prefill[i] >= 0.0);
    return 0;
}
