/* Connections in their TLS handshake: few, and not for long. When all places
 * are taken a new one takes that of the oldest. */
#include <openssl/ssl.h>

#include "conductor/front/server/internal.h"

#define OPENING_US 10000000
#define OPENING_MIN 16u

/* At most max_connections / OPENING_SHARE, or OPENING_MIN, are in their
 * handshake. */
#define OPENING_SHARE 4u

void http_server_tls(struct http_server *server, struct ssl_ctx_st *certificate)
{
    if (certificate)
        SSL_CTX_up_ref(certificate);
    SSL_CTX_free(server->certificate);
    server->certificate = certificate;
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
