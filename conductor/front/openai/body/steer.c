/* See steer.h. */
#include "conductor/front/openai/body/steer.h"

#include <string.h>

/* A name that ends in '-' begins those of headers. */
static const char *const headers[] = {
    /* vLLM, SGLang: a rank; llm-d: a rank's address */
    "x-data-parallel-",
    /* llm-d's sidecar: who computes the prompt, encodes pictures, has KV */
    "x-prefiller-",
    "x-encoder-hosts-",
    "x-kv-cache-source-",
    /* Envoy and gateways with an endpoint picker: the engine itself */
    "x-gateway-destination-",
    /* Dynamo's frontend: workers, ranks, and the prompt's tokens */
    "x-worker-instance-id",
    "x-prefill-instance-id",
    "x-dp-rank",
    "x-prefill-dp-rank",
    "x-dynamo-routing-",
    "x-dynamo-token-data",
    "x-epp-inject-",
    /* SGLang's gateways: a worker, by its number or URL */
    "x-smg-target-worker",
    "x-sgl-prefill-url",
    "x-sgl-decode-url",
    /* AIBrix: a pod, or two */
    "routing-strategy",
    "target-pod",
    "prefill-target-pod",
    "prefill-target-pod-ip",
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
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        if (is_header(headers[i], name, n))
            return true;
    return false;
}
