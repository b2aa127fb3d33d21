/*
 * What the files of the transport over TCP share. Nobody else includes this.
 *
 * Threads: the loop's thread calls the transport's functions; each I/O thread
 * moves the bytes of its streams. A stream belongs to its thread. What both
 * touch is guarded by set.lock (engine/ops.h, which has the ops), which is held
 * for bookkeeping only, never while bytes move.
 *
 * Invariants:
 *   memory of an op is touched by the stream of one of its parts in flight only
 *   memory of a grant is touched by streams only while they count in its `uses`
 *   a grant that is revoked gets no new use, and is put into tcp.revoked when
 *     its uses are 0
 *   a path counts its streams as users; an offer is freed when no stream is
 *     bound to it
 */
#ifndef WORKERS_TRANSFER_ENGINE_TCP_INTERNAL_H
#define WORKERS_TRANSFER_ENGINE_TCP_INTERNAL_H

#include "base/strangers.h"
#include "workers/transfer/engine/ops.h"
#include "workers/transfer/engine/sum.h"
#include "workers/transfer/engine/tcp/tcp.h"
#include "workers/transfer/engine/tcp/wire.h"

/* So much is read, and then hashed while it is in the processor's cache. */
#define TCP_CHUNK_BYTES (128u << 10)
/* A stream's requests without an answer, and their bytes. */
#define TCP_FLYING_MAX 16u
#define TCP_FLYING_BYTES (4u << 20)
/* Requests that a stream's holder keeps: more are not read. */
#define TCP_ANSWERS_MAX 32u
/* Grants that ended, of an offer: an op on one of them may be on its way. */
#define TCP_ENDED_MAX 4096u
/* An accepted connection says within so long whose it is. */
#define TCP_TOKEN_US 10000000
/* A peer that takes nothing of what it is sent for so long is gone. */
#define TCP_SEND_US 5000000

struct event;
struct event_base;
struct tcp;
struct tcp_stream;

/* --- asking ------------------------------------------------------------ */

/* What one request moves. */
struct tcp_part {
    TAILQ_ENTRY(tcp_part) link;
    struct op_part what; /* its op NULL: nobody waits for it; its bytes go
                            nowhere */
};

TAILQ_HEAD(tcp_parts, tcp_part);

struct tcp_dial;

struct tcp_path {
    struct op_path base;
    struct tcp *tcp;
    uint8_t token[TCP_TOKEN_BYTES];
    struct op_list waiting;                  /* its turns */
    struct tcp_dial *dials[TCP_STREAMS_MAX]; /* under way */
    bool stands;                             /* one stream has stood */
};

/* --- being asked --------------------------------------------------------- */

struct tcp_grant {
    LIST_ENTRY(tcp_grant) link; /* in offer.grants or tcp.revoked */
    struct tcp_offer *offer;
    uint64_t id;
    bool ended;
    uint32_t uses; /* streams that move its bytes, or will */
    uint32_t n;
    struct transport_range ranges[]; /* (n), in order */
};

LIST_HEAD(tcp_grants, tcp_grant);

struct tcp_offer {
    struct transport_offer base;
    TAILQ_ENTRY(tcp_offer) link; /* of all */
    struct tcp *tcp;
    const struct transport_offer_ops *ops;
    void *arg;
    uint8_t token[TCP_TOKEN_BYTES];
    struct tcp_grants grants;
    uint64_t ended[TCP_ENDED_MAX]; /* ids, a ring */
    uint32_t n_ended;
    uint32_t n_streams;
    const char *broken; /* why; NULL: it is not */
    bool told;
    bool withdrawn;
};

/* --- threads ---------------------------------------------------------------
 */

TAILQ_HEAD(tcp_streams, tcp_stream);

/* One I/O thread. */
struct tcp_io {
    struct tcp *tcp;
    struct event_base *base;
    struct bell *wake;
    pthread_t thread;
    bool started;
    struct tcp_streams streams; /* its own */
    struct tcp_streams fresh;   /* by the lock: on their way to it */
    bool leaving;               /* by the lock */
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
    /* By the lock of the set, as what offers hold: */
    struct strangers unbound; /* accepted streams without an offer */
    uint32_t n_leaving;       /* those told to go for others, still open */
    TAILQ_HEAD(, tcp_offer) offers;
    struct tcp_grants revoked;
};

/* --- stream.c: one socket, of the thread that has it --- */

/* What a stream does: ask or answer. */
struct tcp_role {
    /* Takes what comes in. 0: go on when there is more; 1: when something was
     * sent; negative errno. */
    int (*read)(struct tcp_stream *s);
    /* Sends what may be sent. 1: nothing waits; 0: the socket takes no more;
     * negative errno. */
    int (*send)(struct tcp_stream *s);
    /* Sees what the loop's thread wants. 0, or negative: the stream ends. */
    int (*look)(struct tcp_stream *s);
    /* The stream is over: lets go of everything. */
    void (*end)(struct tcp_stream *s, int rc);
};

struct tcp_stream {
    TAILQ_ENTRY(tcp_stream) link;
    struct tcp_io *io;
    const struct tcp_role *role;
    int fd;
    struct event *readable;
    struct event *writable;
    bool resting; /* it does not read until it has sent */
    /* Of one that asks: */
    struct tcp_path *path;
    struct tcp_parts flying; /* requests whose answers are awaited, in order;
                                the last may still be on its way out */
    uint32_t n_flying;
    uint64_t flying_bytes;
    struct sum_run *sum;
    /* Of one that answers: */
    struct tcp_offer *offer; /* NULL: it has not said whose it is */
    /* By the lock, without an offer: */
    struct stranger stranger; /* in tcp.unbound, unless it is */
    bool leaving;             /* told to go, and counted in n_leaving */
    struct tcp_answer {
        int status;
        struct tcp_grant *grant; /* with a use; NULL: no bytes */
        const uint8_t *data;
        uint64_t bytes;         /* to send behind the status */
    } answers[TCP_ANSWERS_MAX]; /* a ring */
    uint32_t first_answer, n_answers;
    bool answering; /* the first is on its way out */
    /* What is coming in: */
    uint8_t head[TCP_REQUEST_BYTES];
    uint32_t head_got;
    bool in_body;
    uint8_t *body; /* NULL: thrown away */
    uint64_t body_left;
    /* What is going out: */
    uint8_t out_head[TCP_REQUEST_BYTES];
    uint32_t out_head_at, out_head_n;
    const uint8_t *out;
    uint64_t out_left;
    struct tcp_part *out_part; /* what is asked for with it; NULL: nothing */
};

/* Have every thread look at its streams. On any thread. */
void tcp_io_wake(struct tcp *t);

/* Sends the head and the bytes that are going out. 1: all was sent; 0: the
 * socket takes no more; negative errno. */
int tcp_stream_send(struct tcp_stream *s);

/* Fills s->head up to n bytes. 1: it is full; 0: not yet; negative errno. */
int tcp_stream_head(struct tcp_stream *s, uint32_t n);

/* Receives more of the body. Returns how many bytes came; 0: none are there;
 * negative errno. */
int64_t tcp_stream_body(struct tcp_stream *s);

/* --- offer.c: grants, with the lock --- */

/* The offer of that token, with one stream more; NULL: none, or it has enough
 * of them. */
struct tcp_offer *tcp_offer_bind(struct tcp *t, const uint8_t *token);

/* The memory that `r` names, with a use of its grant in *grant. NULL with *rc:
 * -ECANCELED: the grant has ended; -EPERM: nothing ever covered that. */
uint8_t *tcp_offer_use(struct tcp_offer *o, const struct tcp_request *r,
                       struct tcp_grant **grant, int *rc);

/* A use is over. */
void tcp_grant_unuse(struct tcp_grant *g);

/* No new use of it. */
void tcp_grant_end(struct tcp_grant *g);

/* The grant of that id that has not ended, or NULL. */
struct tcp_grant *tcp_offer_grant(struct tcp_offer *o, uint64_t id);

/* --- ask.c, answer.c --- */

extern const struct tcp_role tcp_asks;    /* of a path */
extern const struct tcp_role tcp_answers; /* of an offer */

/* --- io.c --- */

/* Start the threads. 0 or -ENOMEM. */
[[nodiscard]] int tcp_io_start(struct tcp *t);

/* Stop them; all streams are closed. */
void tcp_io_stop(struct tcp *t);

/* Give a connected socket to a thread: of `path`, which has counted it, or
 * (NULL) of an offer that its first bytes name. Owns fd. 0, or -ENOMEM: fd is
 * closed. */
[[nodiscard]] int tcp_io_add(struct tcp *t, int fd, struct tcp_path *path);

/* --- dial.c --- */

/* Connect a stream of `p`, number i of its dials. 0 or negative errno. */
[[nodiscard]] int tcp_dial(struct tcp_path *p, const char *host, uint16_t port,
                           uint32_t i);

/* Give it up. NULL is a no-op. */
void tcp_dial_free(struct tcp_dial *d);

/* --- open.c: paths --- */

/* As transport_ops. */
struct transport_path *tcp_open(struct transport *t,
                                const struct transport_peer *peer,
                                const struct transport_path_ops *ops,
                                void *arg);

/* As op_set. */
void tcp_hang_up(struct op_path *p);
void tcp_path_free(struct op_path *p);

#endif
