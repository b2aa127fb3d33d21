/* Room for connections: which one is closed for a new one, and the reserve. */
#include "conductor/front/server/internal.h"

static void close_first(struct http_server *server, struct http_client *client)
{
    server->stats.evicted++;
    http_conn_free(TAILQ_FIRST(&client->idle));
}

/* A client with more connections, or the client itself, gives one up. The
 * caller has set client->held. */
bool http_room(struct http_server *server, struct http_client *client)
{
    const struct http_clients *all = &server->clients;
    size_t max = server->options.max_connections;
    struct http_client *from = client;

    if (http_share_allows(client->n_conns, 1, all->n_conns, max))
        return true;
    if (all->n_conns >= max) {
        struct http_client *most = http_clients_greediest(all);

        if (most && most->n_conns > client->n_conns)
            from = most;
    }
    if (TAILQ_EMPTY(&from->idle))
        return false;
    close_first(server, from);
    return true;
}

bool http_room_in_reserve(struct http_server *server)
{
    struct http_client *reserve = &server->reserve;

    if (reserve->n_conns < server->options.reserve)
        return true;
    if (TAILQ_EMPTY(&reserve->idle))
        return false;
    close_first(server, reserve);
    return true;
}

bool http_set_client(struct http_conn *conn, uint64_t key)
{
    struct http_server *server = conn->server;
    struct http_client *client;
    bool fits = true;

    if (conn->client == &server->reserve || conn->client->key == key)
        return true;
    client = http_clients_get(&server->clients, key);
    if (!client)
        return false;
    client->held = true;
    if (!http_share_allows(client->n_conns, 1, server->clients.n_conns - 1,
                           server->options.max_connections)) {
        fits = !TAILQ_EMPTY(&client->idle);
        if (fits)
            close_first(server, client);
    }
    client->held = false;
    if (fits)
        http_conn_join(conn, client);
    else
        http_clients_drop(&server->clients, client);
    return fits;
}
