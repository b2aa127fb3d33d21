/*
 * Shared by the files of the transport over TCP.
 *
 * Threads: the loop's thread calls the transport's functions; each I/O thread
 * moves the bytes of its streams. A stream belongs to its thread. set.lock
 * (engine/ops.h, which has the ops) guards all data that both touch, and is
 * never held while bytes move.
 *
 * Invariants:
 *   memory of an op is touched only by streams with parts of it in flight
 *   memory of a grant is touched only by streams that count in its `uses`
 *   a grant that is revoked gets no new use, and is put into tcp.revoked when
 *     its uses are 0
 *   a path counts its streams as users; an offer is freed when no stream is
 *     bound to it
 */
#ifndef WORKERS_TRANSFER_ENGINE_TCP_INTERNAL_H
#define WORKERS_TRANSFER_ENGINE_TCP_INTERNAL_H

#include "base/loop/loop.h"
#include "base/strangers.h"
#include "workers/transfer/engine/ops.h"
#include "workers/transfer/engine/sum.h"
#include "workers/transfer/engine/tcp/tcp.h"
#include "workers/transfer/engine/tcp/wire.h"

/* Bytes that are read and then hashed while they are in the CPU's cache. */
#define TCP_CHUNK_BYTES (128u << 10)
/* Most unanswered requests of a stream, and most bytes asked for by them. */
#define TCP_FLYING_MAX 16u
#define TCP_FLYING_BYTES (4u << 20)
/* Most unanswered requests that a stream has read. */
#define TCP_ANSWERS_MAX 32u
/* Ended grants that an offer remembers: requests under them may still come. */
#define TCP_ENDED_MAX 4096u
/* Time in which an accepted connection must send its token. */
#define TCP_TOKEN_US 10000000
/* A peer that receives no byte for this long counts as gone. */
#define TCP_SEND_US 5000000

struct tcp;
struct tcp_stream;

/* --- asking ------------------------------------------------------------ */

/* A part that was requested. */
struct tcp_part {
    TAILQ_ENTRY(tcp_part) link;
    struct op_part what; /* op NULL = cancelled; its bytes are dropped */
};

TAILQ_HEAD(tcp_parts, tcp_part);

struct tcp_dial;

struct tcp_path {
    struct op_path base;
    struct tcp *tcp;
    uint8_t token[TCP_TOKEN_BYTES];
    struct op_list waiting;                  /* turns of its ops */
    struct tcp_dial *dials[TCP_STREAMS_MAX]; /* being connected; NULL = none */
    bool stands;                             /* stands() was called */
};

/* --- being asked --------------------------------------------------------- */

struct tcp_grant {
    LIST_ENTRY(tcp_grant) link; /* in offer.grants or tcp.revoked */
    struct tcp_offer *offer;
    uint64_t id;
    bool ended;
    uint32_t uses; /* answers queued or being sent under it */
    uint32_t n;
    struct transport_range ranges[]; /* (n), sorted by region and offset */
};

LIST_HEAD(tcp_grants, tcp_grant);

struct tcp_offer {
    struct transport_offer base;
    TAILQ_ENTRY(tcp_offer) link; /* in tcp.offers */
    struct tcp *tcp;
    const struct transport_offer_ops *ops;
    void *arg;
    uint8_t token[TCP_TOKEN_BYTES];
    struct tcp_grants grants;
    uint64_t ended[TCP_ENDED_MAX]; /* ids, a ring */
    uint32_t n_ended;
    uint32_t n_streams;
    const char *broken; /* why; NULL = not broken */
    bool told;          /* broken() was called */
    bool withdrawn;
};

/* --- threads ---------------------------------------------------------------
 */

TAILQ_HEAD(tcp_streams, tcp_stream);

/* One I/O thread, or its work on the transport's loop in virtual time. */
struct tcp_io {
    struct tcp *tcp;
    struct loop *loop; /* its own if it is threaded */
    struct loop_bell wake;
    bool threaded;
    pthread_t thread;
    bool started;
    struct tcp_streams streams; /* used by this thread only */
    struct tcp_streams fresh;   /* with set.lock: not taken over yet */
    bool leaving;               /* with set.lock */
};

struct tcp_region {
    uint8_t *memory;
    uint64_t bytes;
};

struct tcp {
    struct transport base;
    struct op_set set;
    struct tcp_config config;
    struct msg_hello hello;
    struct tcp_io ios[TCP_STREAMS_MAX];
    uint32_t next_io;
    struct tcp_region regions[TRANSPORT_REGIONS_MAX];
    uint32_t n_regions;
    /* Guarded by set.lock, like members of offers: */
    struct strangers unbound; /* accepted streams without an offer */
    uint32_t n_leaving;       /* told to close to make room, but still open */
    TAILQ_HEAD(, tcp_offer) offers;
    struct tcp_grants revoked;
};

/* --- stream.c: one socket, used by its thread only --- */

/* The side of a stream: it asks or answers. */
struct tcp_role {
    /* Takes incoming bytes. Returns 0: call again when more come; 1: call again
     * after sending; or a negative errno. */
    int (*read)(struct tcp_stream *s);
    /* Sends ready output. Returns 1: all is sent; 0: the socket takes no more;
     * or a negative errno. */
    int (*send)(struct tcp_stream *s);
    /* Handles changes made by the loop's thread. Returns 0, or a negative errno
     * that ends the stream. */
    int (*look)(struct tcp_stream *s);
    /* Releases all resources of an ended stream. */
    void (*end)(struct tcp_stream *s, int rc);
};

struct tcp_stream {
    TAILQ_ENTRY(tcp_stream) link;
    struct tcp_io *io;
    const struct tcp_role *role;
    int fd;
    struct loop_watch readable;
    struct loop_watch writable;
    bool resting; /* does not read until it has sent */
    /* If it asks: */
    struct tcp_path *path;
    struct tcp_parts flying; /* unanswered requests, in order; the last may
                                still be on its way out */
    uint32_t n_flying;
    uint64_t flying_bytes;
    struct sum_run *sum;
    /* If it answers: */
    struct tcp_offer *offer; /* NULL = no token came yet */
    /* Members of a stream without an offer, guarded by set.lock: */
    struct stranger stranger; /* in tcp.unbound, unless `leaving` */
    bool leaving;             /* told to close, and counted in n_leaving */
    struct tcp_answer {
        int status;
        struct tcp_grant *grant; /* with a use; NULL = no bytes */
        const uint8_t *data;
        uint64_t bytes;         /* sent after the status */
    } answers[TCP_ANSWERS_MAX]; /* a ring */
    uint32_t first_answer, n_answers;
    bool answering; /* the first is being sent */
    /* Incoming: */
    uint8_t head[TCP_REQUEST_BYTES];
    uint32_t head_got;
    bool in_body;
    uint8_t *body; /* NULL = thrown away */
    uint64_t body_left;
    /* Outgoing: */
    uint8_t out_head[TCP_REQUEST_BYTES];
    uint32_t out_head_at, out_head_n;
    const uint8_t *out;
    uint64_t out_left;
    struct tcp_part *out_part; /* part whose request is going out, or NULL */
};

/* Lets every thread look at its streams. On any thread. */
void tcp_io_wake(struct tcp *t);

/* Sends the outgoing head and bytes. Returns 1: all is sent; 0: the socket
 * takes no more; or a negative errno. */
int tcp_stream_send(struct tcp_stream *s);

/* Receives s->head up to n bytes. Returns 1: it is complete; 0: not yet; or a
 * negative errno. */
int tcp_stream_head(struct tcp_stream *s, uint32_t n);

/* Receives more of the body. Returns the number of bytes, 0 if none came yet,
 * or a negative errno. */
int64_t tcp_stream_body(struct tcp_stream *s);

/* --- offer.c: grants, with the lock --- */

/* Returns the offer with this token, and counts one more stream of it. NULL: no
 * such offer, or it has TCP_STREAMS_MAX streams. */
struct tcp_offer *tcp_offer_bind(struct tcp *t, const uint8_t *token);

/* Returns the memory requested by `r`, and counts a use of its grant, *grant.
 * NULL and *rc: -ECANCELED: the grant has ended; -EPERM: not granted. */
uint8_t *tcp_offer_use(struct tcp_offer *o, const struct tcp_request *r,
                       struct tcp_grant **grant, int *rc);

/* Ends a use of the grant. */
void tcp_grant_unuse(struct tcp_grant *g);

/* Ends the grant: refuse new uses. */
void tcp_grant_end(struct tcp_grant *g);

/* Returns the grant `id` if it has not ended, or NULL. */
struct tcp_grant *tcp_offer_grant(struct tcp_offer *o, uint64_t id);

/* --- ask.c, answer.c --- */

extern const struct tcp_role tcp_asks;    /* of a path */
extern const struct tcp_role tcp_answers; /* of an offer */

/* --- io.c --- */

/* Starts the threads. Returns 0, or -ENOMEM. */
[[nodiscard]] int tcp_io_start(struct tcp *t);

/* Closes all streams and stops the threads. */
void tcp_io_stop(struct tcp *t);

/* Gives the connected socket `fd` to a thread, which owns it: as a stream of
 * `path`, which has counted it as a user; with NULL, of the offer whose token
 * arrives on it. Returns 0, or -ENOMEM, and fd is closed. */
[[nodiscard]] int tcp_io_add(struct tcp *t, int fd, struct tcp_path *path);

/* --- dial.c --- */

/* Connects a stream of `p`, as p->dials[i]. Returns 0, or a negative errno. */
[[nodiscard]] int tcp_dial(struct tcp_path *p, const char *host, uint16_t port,
                           uint32_t i);

/* Stops connecting. NULL is a no-op. */
void tcp_dial_free(struct tcp_dial *d);

/* --- open.c: paths --- */

/* The function of transport_ops. */
struct transport_path *tcp_open(struct transport *t,
                                const struct transport_peer *peer,
                                const struct transport_path_ops *ops,
                                void *arg);

/* The functions of op_set. */
void tcp_hang_up(struct op_path *p);
void tcp_path_free(struct op_path *p);

#endif
