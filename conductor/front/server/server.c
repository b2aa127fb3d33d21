/* Listens and accepts; decides which connection is closed to make room for a
 * new one. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "base/host_key.h"
#include "base/listener.h"
#include "base/loop/net.h"
#include "conductor/front/server/internal.h"

/* Unsent bytes of an answer in the kernel. More, for many clients that read
 * nothing, would be unbounded memory (2.5 MiB each on loopback). */
#define KERNEL_BYTES 32768

static void close_first(struct http_server *server, struct http_client *client)
{
    server->stats.evicted++;
    http_conn_free(TAILQ_FIRST(&client->idle));
}

/* A client with more connections, or the client itself, gives one up. */
static bool make_room(struct http_server *server, struct http_client *client)
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

/* Returns the client that a new connection counts for; NULL: there is no room.
 * The caller has set client->held. O(1). */
static struct http_client *admit(struct http_server *server,
                                 struct http_client *client)
{
    struct http_client *reserve = &server->reserve;

    if (make_room(server, client))
        return client;
    if (reserve->n_conns >= server->options.reserve) {
        if (TAILQ_EMPTY(&reserve->idle))
            return NULL;
        close_first(server, reserve);
    }
    return reserve;
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

static void on_accept(void *arg, int fd)
{
    struct http_server *server = arg;
    struct http_client *client =
        http_clients_get(&server->clients, host_key_of(server->loop, fd));
    struct http_client *whose;

    server->stats.accepted++;
    if (!client) {
        http_turn_away(server, fd);
        return;
    }
    client->held = true;
    whose = admit(server, client);
    if (whose) {
        net_set(server->loop, fd, IPPROTO_TCP, TCP_NODELAY, 1);
        net_set(server->loop, fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, KERNEL_BYTES);
        if (http_conn_open(server, whose, fd))
            server->stats.refused++;
    } else {
        http_turn_away(server, fd);
    }
    client->held = false;
    http_clients_drop(&server->clients, client);
}

int http_server_new(struct loop *loop, const struct http_options *options,
                    const struct http_handlers *handlers, void *arg,
                    struct http_server **out)
{
    struct http_server *server = calloc(1, sizeof(*server));
    char why[512]; /* unused: the caller has its own words */
    int rc;

    if (!server)
        return -ENOMEM;
    server->loop = loop;
    server->streams = stream_loop_new(loop);
    server->options = *options;
    server->options.host = NULL; /* borrowed; not needed any more */
    /* A body that can't ever fit is refused for good. */
    if (server->options.max_body_bytes > options->max_body_total_bytes)
        server->options.max_body_bytes = options->max_body_total_bytes;
    server->handlers = handlers;
    server->arg = arg;
    LIST_INIT(&server->conns);
    TAILQ_INIT(&server->opening);
    http_client_init(&server->reserve, 0);
    rc = options->socket
             ? listener_take(loop, options->socket, on_accept, server,
                             &server->listener)
             : listener_new(loop, options->host, options->port, on_accept,
                            server, &server->listener, why, sizeof(why));
    http_turns_init(server);
    if (rc == 0 && !server->streams)
        rc = -ENOMEM;
    if (rc) {
        http_server_free(server);
        return rc;
    }
    server->port = listener_port(server->listener);
    *out = server;
    return 0;
}

void http_server_tls(struct http_server *server, struct ssl_ctx_st *certificate)
{
    if (certificate)
        SSL_CTX_up_ref(certificate);
    SSL_CTX_free(server->certificate);
    server->certificate = certificate;
}

static void stop_listening(struct http_server *server)
{
    listener_free(server->listener);
    server->listener = NULL;
}

void http_server_hold(struct http_server *server, bool on)
{
    if (server->listener)
        listener_hold(server->listener, on);
}

/* Whether a part of a request has come, even if the loop has not read it
 * yet. */
static bool receives(const struct http_conn *conn)
{
    if (conn->state == HTTP_BODY)
        return true;
    if (conn->state != HTTP_HEAD || conn->opening)
        return false;
    return conn->receiving || stream_unused(conn->stream) > 0 ||
           net_peek(conn->server->loop, stream_fd(conn->stream)) > 0;
}

/* Closes a connection between two requests; a request that is arriving is
 * answered first. With fresh_us another process takes new connections, and a
 * request that has begun here is awaited. */
static void drain_one(struct http_conn *conn, int64_t fresh_us)
{
    bool fresh = conn->state == HTTP_HEAD && !conn->used;
    bool comes = receives(conn);

    conn->expected = fresh_us > 0 && (fresh || comes);
    if (conn->expected && conn->state == HTTP_HEAD && !conn->receiving)
        http_conn_arm(conn, fresh_us);
    if (conn->expected)
        return;
    if (comes) {
        http_conn_refuse_stopping(conn);
        conn->expected = true; /* its client reads the answer first */
    } else if (conn->state == HTTP_HEAD) {
        http_conn_linger(conn);
    }
}

void http_server_drain(struct http_server *server, int64_t fresh_us)
{
    struct http_conn *conn;

    stop_listening(server);
    server->draining = true;
    LIST_FOREACH(conn, &server->conns, link)
    {
        drain_one(conn, fresh_us);
    }
}

bool http_server_busy(const struct http_server *server)
{
    const struct http_conn *conn;

    LIST_FOREACH(conn, &server->conns, link)
    {
        if (conn->state == HTTP_HANDLING || conn->state == HTTP_SENDING ||
            conn->expected)
            return true;
    }
    return false;
}

void http_server_free(struct http_server *server)
{
    if (!server)
        return;
    stop_listening(server);
    while (!LIST_EMPTY(&server->conns))
        http_conn_free(LIST_FIRST(&server->conns));
    stream_loop_free(server->streams);
    http_turns_fini(server);
    http_server_tls(server, NULL);
    free(server);
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

const struct http_stats *http_server_stats(const struct http_server *server)
{
    return &server->stats;
}

size_t http_server_held(const struct http_server *server)
{
    return stream_loop_held(server->streams);
}
