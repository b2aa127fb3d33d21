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
#ifndef CONDUCTOR_FRONT_SERVER_HTTP_H
#define CONDUCTOR_FRONT_SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/front/openai/error.h"
#include "conductor/http/parse.h"
#include "conductor/json/text_buf.h"

struct loop;
#define HTTP_PEER_BYTES 96

struct http_conn;
struct http_server;

struct http_options {
    const char *host; /* numeric address or name to listen on */
    uint16_t port;    /* 0 = any free one */
    int socket;       /* listening already; the server takes it; 0 = none */
    size_t max_connections;
    size_t reserve; /* further ones, for urgent requests; may be 0 */
    size_t max_head_bytes;
    size_t max_body_bytes;
    size_t max_body_total_bytes;   /* of all connections together; bounds
                                    * max_body_bytes, too */
    size_t max_output_bytes;       /* not read by the client, per connection */
    size_t max_output_total_bytes; /* memory for unread output, of all
                                      connections together */
    int64_t idle_us;               /* between requests */
    int64_t receive_us;            /* limit for one whole request to arrive */
    int64_t write_us;              /* limit without the client reading a byte */
};

/* Counts since the start. */
struct http_stats {
    uint64_t accepted;
    uint64_t refused;        /* over max_connections */
    uint64_t evicted;        /* idle ones, closed for others */
    uint64_t requests;       /* handed to the handler */
    uint64_t gone;           /* clients that left during their request */
    uint64_t slow;           /* answers cut off or refused for slow reading */
    uint64_t by_class[6];    /* answers by status / 100 */
    uint64_t bodies_refused; /* over max_body_total_bytes */
    uint64_t tls;            /* connections whose TLS opened */
    uint64_t tls_failed;     /* connections that ended before that */
    size_t connections;      /* open now */
    size_t body_bytes;       /* of bodies being received and handled */
    uint64_t put_off;        /* times a connection waited for the next turn */
};

/* Callbacks of a server. Heads and bodies are borrowed until the call
 * returns. */
struct http_handlers {
    /*
     * A head has come; its body was not read yet. Returns whether the request
     * goes on; false: it was answered at once, with http_reply or
     * http_reply_error. Then its body is dropped if all of it has come, else
     * the connection ends with that answer.
     */
    bool (*head)(void *arg, struct http_conn *conn,
                 const struct http_head *head);
    /*
     * The server itself refuses a request that `head` was not called for: adds
     * the headers that every answer has, and does nothing else with conn.
     * `known` has what could be read of the head, perhaps nothing.
     */
    void (*early)(void *arg, struct http_conn *conn,
                  const struct http_head *known);
    /*
     * The request is whole. The handler answers at once or later, with exactly
     * one of http_reply; http_stream and http_end; http_abort; unless the
     * client goes first, which http_on_gone reports.
     */
    void (*request)(void *arg, struct http_conn *conn,
                    const struct http_head *head, const char *body, size_t n);
    /* Returns whether a request is answered on a connection of the reserve. */
    bool (*urgent)(void *arg, const struct http_head *head);
    /* An error was written, perhaps the server's own, but not after
     * http_recorded(). head NULL = it could not be read. */
    void (*refused)(void *arg, struct http_conn *conn,
                    const struct http_head *head,
                    const struct openai_error *error);
};

/*
 * Listens and serves on `loop` (borrowed, outlives the server).
 *   options   copied
 *   handlers  called with `arg`; borrowed, outlive the server
 * Returns 0 with *out owned by the caller, or a negative errno, among them
 * -EADDRINUSE, -EADDRNOTAVAIL (host), -EACCES, -ENOMEM.
 */
[[nodiscard]] int http_server_new(struct loop *loop,
                                  const struct http_options *options,
                                  const struct http_handlers *handlers,
                                  void *arg, struct http_server **out);

/* Closes everything; calls the gone callbacks of unfinished requests. */
void http_server_free(struct http_server *server);

/* Sets the certificate for new connections; the server takes a reference; NULL
 * = no TLS. */
struct ssl_ctx_st;
void http_server_tls(struct http_server *server,
                     struct ssl_ctx_st *certificate);

/* On true, accepts no connections: new ones wait; on false, accepts them. */
void http_server_hold(struct http_server *server, bool on);

/*
 * Accepts no more connections, closes those between two requests, and the
 * others after their next answer, which says so. A request that is arriving is
 * answered 503 "shutting_down" at once. With fresh_us it still reaches the
 * handler; so does the first request of a connection that has had none, if it
 * comes within fresh_us. May be called again. O(connections).
 */
void http_server_drain(struct http_server *server, int64_t fresh_us);

/* Returns whether on any connection an answer is owed or not yet wholly taken
 * by the system, or, while the server drains, a request is still awaited.
 * O(connections). */
bool http_server_busy(const struct http_server *server);

/* Returns the port. */
uint16_t http_server_port(const struct http_server *server);

/* Returns its counts, borrowed while the server lives. */
const struct http_stats *http_server_stats(const struct http_server *server);

/* Returns the memory of unread output, which max_output_total_bytes bounds. */
size_t http_server_held(const struct http_server *server);

/* Returns whether the client is on this machine; writes its address and port as
 * text, "?" if it has gone. */
bool http_is_local(const struct http_conn *conn);
void http_peer(const struct http_conn *conn, char text[HTTP_PEER_BYTES]);

/* Counts the connection, and its bodies, for the client `key` from now on, in
 * place of its address. Called by a handler. Returns false: that client has too
 * many connections. */
[[nodiscard]] bool http_set_client(struct http_conn *conn, uint64_t key);

/* Returns when the last bytes of the request were read, as loop_now_us(); for
 * a request sent ahead of its turn, when its turn came. */
int64_t http_arrived_us(const struct http_conn *conn);

/* Sets gone(arg), called if the client leaves before the answer ends. Not
 * called from inside http_write, http_end or http_abort. */
void http_on_gone(struct http_conn *conn, void (*gone)(void *arg), void *arg);

/* Adds a header to the answer, before http_reply or http_stream. Control
 * characters in the value become '?'. Headers over 128 KiB in all are left
 * out. */
void http_add_header(struct http_conn *conn, const char *name,
                     const char *value);

/* Does the same for a header of an engine's answer; borrowed for the call. */
void http_pass_header(struct http_conn *conn, const struct http_header *header);

/* Sends a whole answer. `body` is borrowed. The connection is no longer the
 * caller's. A body of more than 4 KiB becomes a 503 if max_output_total_bytes
 * has no room for it. */
void http_reply(struct http_conn *conn, int status, const char *type,
                const void *body, size_t n);

/* Sends an OpenAI error body, as http_reply. */
void http_reply_error(struct http_conn *conn, const struct openai_error *error);

/* Does the same with an error as openai_error_set() sets it. */
void http_refuse(struct http_conn *conn, int status, const char *code,
                 const char *param, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Keeps a static pointer with the request, until the next one begins; returns
 * it, NULL = none. */
void http_note(struct http_conn *conn, const void *what);
const void *http_noted(const struct http_conn *conn);

/* Marks the answer as an operator's: its bytes count in max_output_total_bytes,
 * but are not bounded by it, as the caller waits for the client. Until the
 * answer is whole. */
void http_operators(struct http_conn *conn);

/* Does not call `refused` for this request, which is recorded elsewhere. */
void http_recorded(struct http_conn *conn);

/* Keeps the body after the handler has returned, until the answer is whole or
 * the client is gone. Called by the handler. */
void http_keep_body(struct http_conn *conn);

/* As http_keep_body(), with this body (taken, and emptied) in place of the one
 * that came, which is freed. Called by the handler. */
void http_replace_body(struct http_conn *conn, struct text_buf *body);

/* Begins an answer; its headers, Content-Type included, were added before.
 *   length  of the body that http_write will send; -1 = unknown */
void http_begin(struct http_conn *conn, int status, int64_t length);

/* Returns the bytes written that were not sent yet. */
size_t http_unsent(const struct http_conn *conn);

/* Returns whether the writer of a stream should wait until the client has read
 * what was written: it is much, or memory for unread output is short. */
bool http_is_full(const struct http_conn *conn);

/* Sets taken(arg), called whenever the client has taken all that was written,
 * until the answer is whole. */
void http_on_taken(struct http_conn *conn, void (*taken)(void *arg), void *arg);

/* Ends a stream before its end: sends what was written, then closes the
 * connection. The connection is no longer the caller's. */
void http_break(struct http_conn *conn);

/* Begins an answer of unknown length. */
void http_stream(struct http_conn *conn, int status, const char *type);

/*
 * Sends n bytes of a stream, borrowed. Returns 0, -ENOMEM, or -ENOBUFS when the
 * client's unread output is over max_output_bytes, or over its share of
 * max_output_total_bytes; then http_abort it.
 */
[[nodiscard]] int http_write(struct http_conn *conn, const void *bytes,
                             size_t n);

/* Ends a stream. The connection is no longer the caller's. */
void http_end(struct http_conn *conn);

/* Breaks the connection off. It is no longer the caller's. */
void http_abort(struct http_conn *conn);

#endif
