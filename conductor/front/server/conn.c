/*
 * Events that may come to a connection at any time: its timer, the end of an
 * answer, its own end. read.c drives it.
 *
 *   state == HTTP_HANDLING  <=>  the handler owes an answer
 *   gone != NULL            =>   state == HTTP_HANDLING
 *   sum of body.len over the connections == server->stats.body_bytes
 *                                        <= options.max_body_total_bytes
 *   likewise for a client's connections and its body_bytes
 */
#include <stdlib.h>
#include <string.h>

#include "base/loop/loop.h"
#include "base/socket.h"
#include "conductor/front/server/internal.h"

#define LINGER_US 5000000
#define LAST_US 1000000 /* while the server drains */
/* TLS handshakes: few, and not for long, at most max_connections /
 * OPENING_SHARE, or OPENING_MIN; a new one takes the place of the oldest. */
#define OPENING_US 10000000
#define OPENING_MIN 16u
#define OPENING_SHARE 4u

void http_conn_arm(struct http_conn *conn, int64_t us)
{
    if (us > 0)
        loop_timer_start(&conn->timer, us);
    else
        loop_timer_stop(&conn->timer);
}

void http_conn_begin(struct http_conn *conn)
{
    conn->begins = conn->receiving = true;
    conn->has_head = conn->told = false;
    conn->recorded = conn->operators = false;
    conn->noted = NULL;
}

/* Tells the handler, once, that the client is gone. */
static void tell_gone(struct http_conn *conn)
{
    void (*gone)(void *arg) = conn->gone;

    conn->gone = conn->taken = NULL;
    if (conn->state != HTTP_HANDLING)
        return;
    conn->server->stats.gone++;
    if (gone)
        gone(conn->gone_arg);
}

void http_conn_drop_body(struct http_conn *conn)
{
    http_conn_count_body(conn, 0);
    text_buf_fini(&conn->body);
}

void http_opening_begin(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    size_t most = server->options.max_connections / OPENING_SHARE;

    TAILQ_INSERT_TAIL(&server->opening, conn, opening_link);
    conn->opening = true;
    server->n_opening++;
    http_conn_arm(conn, OPENING_US);
    if (server->n_opening > (most > OPENING_MIN ? most : OPENING_MIN))
        http_conn_free(TAILQ_FIRST(&server->opening));
}

void http_opening_end(struct http_conn *conn, bool open)
{
    struct http_server *server = conn->server;

    if (!conn->opening)
        return;
    TAILQ_REMOVE(&server->opening, conn, opening_link);
    conn->opening = false;
    server->n_opening--;
    if (open)
        server->stats.tls++;
    else
        server->stats.tls_failed++;
}

void http_conn_free(struct http_conn *conn)
{
    tell_gone(conn);
    http_opening_end(conn, false);
    LIST_REMOVE(conn, link);
    conn->server->stats.connections--;
    loop_timer_stop(&conn->timer);
    http_conn_drop_body(conn);
    http_turn_forget(conn);
    http_conn_join(conn, NULL);
    stream_free(conn->stream);
    text_buf_fini(&conn->extra);
    free(conn->head_bytes);
    free(conn);
}

void http_conn_die(struct http_conn *conn)
{
    http_conn_set_state(conn, HTTP_DEAD);
    conn->gone = conn->taken = NULL;
    stream_pause(conn->stream, true);
    loop_defer(&conn->timer);
}

void http_conn_answered(struct http_conn *conn)
{
    http_conn_set_state(conn, HTTP_SENDING);
    conn->expected = false;
    conn->gone = conn->taken = NULL;
    http_conn_drop_body(conn);
    stream_flush(conn->stream);
}

/* Closing at once would make the kernel answer further input with a reset,
 * which may destroy the answer before the client has read it. */
void http_conn_linger(struct http_conn *conn)
{
    http_conn_set_state(conn, HTTP_LINGER);
    conn->discarded = 0;
    stream_use(conn->stream, stream_unused(conn->stream));
    stream_shut(conn->stream);
    http_conn_arm(conn, conn->server->draining ? LAST_US : LINGER_US);
}

/* Writes the address of a connection's other side, as socket_peer(). */
static int peer_of(const struct http_conn *conn, char *host, size_t host_cap,
                   char *port, size_t port_cap)
{
    return socket_peer(conn->server->loop, stream_fd(conn->stream), host,
                       host_cap, port, port_cap);
}

void http_peer(const struct http_conn *conn, char text[HTTP_PEER_BYTES])
{
    char host[64] = "", port[16];

    /* Without an address it is "?". */
    (void)!peer_of(conn, host, sizeof(host), port, sizeof(port));
    snprintf(text, HTTP_PEER_BYTES, strchr(host, ':') ? "[%s]:%s" : "%s:%s",
             *host ? host : "?", port);
}

bool http_is_local(const struct http_conn *conn)
{
    char host[64], port[16];

    return peer_of(conn, host, sizeof(host), port, sizeof(port)) == 0 &&
           (strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0);
}
