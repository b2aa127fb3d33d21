/* See steer.h. */
#include "conductor/front/openai/forward/steer.h"

#include <string.h>

enum {
    HEADER = 1,  /* of a request; one that ends in '-' begins the name */
    MEMBER = 2,  /* at the top of a body, or in a CARRIES object */
    INNER = 4,   /* only in a CARRIES object */
    KEYED = 8,   /* a member at the top, where keys are required */
    CARRIES = 16 /* at the top: an object that may have such members */
};

static const struct steer {
    const char *name;
    unsigned where;
} all[] = {
    /* vLLM, SGLang: a rank; llm-d: a rank's address */
    {"x-data-parallel-", HEADER},
    /* llm-d's sidecar: who computes the prompt, encodes pictures, has KV */
    {"x-prefiller-", HEADER},
    {"x-encoder-hosts-", HEADER},
    {"x-kv-cache-source-", HEADER},
    /* Envoy and gateways with an endpoint picker: the engine itself */
    {"x-gateway-destination-", HEADER},
    /* Dynamo's frontend: workers, ranks, and the prompt's tokens */
    {"x-worker-instance-id", HEADER},
    {"x-prefill-instance-id", HEADER},
    {"x-dp-rank", HEADER},
    {"x-prefill-dp-rank", HEADER},
    {"x-dynamo-routing-", HEADER},
    {"x-dynamo-token-data", HEADER},
    {"x-epp-inject-", HEADER},
    /* SGLang's gateways: a worker, by its number or URL */
    {"x-smg-target-worker", HEADER},
    {"x-sgl-prefill-url", HEADER},
    {"x-sgl-decode-url", HEADER},
    /* AIBrix: a pod, or two */
    {"routing-strategy", HEADER},
    {"target-pod", HEADER},
    {"prefill-target-pod", HEADER},
    {"prefill-target-pod-ip", HEADER},

    /* vLLM's connectors: parameters of another prompt end its engine */
    {"kv_transfer_params", MEMBER},
    {"ec_transfer_params", MEMBER},
    /* SGLang: where the engines of a pair meet, and ranks */
    {"bootstrap_host", MEMBER},
    {"bootstrap_port", MEMBER},
    {"bootstrap_room", MEMBER},
    {"bootstrap_pair_key", MEMBER},
    {"decode_tp_size", MEMBER},
    {"data_parallel_rank", MEMBER},
    {"routed_dp_rank", MEMBER},
    {"disagg_prefill_dp_rank", MEMBER},
    /* Dynamo's nvext: as its headers */
    {"backend_instance_id", INNER},
    {"prefill_worker_id", INNER},
    {"decode_worker_id", INNER},
    {"dp_rank", INNER},
    {"prefill_dp_rank", INNER},
    {"token_data", INNER},
    /* vLLM, SGLang: id under which they keep the answer */
    {"request_id", KEYED},
    {"rid", KEYED},

    {"extra_args", CARRIES},
    {"extra_body", CARRIES},
    {"nvext", CARRIES},
    {"sampling_params", CARRIES},
    {"vllm_xargs", CARRIES},
};

static char folded(char c)
{
    if (c == '_')
        return '-';
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* Whether a header's name is, or begins with, a name of the table. */
static bool is_header(const char *known, const char *name, size_t n)
{
    size_t n_known = strlen(known);

    if (n < n_known || (n > n_known && known[n_known - 1] != '-'))
        return false;
    for (size_t i = 0; i < n_known; i++)
        if (folded(name[i]) != known[i])
            return false;
    return true;
}

bool steer_header(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].where == HEADER && is_header(all[i].name, name, n))
            return true;
    return false;
}

static const char *find(const char *name, unsigned where)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if ((all[i].where & where) && strcmp(all[i].name, name) == 0)
            return all[i].name;
    return NULL;
}

bool steer_member(const char *name, bool keyed)
{
    return find(name, MEMBER | (keyed ? KEYED : 0u));
}

bool steer_carries(const char *name)
{
    return find(name, CARRIES);
}

const char *steer_nested(const char *name)
{
    return find(name, MEMBER | INNER);
}
