/* Which headers pass through, in both directions. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "conductor/front/internal.h"

/* Headers that say how two neighbours talk (RFC 9110, 7.6.1), and those that
 * the front writes itself. */
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

/* Whether a Connection header names this one, too. */
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

bool forward_passes(const struct http_head *head, struct http_slice name)
{
    return !is_hop(name) && !is_named_hop(head, name);
}

/* Headers that are the engine's business. */
static bool goes_on(const struct http_head *head, struct http_slice name)
{
    return forward_passes(head, name) && !http_is_fold(name, "host") &&
           !http_is_fold(name, "expect") &&
           !http_is_fold(name, "authorization");
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

char *forward_copy_head(const struct http_head *head, struct service_forward *f)
{
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

        if (!goes_on(head, h->name))
            continue;
        at = put_header(at, h);
        f->named = f->named || http_is_fold(h->name, "x-request-id");
    }
    *at++ = '\0';
    f->authorization = at;
    for (size_t i = 0; i < head->n_headers; i++)
        if (http_is_fold(head->headers[i].name, "authorization")) {
            at = put_header(at, &head->headers[i]);
            break;
        }
    *at = '\0';
    return all;
}
