/* Shared by the files of the HTTP server. */
#ifndef CONDUCTOR_FRONT_SERVER_INTERNAL_H
#define CONDUCTOR_FRONT_SERVER_INTERNAL_H

#include <sys/queue.h>
#include <time.h>

#include "base/loop/loop.h"
#include "base/stream/stream.h"
#include "conductor/front/server/http.h"
#include "conductor/json/text_buf.h"

/*
 * A client's part of a server. A client is an address (of IPv6 a /64),
 * or what http_set_client() set. It may have at most four times as much
 * as is still free, so that one alone gets four fifths of all, two get four
 * ninths each, and a new client finds room. It is pure counting, no I/O.
 *
 *   sum of n_conns over the clients == clients.n_conns
 *   a client is kept as long as it has connections, or is held
 *   a client is filed under its n_conns  <=>  one of its connections is idle
 */
#define HTTP_CLIENT_FILES 32 /* file i: 2^i to 2^(i+1) - 1 connections */

struct http_client {
    LIST_ENTRY(http_client) link;
    uint64_t key;
    size_t n_conns;
    size_t body_bytes, held_bytes; /* of all its connections */
    int64_t turn;                  /* turn of the loop that `work` and n_resumed
                                      count: turn.c */
    size_t work;
    unsigned n_resumed;
    bool filed;
    bool held;                    /* do not free it without connections */
    TAILQ_HEAD(, http_conn) idle; /* may be closed; longest idle first */
};

struct http_clients {
    void *tree; /* by key, of tsearch() */
    size_t n_conns;
    LIST_HEAD(, http_client) files[HTTP_CLIENT_FILES];
};

enum http_state {
    HTTP_HEAD,     /* reading a head, or waiting for one */
    HTTP_BODY,     /* reading a body */
    HTTP_HANDLING, /* the handler owes an answer */
    HTTP_SENDING,  /* the answer is whole, some of it unsent */
    HTTP_LINGER,   /* all sent and shut; discards further input */
    HTTP_DEAD      /* to be freed by the timer */
};

struct http_conn {
    LIST_ENTRY(http_conn) link;
    struct http_server *server;
    struct stream *stream;
    struct loop_timer timer; /* of the state, see http_conn_arm */
    TAILQ_ENTRY(http_conn) opening_link;
    bool opening;                  /* TLS is not open */
    struct http_client *client;    /* client of the connection */
    TAILQ_ENTRY(http_conn) idlers; /* in the client's `idle` */
    bool idle;                     /* may be closed to make room */
    TAILQ_ENTRY(http_conn) put_off_link;
    bool put_off; /* not read before the next turn: see turn.c */
    enum http_state state;
    int64_t read_us; /* when bytes of the request were last read */
    bool receiving;  /* HTTP_HEAD: a request has begun to arrive */
    bool begins;     /* it began in this call of on_read() */
    bool used;       /* it has had a request */
    bool expected;  /* a draining server waits for it without owing an answer */
    bool close;     /* no further request on this connection */
    bool head_only; /* the method is HEAD: no body in the answer */
    bool has_head;  /* `head` is the answered request's */
    bool told;      /* and the handler was given it */
    bool recorded;  /* see http_recorded */
    const void *noted; /* see http_note */
    size_t discarded;  /* bytes, since HTTP_LINGER began */
    bool chunked_out;  /* the stream being sent is chunked */
    bool broken;       /* no memory for the answer's head */
    char *head_bytes;  /* (head_room) what `head` points into */
    size_t head_room;
    struct http_head head;
    struct http_chunked chunked;
    struct text_buf body;
    size_t counted; /* bytes of `body` counted in stats.body_bytes and the
                       client's */
    size_t held;    /* bytes of answers counted in the client's held_bytes */
    bool operators; /* as http_operators */
    struct text_buf extra; /* headers of the answer to come */
    bool keep_body;        /* while the handler owes an answer */
    void (*gone)(void *arg);
    void *gone_arg;
    void (*taken)(void *arg); /* see http_on_taken; NULL = none */
    void *taken_arg;
};

struct http_server {
    struct loop *loop;
    struct stream_loop *streams;
    struct listener *listener;       /* NULL = draining */
    struct ssl_ctx_st *certificate;  /* for new connections; NULL = no TLS */
    TAILQ_HEAD(, http_conn) opening; /* the oldest first */
    size_t n_opening;
    struct http_options options;
    struct http_stats stats;
    const struct http_handlers *handlers;
    void *arg;
    uint16_t port;
    bool draining; /* each connection ends with its next answer */
    LIST_HEAD(, http_conn) conns;
    struct http_clients clients;
    struct loop_timer next_turn; /* see turn.c */
    TAILQ_HEAD(, http_conn) put_off;
    struct http_client reserve; /* the connections over max_connections */
    time_t date_s;              /* time in `date`; 0 = none yet */
    char date[64];
};

/* Begins to serve a socket for the client, and takes it. Returns 0 or -ENOMEM
 * (fd is closed). */
[[nodiscard]] int http_conn_open(struct http_server *server,
                                 struct http_client *client, int fd);

/* http_client_init(c, key): makes a client without connections. */
void http_client_init(struct http_client *c, uint64_t key);

/* http_clients_get(all, key): returns the client, made if there is none. NULL:
 * out of memory. O(log clients). */
struct http_client *http_clients_get(struct http_clients *all, uint64_t key);

/* http_clients_drop(all, c): frees it if it has no connection and is not
 * held. */
void http_clients_drop(struct http_clients *all, struct http_client *c);

/* http_clients_greediest(all): returns the client with the most connections, to
 * a factor of two, among those with an idle one; NULL = none has. O(1). */
struct http_client *http_clients_greediest(const struct http_clients *all);

/* http_share_allows(mine, more, taken, all): returns whether a client that has
 * `mine`, of `taken` by all clients, may have `more`, where there is `all`. */
bool http_share_allows(size_t mine, size_t more, size_t taken, size_t all);

/* Sets the state. The connection is idle between two requests, while a head
 * comes, and while it lingers. */
void http_conn_set_state(struct http_conn *conn, enum http_state state);

/* First bytes of a request have come, in HTTP_HEAD: resets its state. */
void http_conn_begin(struct http_conn *conn);

/* Counts the connection, with its body, for another client from now on; NULL =
 * for none. */
void http_conn_join(struct http_conn *conn, struct http_client *client);

/* Reads the body's next bytes. Returns 1: it is whole; 0; -ENOBUFS: over
 * max_body_bytes; -EDQUOT: over max_body_total_bytes; -EBADMSG: no chunks;
 * -ENOMEM. */
[[nodiscard]] int http_body_read(struct http_conn *conn);

/* Counts n bytes for its body from now on. */
void http_conn_count_body(struct http_conn *conn, size_t n);

/* Updates the count of its unread output. */
void http_conn_count_held(struct http_conn *conn);

/* Frees a connection now; never from inside its own handler or its callees. */
void http_conn_free(struct http_conn *conn);

/* Frees a connection at the next turn of the loop. */
void http_conn_die(struct http_conn *conn);

/* (Re)starts the state's timer; 0 = stops it. */
void http_conn_arm(struct http_conn *conn, int64_t us);

/* Frees the body, and gives its bytes back to max_body_total_bytes. */
void http_conn_drop_body(struct http_conn *conn);

/* After the last answer was sent: discards input until the client closes. */
void http_conn_linger(struct http_conn *conn);

/* Answers with this error, and closes the connection after it. */
void http_conn_refuse(struct http_conn *conn, int status, const char *code,
                      const char *message);

/* Answers 413: the body alone is too large. */
void http_conn_refuse_body(struct http_conn *conn);

/* Answers 503, and that the client may come again in a second. */
void http_conn_refuse_for_now(struct http_conn *conn, const char *code,
                              const char *message);

/* Answers 503 "shutting_down" to a request that is still arriving. */
void http_conn_refuse_stopping(struct http_conn *conn);

/* TLS handshake began; it succeeded (open) or failed. */
void http_opening_begin(struct http_conn *conn);
void http_opening_end(struct http_conn *conn, bool open);

/* For when the reserve is also full: sends a 503 in one packet, without making
 * a connection, and closes the socket. */
void http_turn_away(struct http_server *server, int fd);

/* The answer is whole: drops the body and sends what is left. */
void http_conn_answered(struct http_conn *conn);

/* turn.c: count work for the client: n bytes of a body read; n bytes of a head
 * parsed, or discarded; a request handled, or refused. */
void http_turn_read(struct http_conn *conn, size_t n);
void http_turn_look(struct http_conn *conn, size_t n);
void http_turn_request(struct http_conn *conn);

/* turn.c: returns whether its client has had its share of this turn. */
bool http_turn_is_over(struct http_conn *conn);

/* turn.c: reads nothing from it before the next turn; takes it off that
 * list. */
void http_turn_put_off(struct http_conn *conn);
void http_turn_forget(struct http_conn *conn);

/* turn.c: returns 0, or -1: out of memory. */
void http_turns_init(struct http_server *server);
void http_turns_fini(struct http_server *server);

#endif
