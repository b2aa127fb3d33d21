/* Decides which headers pass through, in both directions. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "conductor/front/openai/body/steer.h"
#include "conductor/front/passthrough/state.h"

/* Headers of one connection only (RFC 9110, 7.6.1), and those that the front
 * writes itself. */
static bool is_hop(struct http_slice name)
{
#define NAME(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }
    static const struct http_slice names[] = {NAME("connection"),
                                              NAME("keep-alive"),
                                              NAME("proxy-connection"),
                                              NAME("te"),
                                              NAME("trailer"),
                                              NAME("transfer-encoding"),
                                              NAME("upgrade"),
                                              NAME("content-length"),
                                              NAME("date"),
                                              NAME("proxy-authenticate"),
                                              NAME("proxy-authorization")};
#undef NAME

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (http_is_alike(name, names[i]))
            return true;
    return false;
}

/* Headers of an answer that act beyond it: on the proxy in front of Conductor,
 * on caches there, or on a browser's use of the whole site. A name that ends in
 * '-' is a prefix. */
static bool is_command(struct http_slice name)
{
    static const char *const names[] = {
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
        "origin-agent-cluster"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t n = strlen(names[i]);
        bool open = names[i][n - 1] == '-';

        if ((open ? name.n >= n : name.n == n) &&
            strncasecmp(name.at, names[i], n) == 0)
            return true;
    }
    return false;
}

/* Whether a Connection header names this header. */
static bool is_named_hop(const struct http_head *head, struct http_slice name)
{
    for (size_t i = 0; i < head->n_headers; i++) {
        struct http_slice v = head->headers[i].value;

        if (!http_is_fold(head->headers[i].name, "connection"))
            continue;
        while (v.n) {
            const char *comma = memchr(v.at, ',', v.n);
            size_t n = comma ? (size_t)(comma - v.at) : v.n;
            struct http_slice item = {v.at, n};

            while (item.n && (*item.at == ' ' || *item.at == '\t')) {
                item.at++;
                item.n--;
            }
            while (item.n &&
                   (item.at[item.n - 1] == ' ' || item.at[item.n - 1] == '\t'))
                item.n--;
            if (item.n == name.n && strncasecmp(item.at, name.at, name.n) == 0)
                return true;
            n += comma ? 1 : 0;
            v = (struct http_slice){v.at + n, v.n - n};
        }
    }
    return false;
}

/* Whether a header is about more than this connection, and the front does not
 * write it itself. */
static bool passes(const struct http_head *head, struct http_slice name)
{
    return !is_hop(name) && !is_named_hop(head, name);
}

bool forward_tells(const struct http_head *head, struct http_slice name)
{
    return passes(head, name) && !is_command(name);
}

/* Headers that engines use as a request's id: a client could name another
 * client's request with it. */
static bool is_engines_id(struct http_slice name)
{
    return http_is_fold(name, "x-request-id") ||
           http_is_fold(name, "x-dynamo-request-id");
}

/* Whether a header of the request goes on to the engine. */
static bool goes_on(const struct http_head *head, struct http_slice name)
{
    return passes(head, name) && !http_is_fold(name, "host") &&
           !http_is_fold(name, "expect") &&
           !http_is_fold(name, "authorization") && !is_engines_id(name) &&
           !steer_header(name.at, name.n);
}

/* Returns the key that let the request in, which no engine gets, in whatever
 * header it stands; n 0 = no key is required. */
static struct http_slice own_key(const struct front_call *call)
{
    struct http_slice key = {"", 0};
    struct openai_error error;

    if (!call->terms.name || endpoint_key(call, &key, &error))
        return (struct http_slice){"", 0};
    return endpoint_key_of(key);
}

static bool has_key(const struct http_header *h, struct http_slice key)
{
    struct http_slice value = endpoint_key_of(h->value);

    return key.n > 0 && value.n == key.n &&
           memcmp(value.at, key.at, key.n) == 0;
}

static char *put(char *at, const void *bytes, size_t n)
{
    memcpy(at, bytes, n);
    return at + n;
}

static char *put_header(char *at, const struct http_header *h)
{
    at = put(at, h->name.at, h->name.n);
    at = put(at, ": ", 2);
    at = put(at, h->value.at, h->value.n);
    return put(at, "\r\n", 2);
}

char *forward_copy_head(const struct front_call *call,
                        struct service_forward *f)
{
    const struct http_head *head = call->head;
    struct http_slice key = own_key(call);
    size_t room = head->method.n + head->path.n + head->query.n + 8;

    for (size_t i = 0; i < head->n_headers; i++)
        room += head->headers[i].name.n + head->headers[i].value.n + 4;
    char *all = malloc(room), *at = all;
    if (!all)
        return NULL;
    f->method = at;
    at = put(at, head->method.at, head->method.n);
    *at++ = '\0';
    f->path = at;
    at = put(at, head->path.at, head->path.n);
    at = put(at, head->query.at, head->query.n);
    *at++ = '\0';
    f->headers = at;
    for (size_t i = 0; i < head->n_headers; i++) {
        const struct http_header *h = &head->headers[i];

        if (!goes_on(head, h->name) || has_key(h, key))
            continue;
        at = put_header(at, h);
    }
    *at++ = '\0';
    f->authorization = at;
    for (size_t i = 0; i < head->n_headers; i++)
        if (http_is_fold(head->headers[i].name, "authorization") &&
            !has_key(&head->headers[i], key)) {
            at = put_header(at, &head->headers[i]);
            break;
        }
    *at = '\0';
    return all;
}
