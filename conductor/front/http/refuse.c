/* What the server itself refuses: the connection ends, as nobody knows where
 * the request does. */
#include "conductor/front/http/internal.h"

void http_conn_refuse(struct http_conn *conn, int status, const char *code,
                      const char *message)
{
    struct openai_error error;

    conn->head_only = false;
    if (status == 501 || status == 505) /* else a client might try again */
        http_add_header(conn, "x-should-retry", "false");
    openai_error_set(&error, status, code, NULL, "%s", message);
    conn->close = true;
    http_conn_set_state(conn, HTTP_HANDLING);
    http_reply_error(conn, &error);
}

void http_conn_refuse_body(struct http_conn *conn)
{
    struct openai_error error;

    openai_error_set(&error, 413, "body_too_large", NULL,
                     "the body is larger than %zu bytes",
                     conn->server->options.max_body_bytes);
    conn->close = true;
    http_conn_set_state(conn, HTTP_HANDLING);
    http_reply_error(conn, &error);
}

void http_conn_refuse_for_now(struct http_conn *conn)
{
    conn->server->stats.bodies_refused++;
    http_add_header(conn, "Retry-After", "1");
    http_add_header(conn, "retry-after-ms", "1000");
    http_conn_refuse(
        conn, 503, "too_many_body_bytes",
        "the bodies of the requests being received take all the memory "
        "that is there for them");
}

void http_conn_refuse_crowded(struct http_conn *conn)
{
    conn->server->stats.refused++;
    http_add_header(conn, "Retry-After", "1");
    http_add_header(conn, "retry-after-ms", "1000");
    http_conn_refuse(conn, 503, "too_many_connections", "too many connections");
}
