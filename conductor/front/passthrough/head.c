/* Decides which headers pass through, in both directions. */
#include <stdlib.h>
#include <string.h>

#include "conductor/front/openai/body/steer.h"
#include "conductor/front/passthrough/state.h"

/* Whether a Connection header names this header. */
static bool is_named_hop(const struct http_head *head, struct http_slice name)
{
    for (size_t i = 0; i < head->n_headers; i++) {
        struct http_slice list = head->headers[i].value, item;

        if (!http_is_fold(head->headers[i].name, "connection"))
            continue;
        while (http_next_item(&list, &item))
            if (http_is_alike(item, name))
                return true;
    }
    return false;
}

bool forward_tells(const struct http_head *head, struct http_slice name)
{
    return steer_comes_back(name) && !is_named_hop(head, name);
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

static char *put_header(char *at, const struct http_header *h)
{
    at = mempcpy(mempcpy(at, h->name.at, h->name.n), ": ", 2);
    return mempcpy(mempcpy(at, h->value.at, h->value.n), "\r\n", 2);
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
    at = mempcpy(at, head->method.at, head->method.n);
    *at++ = '\0';
    f->path = at;
    at = mempcpy(at, head->path.at, head->path.n);
    at = mempcpy(at, head->query.at, head->query.n);
    *at++ = '\0';
    f->headers = at;
    for (size_t i = 0; i < head->n_headers; i++) {
        const struct http_header *h = &head->headers[i];

        if (steer_goes_on(h->name) && !is_named_hop(head, h->name) &&
            !has_key(h, key))
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
