/*
 * An HTTP/1.1 server on a libevent loop: connections, bodies, replies and
 * streams, with a bound on everything a client can grow. It knows no routes.
 *
 * Why not evhttp (2.1.12): when a connection breaks while a request is being
 * worked on it may run the request's callback again on the same object; a
 * byte read at the wrong moment ends the process (event_errx); it has no
 * limit on connections; and its own error pages are HTML.
 *
 *   HEAD -> BODY -> HANDLING -> SENDING -> HEAD        keep-alive
 *                                       -> LINGER      said "close", drain
 *   HEAD -> LINGER                                     idle, drain
 *   any state -> DEAD, freed by the next turn of the loop
 *
 * A client that closes its sending side while its request is being worked on
 * counts as gone, because that looks the same as a crash.
 */
#ifndef CONDUCTOR_FRONT_HTTP_HTTP_H
#define CONDUCTOR_FRONT_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/front/json/text_buf.h"
#include "conductor/front/openai/error.h"
#include "conductor/http/parse.h"

struct event_base;
#define HTTP_PEER_BYTES 96

struct http_conn;
struct http_server;

struct http_options {
    const char *host; /* numeric address or name to listen on */
    uint16_t port;    /* 0: any free one */
    int socket;       /* listens already, and is taken; 0: none */
    size_t max_connections;
    size_t reserve; /* connections beyond, for what is urgent; may be 0 */
    size_t max_head_bytes;
    size_t max_body_bytes;
    size_t max_body_total_bytes; /* of all connections together; bounds
                                  * max_body_bytes, too */
    size_t max_output_bytes;     /* not yet taken by a client, per connection */
    size_t max_output_total_bytes; /* memory of what is not taken, of all
                                    * connections together */
    int64_t idle_us;               /* between requests */
    int64_t receive_us;            /* for one whole request to arrive */
    int64_t write_us;              /* without the client taking a byte */
};

/* Counts since the start. */
struct http_stats {
    uint64_t accepted;
    uint64_t refused;  /* over max_connections */
    uint64_t evicted;  /* idle ones, closed for others */
    uint64_t requests; /* handed to the handler */
    uint64_t gone;     /* clients that left while being worked for */
    uint64_t slow;     /* answers cut off or refused, as not enough is taken */
    uint64_t by_class[6];    /* answers by status / 100 */
    uint64_t bodies_refused; /* over max_body_total_bytes */
    uint64_t tls;            /* connections whose TLS opened */
    uint64_t tls_failed;     /* or never did */
    size_t connections;      /* open now */
    size_t body_bytes;       /* of bodies being received and handled */
    uint64_t put_off;        /* connections, to the next turn of the loop */
};

/* What a server asks of who knows the routes. Heads and bodies are borrowed
 * until the call returns. */
struct http_handlers {
    /*
     * A head has come, and nothing of its body was looked at. Returns whether
     * the request may go on; false: it was answered at once, with http_reply or
     * http_reply_error. Its body is dropped if it has come, and else the
     * connection ends with that answer.
     */
    bool (*head)(void *arg, struct http_conn *conn,
                 const struct http_head *head);
    /*
     * The server itself refuses a request of which `head` was told nothing:
     * adds the headers that any answer has, and does nothing else with conn.
     * `known` has what could be read of its head, perhaps nothing.
     */
    void (*early)(void *arg, struct http_conn *conn,
                  const struct http_head *known);
    /*
     * The request is whole. It answers at once or later, with exactly one of
     * http_reply; http_stream and http_end; http_abort; unless the client goes
     * first, which http_on_gone reports.
     */
    void (*request)(void *arg, struct http_conn *conn,
                    const struct http_head *head, const char *body, size_t n);
    /* Whether such a request is answered on a connection of the reserve. */
    bool (*urgent)(void *arg, const struct http_head *head);
    /* An error was written, the server's own too, but not after
     * http_recorded(). head NULL: it could not be read. */
    void (*refused)(void *arg, struct http_conn *conn,
                    const struct http_head *head,
                    const struct openai_error *error);
};

/*
 * Listen and serve on `base` (borrowed, outlives the server).
 *   options   copied
 *   handlers  called with `arg`; borrowed, outlive the server
 * Returns 0 with *out owned by the caller, or a negative errno, among them
 * -EADDRINUSE, -EADDRNOTAVAIL (host), -EACCES, -ENOMEM.
 */
[[nodiscard]] int http_server_new(struct event_base *base,
                                  const struct http_options *options,
                                  const struct http_handlers *handlers,
                                  void *arg, struct http_server **out);

/* Close everything; the gone callbacks of unfinished requests run. */
void http_server_free(struct http_server *server);

/* What new connections are shown from now on: a certificate, of which the
 * server is another owner; NULL: they speak no TLS. */
struct ssl_ctx_st;
void http_server_tls(struct http_server *server,
                     struct ssl_ctx_st *certificate);

/* Accept nobody until it is told again: who comes waits. */
void http_server_hold(struct http_server *server, bool on);

/*
 * Accept no more connections, close those that are between two requests, and
 * the others after their next answer, which says so. A request that is coming
 * is answered 503 "shutting_down" at once. With fresh_us it still
 * reaches the handler, and so does the first one of a connection on which none
 * has come yet, for so long. May be called again. O(connections).
 */
void http_server_drain(struct http_server *server, int64_t fresh_us);

/* Whether an answer is owed or not yet wholly taken by the system, on any
 * connection, or, while it drains, a request is still awaited. O(connections).
 */
bool http_server_busy(const struct http_server *server);

/* The port listened on. */
uint16_t http_server_port(const struct http_server *server);

/* Counts; borrowed, lives as long as the server. */
const struct http_stats *http_server_stats(const struct http_server *server);

/* The memory of what clients have not taken of their answers, which
 * max_output_total_bytes bounds. */
size_t http_server_held(const struct http_server *server);

/* Whether the client is on this machine; its address and port as text, "?"
 * where it is gone. */
bool http_is_local(const struct http_conn *conn);
void http_peer(const struct http_conn *conn, char text[HTTP_PEER_BYTES]);

/* Whose the connection is from now on, in place of its address; all of its
 * client's connections and bodies count together. Called by a handler. false:
 * the client has too many. */
[[nodiscard]] bool http_set_client(struct http_conn *conn, uint64_t key);

/* When the last bytes of its request were read; of a request that was sent
 * ahead of its turn, when this came. As clock_now_us(). */
int64_t http_arrived_us(const struct http_conn *conn);

/* Have `gone(arg)` called if the client leaves before the answer ends. Not
 * called from inside http_write, http_end or http_abort. */
void http_on_gone(struct http_conn *conn, void (*gone)(void *arg), void *arg);

/* Add a header to the answer, before http_reply or http_stream. Control
 * characters in the value become '?'. Bounded to 128 KiB in all; what doesn't
 * fit is left out. */
void http_add_header(struct http_conn *conn, const char *name,
                     const char *value);

/* Likewise, of an answer that somebody else gave; borrowed for the call. */
void http_pass_header(struct http_conn *conn, const struct http_header *header);

/* Answer as a whole. `body` is borrowed. The connection is no longer the
 * caller's. Where max_output_total_bytes are held, a body of more than 4 KiB
 * becomes a 503. */
void http_reply(struct http_conn *conn, int status, const char *type,
                const void *body, size_t n);

/* Answer with an OpenAI error body. As http_reply. */
void http_reply_error(struct http_conn *conn, const struct openai_error *error);

/* Few have such answers, and who writes them waits for the client: they count,
 * and are not refused for what all clients hold. Until the answer is whole. */
void http_operators(struct http_conn *conn);

/* Whatever becomes of the request is recorded elsewhere: the server tells
 * `refused` nothing of it. */
void http_recorded(struct http_conn *conn);

/* Keep the body after the handler has returned, until the answer is whole or
 * the client is gone. Called by the handler. */
void http_keep_body(struct http_conn *conn);

/* Keep this body (taken, and emptied) instead of the one that came, which is
 * freed, as http_keep_body() does. Called by the handler. */
void http_replace_body(struct http_conn *conn, struct text_buf *body);

/* Begin an answer whose headers were all added before, its Content-Type too.
 *   length  of its body, which is then exactly what http_write sends; -1: not
 *           known */
void http_begin(struct http_conn *conn, int status, int64_t length);

/* Bytes written that the client has not taken yet. */
size_t http_unsent(const struct http_conn *conn);

/* Whether who writes a stream should wait until the client has taken what was
 * written: it is much, or others have much, too. */
bool http_is_full(const struct http_conn *conn);

/* Have `taken(arg)` called whenever the client has taken all that was written,
 * until the answer is whole. */
void http_on_taken(struct http_conn *conn, void (*taken)(void *arg), void *arg);

/* End a stream badly: what was written is sent, and then the connection closes
 * where more should have come. The connection is no longer the caller's. */
void http_break(struct http_conn *conn);

/* Begin an answer of unknown length. */
void http_stream(struct http_conn *conn, int status, const char *type);

/*
 * Send n bytes of a stream, borrowed. Returns 0, -ENOMEM, or -ENOBUFS when the
 * client has not taken more than max_output_bytes, or its share of
 * max_output_total_bytes; then http_abort it.
 */
[[nodiscard]] int http_write(struct http_conn *conn, const void *bytes,
                             size_t n);

/* End a stream well. The connection is no longer the caller's. */
void http_end(struct http_conn *conn);

/* Break the connection off. It is no longer the caller's. */
void http_abort(struct http_conn *conn);

#endif
