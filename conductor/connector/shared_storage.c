/* vLLM's ExampleConnector (SharedStorageConnector before): the prefill engine
 * writes the KV of whole blocks to a place that both engines know, and the
 * decode engine looks there for every prompt. No parameters. */
#include "conductor/connector/pair.h"

static int prefill(const struct pair_ask *ask, struct text_buf *out)
{
    return pair_edit_prefill(ask, pair_prefill_drops, "", out);
}

const struct pair_protocol pair_shared_storage = {
    .kind = "vllm",
    .alone = true,
    .prefill = prefill,
};
