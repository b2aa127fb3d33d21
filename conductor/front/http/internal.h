/* What the files of the HTTP server share. */
#ifndef CONDUCTOR_FRONT_HTTP_INTERNAL_H
#define CONDUCTOR_FRONT_HTTP_INTERNAL_H

#include <event2/event.h>
#include <sys/queue.h>
#include <time.h>

#include "base/stream/stream.h"
#include "conductor/front/http/clients.h"
#include "conductor/front/http/http.h"
#include "conductor/front/json/text_buf.h"

enum http_state {
    HTTP_HEAD,     /* reading a head, or waiting for one */
    HTTP_BODY,     /* reading a body */
    HTTP_HANDLING, /* the handler owes an answer */
    HTTP_SENDING,  /* the answer is whole, some of it unsent */
    HTTP_LINGER,   /* all sent and shut; discarding until the client closes */
    HTTP_DEAD      /* to be freed by the timer */
};

struct http_conn {
    LIST_ENTRY(http_conn) link;
    struct http_server *server;
    struct stream *stream;
    struct event *timer; /* of the state, see http_conn_arm */
    TAILQ_ENTRY(http_conn) opening_link;
    bool opening;                  /* TLS is not open */
    struct http_client *client;    /* whose it is */
    TAILQ_ENTRY(http_conn) idlers; /* of the client's */
    bool idle;                     /* it may be closed for another one */
    TAILQ_ENTRY(http_conn) put_off_link;
    bool put_off; /* nothing is read: see turn.c */
    enum http_state state;
    int64_t read_us; /* when bytes of the request were last read */
    bool receiving;  /* HTTP_HEAD: a request has begun to arrive */
    bool begins;     /* it has in this call of the loop */
    bool used;       /* one has come, at least */
    bool expected;  /* a draining server waits for it, though it owes nothing */
    bool close;     /* no further request on this connection */
    bool head_only; /* the method is HEAD: no body in the answer */
    bool has_head;  /* `head` is that of the request being answered */
    bool told;      /* and its handler has it */
    bool recorded;  /* see http_recorded */
    size_t discarded; /* bytes, since HTTP_LINGER began */
    bool chunked_out; /* the stream being sent is chunked */
    bool broken;      /* there was no memory for its head */
    char *head_bytes; /* (head_room) what `head` points into */
    size_t head_room;
    struct http_head head;
    struct http_chunked chunked;
    struct text_buf body;
    size_t counted; /* bytes of it, in stats.body_bytes and the client's */
    size_t held;    /* of its answers, in the client's held_bytes */
    bool operators; /* as http_operators */
    struct text_buf extra; /* headers of the answer to come */
    bool keep_body;        /* while the handler owes an answer */
    void (*gone)(void *arg);
    void *gone_arg;
    void (*taken)(void *arg); /* as http_on_taken; NULL: nobody waits */
    void *taken_arg;
};

struct http_server {
    struct event_base *base;
    struct stream_loop *streams;
    struct listener *listener;       /* NULL: draining */
    struct ssl_ctx_st *certificate;  /* of new connections; NULL: no TLS */
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
    struct event *next_turn; /* see turn.c */
    TAILQ_HEAD(, http_conn) put_off;
    struct http_client reserve; /* has those over max_connections */
    time_t date_s;              /* that `date` says; 0: nothing yet */
    char date[64];
};

/* Begin to serve a socket of the client, taking it. Returns 0 or -ENOMEM (fd is
 * closed). */
[[nodiscard]] int http_conn_open(struct http_server *server,
                                 struct http_client *client,
                                 evutil_socket_t fd);

/* What it is doing from now on. Between two requests, while a head comes, and
 * while it lingers, it is idle. */
void http_conn_set_state(struct http_conn *conn, enum http_state state);

/* Bytes of a request have come, in HTTP_HEAD: nothing is known of it yet. */
void http_conn_begin(struct http_conn *conn);

/* It is of that client from now on, with its body. */
void http_conn_join(struct http_conn *conn, struct http_client *client);

/* Reads the body's next bytes. Returns 1: it is whole; 0; -ENOBUFS: over
 * max_body_bytes; -EDQUOT: over max_body_total_bytes; -EBADMSG: no chunks;
 * -ENOMEM. */
[[nodiscard]] int http_body_read(struct http_conn *conn);

/* Its body has n bytes from now on. */
void http_conn_count_body(struct http_conn *conn, size_t n);

/* The memory of what is not taken of its answers may be another one. */
void http_conn_count_held(struct http_conn *conn);

/* room.c: Make room for one more connection of the client, closing an idle one
 * of the greediest if need be. Whether there is. O(1). */
bool http_room(struct http_server *server, struct http_client *client);

/* room.c: The same among those over max_connections. */
bool http_room_in_reserve(struct http_server *server);

/* Free a connection now; never from inside a handler or its callees. */
void http_conn_free(struct http_conn *conn);

/* Free a connection at the next turn of the loop. */
void http_conn_die(struct http_conn *conn);

/* (Re)start the state's timer; 0 stops it. */
void http_conn_arm(struct http_conn *conn, int64_t us);

/* Free the body, and give its bytes back to max_body_total_bytes. */
void http_conn_drop_body(struct http_conn *conn);

/* All is sent and the connection is to close: discard what still comes until
 * the client closes. */
void http_conn_linger(struct http_conn *conn);

/* The request itself is wrong: answer so, and close. */
void http_conn_refuse(struct http_conn *conn, int status, const char *code,
                      const char *message);

/* Its body is too large, for good. */
void http_conn_refuse_body(struct http_conn *conn);

/* All bodies together are too large: this one may come again later. */
void http_conn_refuse_for_now(struct http_conn *conn);

/* Its request would come whole too late. */
void http_conn_refuse_stopping(struct http_conn *conn);

/* A connection opens TLS; it has, or never will. */
void http_opening_begin(struct http_conn *conn);
void http_opening_end(struct http_conn *conn, bool open);

/* Too many connections: this one, of the reserve, is not for that. */
void http_conn_refuse_crowded(struct http_conn *conn);

/* Too many connections, of the reserve, too: says so in one packet, without an
 * object for it, and closes the socket. */
void http_turn_away(struct http_server *server, evutil_socket_t fd);

/* An answer is whole: nothing is owed any more. */
void http_conn_answered(struct http_conn *conn);

/* turn.c: n bytes of a body were read; n bytes of a head looked at, or thrown
 * away; a request is handled now, or refused. */
void http_turn_read(struct http_conn *conn, size_t n);
void http_turn_look(struct http_conn *conn, size_t n);
void http_turn_request(struct http_conn *conn);

/* turn.c: Whether its client has had its share of this turn of the loop. */
bool http_turn_is_over(struct http_conn *conn);

/* turn.c: Read nothing of it before the next turn; or it is gone. */
void http_turn_put_off(struct http_conn *conn);
void http_turn_forget(struct http_conn *conn);

/* turn.c: Returns 0, or -1: out of memory. */
[[nodiscard]] int http_turns_init(struct http_server *server);
void http_turns_fini(struct http_server *server);

#endif
