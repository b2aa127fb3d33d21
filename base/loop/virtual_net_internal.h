/*
 * Shared by the files of the virtual net; private to them.
 *
 *   place    a machine at an address; it has at most one living process
 *   process  of a loop: its table of sockets
 *   sock     a listener, or one end of a connection
 *   conn     a connection: two ends and two pipes; freed when no end is left
 *   pipe     the bytes from ends[from] to the other end
 *
 * Bytes of a pipe, in the ring from `first`: `come` can be read, the others up
 * to `held` are in the packets of data, in order; `unacked` were read, and the
 * writer does not know it yet:
 *
 *   come <= held;  held + unacked <= buffer_bytes
 *   sum of packets' bytes == held - come
 */
#ifndef BASE_LOOP_VIRTUAL_NET_INTERNAL_H
#define BASE_LOOP_VIRTUAL_NET_INTERNAL_H

#include <sys/queue.h>

#include "base/loop/virtual_internal.h"
#include "base/loop/virtual_net.h"

struct conn;
struct sock;

TAILQ_HEAD(conns, conn);
TAILQ_HEAD(socks, sock);

struct path {
    struct virtual_link link;
    bool cut;
    int64_t free_us; /* when the last byte has left */
};

struct place {
    uint32_t address;
    uint32_t number;
    struct virtual_process *process; /* lives here; NULL = none does */
    bool off;                        /* the machine is */
    uint16_t last_port;              /* given to a socket */
};

struct virtual_net {
    struct virtual_time *time;
    struct loop *loop; /* for its timers; it is never paused */
    struct virtual_net_options options;
    uint32_t places_max, n_places;
    struct place *places; /* (places_max) */
    struct path *paths;   /* (places_max, places_max), from and to */
    struct conns conns;
};

struct virtual_process {
    struct virtual_net *net;
    struct virtual_loop *loop;
    struct place *place;
    struct sock **table; /* (n_table), by descriptor; NULL = free */
    uint32_t n_table;
};

struct end_point {
    uint32_t address;
    uint16_t port;
};

enum sock_state {
    SOCK_LISTENS,
    SOCK_CONNECTS,
    SOCK_OPEN,
    SOCK_BROKEN, /* `error` says why; its input can still be read */
    SOCK_DEAD    /* its process was killed */
};

struct sock {
    struct virtual_process *process;
    int fd; /* -1 = it waits to be accepted */
    enum sock_state state;
    int error; /* a positive errno */
    struct end_point own, other;
    struct loop_watch *watches; /* chained by own.words[1] */
    struct socks waiting;       /* a listener's */
    uint32_t n_waiting;
    TAILQ_ENTRY(sock) entry; /* in a listener's `waiting` */
    struct conn *conn;       /* NULL = none, or none any more */
    unsigned end;
    struct loop_timer retry; /* of connecting */
    unsigned tries;
    struct loop_timer patience; /* pending while the other end is away */
    int64_t patience_us;
    bool keeps_alive;
};

enum packet_kind {
    PACKET_CONNECT,
    PACKET_WELCOME,
    PACKET_DATA,
    PACKET_END,
    PACKET_RESET
};

struct packet {
    enum packet_kind kind;
    uint32_t bytes;
    int64_t due_us;
};

struct pipe {
    struct conn *conn;
    unsigned from;
    char *ring; /* (buffer_bytes); NULL while it is empty */
    uint32_t first, held, come, unacked;
    struct packet *packets; /* (packets_cap), from packets_at */
    uint32_t packets_at, n_packets, packets_cap;
    struct loop_timer arrival, ack;
    bool shut;     /* PACKET_END was sent */
    bool ended;    /* and has come */
    bool end_lost; /* or never will */
    bool reset;    /* PACKET_RESET was sent */
    bool lost;     /* nobody reads what is written now */
};

struct conn {
    TAILQ_ENTRY(conn) link;
    struct virtual_net *net;
    struct place *places[2];
    struct sock *socks[2]; /* NULL = closed, or not made yet */
    bool silent[2];        /* the machine of a closed end went off */
    struct pipe pipes[2];
};

/* --- virtual_socket.c --- */

/* Reports to the socket's watches what it is ready for. */
void sock_notify(struct sock *s);

/* Makes a socket without a descriptor. Returns it owned, or NULL: out of
 * memory. */
[[nodiscard]] struct sock *sock_new(struct virtual_process *process,
                                    enum sock_state state);

/* Takes a socket, and those that wait at it, out of their connections, as a
 * kernel does when its process closes it or ends. */
void sock_leave(struct sock *s);

/* Frees a socket whose connection it has left. */
void sock_free(struct sock *s);

/* Returns the living process's listener at a port, or NULL. loopback: for a
 * connection from the same process. */
struct sock *process_listener(const struct virtual_process *process,
                              uint16_t port, bool loopback);

/* --- virtual_conn.c --- */

/* Makes a connection that begins at the socket. Returns it, or NULL: out of
 * memory. */
[[nodiscard]] struct conn *conn_new(struct virtual_net *net, struct sock *s);

/* Asks the other side for a connection, and again until there is an answer. */
void conn_ask(struct sock *s);

/* Takes the socket out of its connection, as when it is closed. */
void conn_leave(struct sock *s);

/* Takes it out without a word to the other end. */
void conn_vanish(struct sock *s);

/* Starts the patience of a socket if it would notice that the other end is
 * away, or stops it; an end that is gone without a word answers by a reset. */
void conn_mind(struct sock *s);

/* Lets a connection go on, or stop, after one of its links has changed. */
void conn_relink(struct conn *conn);

/* Checks the invariants. Returns the bytes that it holds. */
uint64_t conn_check(const struct conn *conn);

/* --- virtual_pipe.c --- */

void pipe_init(struct pipe *p, struct conn *conn, unsigned from);
void pipe_fini(struct pipe *p);

/* Returns the bytes that the writer may add. */
uint32_t pipe_room(const struct pipe *p);

/* Takes n <= pipe_room() bytes of the parts, n > 0. Returns 0 or -ENOMEM. */
[[nodiscard]] int pipe_write(struct pipe *p, const struct iovec *parts,
                             uint32_t n);

/* Moves n <= come bytes to `to`, or copies them. */
void pipe_read(struct pipe *p, char *to, uint32_t n);
void pipe_peek(const struct pipe *p, char *to, uint32_t n);

/* Sends a packet without bytes. If out of memory, the connection breaks at both
 * ends. */
void pipe_send(struct pipe *p, enum packet_kind kind);

/* Ends the output, once. */
void pipe_shut(struct pipe *p);

/* Sends a reset, once. It may overtake bytes in flight, which are lost then. */
void pipe_send_reset(struct pipe *p);

/* Loses all that is in flight, except a reset. */
void pipe_lose(struct pipe *p);

/* Starts the timer of the next bytes, unless none wait or the link is cut. */
void pipe_poke(struct pipe *p);

/* The same for a mended link: bytes that were due meanwhile are sent again. */
void pipe_resume(struct pipe *p);

/* Takes the arrived packet, at the other end. */
void conn_take(struct conn *conn, unsigned end, const struct packet *packet);

/* The other end is told that the pipe's reader has room again. */
void conn_acked(struct conn *conn, unsigned end);

/* Breaks one end. */
void conn_fail(struct sock *s, int error);

/* virtual_net.c: returns the place at an address, or NULL. O(places). */
struct place *place_at(struct virtual_net *net, uint32_t address);

/* Returns whether it is an address of this machine on any machine. */
static inline bool address_is_own(uint32_t address)
{
    return address >> 24 == 127;
}

/* Returns the path from one place to another. */
static inline struct path *path_of(const struct virtual_net *net,
                                   const struct place *from,
                                   const struct place *to)
{
    return &net->paths[from->number * net->places_max + to->number];
}

#endif
