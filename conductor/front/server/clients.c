/* See clients.h. */
#include "conductor/front/server/clients.h"

#include <search.h>
#include <stdlib.h>

#include "conductor/front/server/internal.h"

void http_client_init(struct http_client *c, uint64_t key)
{
    *c = (struct http_client){.key = key};
    TAILQ_INIT(&c->idle);
}

static int compare(const void *a, const void *b)
{
    const struct http_client *x = a, *y = b;

    return (x->key > y->key) - (x->key < y->key);
}

struct http_client *http_clients_get(struct http_clients *all, uint64_t key)
{
    struct http_client like = {.key = key}, *c, **found;

    found = tfind(&like, &all->tree, compare);
    if (found)
        return *found;
    c = malloc(sizeof(*c));
    if (!c)
        return NULL;
    http_client_init(c, key);
    if (!tsearch(c, &all->tree, compare)) {
        free(c);
        return NULL;
    }
    return c;
}

void http_clients_drop(struct http_clients *all, struct http_client *c)
{
    if (c->n_conns || c->held)
        return;
    tdelete(c, &all->tree, compare);
    free(c);
}

static size_t file_of(size_t n)
{
    size_t file = 0;

    while ((n >>= 1) && file < HTTP_CLIENT_FILES - 1)
        file++;
    return file;
}

void http_clients_file(struct http_clients *all, struct http_client *c)
{
    if (c->filed)
        LIST_REMOVE(c, link);
    c->filed = !TAILQ_EMPTY(&c->idle);
    if (c->filed)
        LIST_INSERT_HEAD(&all->files[file_of(c->n_conns)], c, link);
}

struct http_client *http_clients_greediest(const struct http_clients *all)
{
    for (size_t i = HTTP_CLIENT_FILES; i-- > 0;)
        if (!LIST_EMPTY(&all->files[i]))
            return LIST_FIRST(&all->files[i]);
    return NULL;
}

bool http_share_allows(size_t mine, size_t more, size_t taken, size_t all)
{
    return taken < all && more <= all - taken &&
           mine + more <= HTTP_SHARE * (all - taken);
}
