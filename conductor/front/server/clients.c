/* Counts what clients have: their connections, and bytes of these. */
#include <search.h>
#include <stdlib.h>

#include "conductor/front/server/internal.h"

#define SHARE 4u

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

/* Files it anew: its n_conns or idle connections have changed. */
static void clients_file(struct http_clients *all, struct http_client *c)
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
           mine + more <= SHARE * (all - taken);
}

void http_conn_join(struct http_conn *conn, struct http_client *client)
{
    struct http_server *server = conn->server;
    struct http_client *before = conn->client;

    if (before) {
        if (conn->idle)
            TAILQ_REMOVE(&before->idle, conn, idlers);
        before->n_conns--;
        before->body_bytes -= conn->counted;
        before->held_bytes -= conn->held;
        if (before != &server->reserve) {
            server->clients.n_conns--;
            clients_file(&server->clients, before);
            http_clients_drop(&server->clients, before);
        }
    }
    conn->client = client;
    if (!client)
        return;
    if (conn->idle)
        TAILQ_INSERT_TAIL(&client->idle, conn, idlers);
    client->n_conns++;
    client->body_bytes += conn->counted;
    client->held_bytes += conn->held;
    if (client != &server->reserve) {
        server->clients.n_conns++;
        clients_file(&server->clients, client);
    }
}

void http_conn_set_state(struct http_conn *conn, enum http_state state)
{
    bool idle = state == HTTP_HEAD || state == HTTP_LINGER;
    struct http_client *client = conn->client;

    conn->state = state;
    if (idle == conn->idle)
        return;
    conn->idle = idle;
    if (idle)
        TAILQ_INSERT_TAIL(&client->idle, conn, idlers);
    else
        TAILQ_REMOVE(&client->idle, conn, idlers);
    if (client != &conn->server->reserve)
        clients_file(&conn->server->clients, client);
}

void http_conn_count_body(struct http_conn *conn, size_t n)
{
    conn->server->stats.body_bytes += n - conn->counted;
    conn->client->body_bytes += n - conn->counted;
    conn->counted = n;
}

void http_conn_count_held(struct http_conn *conn)
{
    size_t held = stream_held(conn->stream);

    conn->client->held_bytes += held - conn->held;
    conn->held = held;
}
