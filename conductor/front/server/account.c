/* Counts a connection, its state and its bytes for its client. */
#include "conductor/front/server/internal.h"

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
            http_clients_file(&server->clients, before);
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
        http_clients_file(&server->clients, client);
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
        http_clients_file(&conn->server->clients, client);
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
