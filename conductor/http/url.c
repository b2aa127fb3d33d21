/* URLs of engines. */
#include "conductor/http/url.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Reads the authority as HOST:PORT, by default with the scheme's port. */
static int read_authority(const char *text, size_t n, struct engine_url *url)
{
    char whole[ENGINE_URL_MAX + 8];
    const char *bracket = memchr(text, ']', n);
    const char *from = bracket ? bracket : text;
    bool has_port = memchr(from, ':', n - (size_t)(from - text));

    snprintf(whole, sizeof(whole), "%.*s%s", (int)n, text,
             has_port   ? ""
             : url->tls ? ":443"
                        : ":80");
    snprintf(url->authority, sizeof(url->authority), "%.*s", (int)n, text);
    return address_parse(whole, &url->at);
}

static void cut_slashes(char *prefix)
{
    for (size_t n = strlen(prefix); n > 0 && prefix[n - 1] == '/'; n--)
        prefix[n - 1] = '\0';
}

/* Cuts /v1, as OpenAI clients put it into the URL; here every path has it. */
static void cut_v1(char *prefix)
{
    size_t n = strlen(prefix);

    if (n >= 3 && strcmp(prefix + n - 3, "/v1") == 0)
        prefix[n - 3] = '\0';
}

const char *engine_url_endpoint(const char *text)
{
    static const char *const endpoints[] = {
        "/v1/chat/completions", "/chat/completions", "/v1/completions",
        "/v1/embeddings",       "/v1/models",        "/v1/responses",
    };
    size_t n = strlen(text);

    while (n > 0 && text[n - 1] == '/')
        n--;
    for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++) {
        size_t tail = strlen(endpoints[i]);

        if (n > tail && memcmp(text + n - tail, endpoints[i], tail) == 0)
            return text + n - tail;
    }
    return NULL;
}

const char *engine_url_parse(const char *text, struct engine_url *out)
{
    struct engine_url url = {.tls = strncasecmp(text, "https://", 8) == 0};
    const char *at = text + (url.tls ? 8 : 7);

    if (!url.tls && strncasecmp(text, "http://", 7) != 0)
        return "must begin with http:// or https://";
    if (strlen(text) >= ENGINE_URL_MAX)
        return "is too long";
    for (const char *c = text; *c; c++)
        if (*c <= ' ' || *c > '~')
            return "holds a blank or a byte that no URL has";
    if (strpbrk(at, "@?#\\"))
        return "must have no user name, query or fragment";
    size_t n = strcspn(at, "/");
    if (n == 0 || read_authority(at, n, &url))
        return "must name a host, and a port from 1 to 65535 if any";
    if (url.at.port == 0)
        return "must name a host, and a port from 1 to 65535 if any";
    snprintf(url.name, sizeof(url.name), "%s", url.at.host);
    snprintf(url.prefix, sizeof(url.prefix), "%s", at + n);
    cut_slashes(url.prefix);
    cut_v1(url.prefix);
    cut_slashes(url.prefix);
    *out = url;
    return NULL;
}

static const char *host_of(const struct engine_url *url)
{
    const char *host = url->at.host;

    return strcmp(host, "127.0.0.1") == 0 || strcmp(host, "::1") == 0
               ? "localhost"
               : host;
}

int engine_url_compare(const struct engine_url *a, const struct engine_url *b)
{
    int order = a->tls != b->tls ? a->tls - b->tls : a->at.port - b->at.port;

    if (!order)
        order = strcasecmp(host_of(a), host_of(b));
    return order ? order : strcmp(a->prefix, b->prefix);
}
