/* See steer.h. */
#include "conductor/front/openai/body/steer.h"

/* A name that ends in '-' is a prefix. */
static const char *const steering[] = {
    /* vLLM, SGLang: a rank; llm-d: a rank's address */
    "x-data-parallel-",
    /* llm-d's sidecar: the hosts that compute the prompt, encode pictures, hold
       KV */
    "x-prefiller-", "x-encoder-hosts-", "x-kv-cache-source-",
    /* Envoy and gateways with an endpoint picker: the engine itself */
    "x-gateway-destination-",
    /* Dynamo's frontend: workers, ranks, and the prompt's tokens */
    "x-worker-instance-id", "x-prefill-instance-id", "x-dp-rank",
    "x-prefill-dp-rank", "x-dynamo-routing-", "x-dynamo-token-data",
    "x-epp-inject-",
    /* SGLang's gateways: a worker, by its number or URL */
    "x-smg-target-worker", "x-sgl-prefill-url", "x-sgl-decode-url",
    /* AIBrix: a pod, or two */
    "routing-strategy", "target-pod", "prefill-target-pod",
    "prefill-target-pod-ip", NULL};

static const char *const hops[] = {
    /* of one connection only (RFC 9110, 7.6.1) */
    "connection", "keep-alive", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade", "proxy-authenticate", "proxy-authorization",
    /* written by the front itself */
    "content-length", "date", NULL};

static const char *const kept_back[] = {
    /* the front or the engine's connection has its own */
    "host", "expect", "authorization",
    /* engines take them as a request's id: a client could name another
     * client's request with it */
    "x-request-id", "x-dynamo-request-id", NULL};

/* Headers of an answer that act beyond it: on the proxy in front of Conductor,
 * on caches there, or on a browser's use of the whole site. */
static const char *const commands[] = {
    /* nginx, Apache, lighttpd, h2o: another file or URL as the answer */
    "x-accel-", "x-sendfile", "x-sendfile2", "x-lighttpd-", "x-reproxy-",
    /* Envoy: health, retries and time limits of this server */
    "x-envoy-",
    /* caches */
    "surrogate-", "cdn-cache-control", "x-varnish-",
    /* browsers */
    "set-cookie", "set-cookie2", "alt-svc", "strict-transport-security",
    "public-key-pins", "public-key-pins-report-only", "expect-ct",
    "clear-site-data", "nel", "report-to", "reporting-endpoints", "refresh",
    "accept-ch", "critical-ch", "service-worker-allowed",
    "origin-agent-cluster", NULL};

static char fold(char c, char score)
{
    if (c == '_')
        return score;
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* Whether a list has the header, in any case, or the beginning of its name.
 * score: '_' is read as this. */
static bool has(const char *const *names, struct http_slice name, char score)
{
    char first = name.n ? fold(*name.at, score) : '\0';

    for (; *names; names++) {
        const char *known = *names;
        size_t i = 0;

        if (*known != first)
            continue;
        while (i < name.n && known[i] && fold(name.at[i], score) == known[i])
            i++;
        if (!known[i] && (i == name.n || known[i - 1] == '-'))
            return true;
    }
    return false;
}

bool steer_header(const char *name, size_t n)
{
    return has(steering, (struct http_slice){name, n}, '-');
}

bool steer_goes_on(struct http_slice name)
{
    return !has(hops, name, '_') && !has(kept_back, name, '_') &&
           !has(steering, name, '-');
}

bool steer_comes_back(struct http_slice name)
{
    return !has(hops, name, '_') && !has(commands, name, '_');
}
