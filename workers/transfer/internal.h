/* What the files of the transfer share. Nobody else includes this. */
#ifndef WORKERS_TRANSFER_INTERNAL_H
#define WORKERS_TRANSFER_INTERNAL_H

#include "base/frame_conn.h"
#include "base/handshake.h"
#include "base/strangers.h"
#include "workers/transfer/engine/shm/shm.h"
#include "workers/transfer/engine/tcp/tcp.h"
#include "workers/transfer/guest.h"
#include "workers/transfer/layer_sums.h"
#include "workers/transfer/route.h"
#include "workers/transfer/transfer.h"

struct listener;

/* Most connections in each direction. */
#define TRANSFER_CONNS_MAX 256u
/* Output of one connection that is buffered before it must drain. */
#define TRANSFER_WATERMARK_BYTES (1u << 20)
/* Data of one KV_LAYER frame. */
#define TRANSFER_PIECE_BYTES (1u << 20)
/* KV of at least so many bytes is sent from its block's memory; less is copied.
 */
#define TRANSFER_COPY_BYTES (16u << 10)
/* FETCHes that one connection may have open. */
#define TRANSFER_SERVES_MAX 64u
/* FETCH_READs of one of them that wait for their answers. */
#define TRANSFER_READS_MAX 64u
/* A peer with an open FETCH says something at least so often, */
#define TRANSFER_KEEP_US 1000000
/* and a peer that is silent for so long loses the blocks that it pins. */
#define TRANSFER_LEASE_US 5000000

/* An outbound connection. */
struct peer {
    TAILQ_ENTRY(peer) link;
    struct transfer *transfer;
    struct frame_conn *conn;
    char host[MSG_HOST_MAX];
    uint16_t port;
    struct handshake handshake;
    bool welcome;          /* WELCOME came: frames may be sent */
    uint64_t capabilities; /* of both sides */
    int64_t progress_us;   /* time of the last block taken or KV sent */
    int64_t kept_us;       /* time of the last FETCH_KEEP */
    struct route *route;   /* NULL: TRANSPORTS has not come */
    uint64_t moved_bytes;  /* over it, when last looked */
    TAILQ_HEAD(, fetch) fetches;
    struct fetch *body_of; /* whose piece the body under way is of; or NULL */
    struct request_list pushes;
};

/* Reading from a peer for one request. */
struct fetch {
    TAILQ_ENTRY(fetch) link;
    struct transfer *transfer;
    struct peer *peer;    /* NULL: gone, and this is only waiting for moves */
    bool closed;          /* nobody waits for it any more */
    bool asked;           /* the peer has a FETCH of it */
    struct load_run *run; /* borrowed, as are these of its request: */
    uint64_t id;
    const uint64_t *keys;          /* (n_keys) */
    const uint32_t *tokens;        /* of the prompt */
    const struct request *learner; /* whose tokens are to be learned; or NULL */
    uint32_t n_keys;
    bool chain;                      /* it was said what the peer holds */
    int64_t since_us;                /* begin of the wait for the next answer */
    struct loader_piece_list pieces; /* in the order of their answers */
    uint64_t got_bytes;              /* of the first of them */
    struct loader_piece *asking; /* it was not asked for to its end; or NULL */
    uint64_t asked_bytes;        /* of that one */
    uint32_t n_reads;            /* FETCH_READs without an answer */
    TAILQ_HEAD(, move) moves;    /* pieces that come over a transport */
    uint32_t n_wanted;           /* FETCH_WANTs without an answer */
};

/* One FETCH that is being answered. */
struct serve {
    TAILQ_ENTRY(serve) link;
    uint64_t request_id;
    bool chain_sent;
    uint32_t n;
    uint32_t *ids;                                   /* (n), owned, pinned */
    struct msg_fetch_read reads[TRANSFER_READS_MAX]; /* a ring */
    uint32_t first_read;
    uint32_t n_reads;
    struct msg_fetch_want wants[TRANSFER_READS_MAX]; /* a ring */
    uint32_t first_want;
    uint32_t n_wants;
    bool granted; /* under grant_id */
    uint64_t grant_id;
};

/* A connection that was accepted. */
struct inbound {
    TAILQ_ENTRY(inbound) link;
    struct transfer *transfer;
    struct frame_conn *conn;
    struct handshake handshake; /* with its HELLO */
    struct stranger stranger;   /* before WELCOME */
    bool welcome;               /* it has proven who it is, and fits */
    int64_t heard_us; /* time of the last frame; before WELCOME, of accepting */
    struct guest *guest; /* NULL: it knows no transports */
    TAILQ_HEAD(, serve) serves;
    uint32_t n_serves;
    struct request_list receives;
    struct stage *stage; /* of a pipeline; NULL: none */
};

struct transfer {
    struct transfer_config config;
    struct msg_hello hello;
    const struct transfer_ops *ops;
    void *arg;
    const struct frame_conn_ops *peer_ops; /* of outbound connections */
    struct listener *listener;
    struct frame_conn_limits limits;
    TAILQ_HEAD(peer_list, peer) peers;
    TAILQ_HEAD(, inbound) inbounds;
    uint32_t n_peers;
    uint32_t n_inbounds;
    struct strangers strangers; /* of them, without WELCOME yet */
    struct wire_buf buf;        /* scratch for one frame */
    struct transport *transports[MSG_TRANSPORTS_MAX]; /* the best first */
    uint32_t n_transports;
    struct transport *tcp; /* of these; NULL: not used */
    struct layer_sums *sums;
    LIST_HEAD(, guest) guests;
    LIST_HEAD(, route) routes;
    /* Another transport of a peer was chosen, or there is none. */
    void (*again)(struct peer *p);
};

/* --- transports.c --- */

/* Make those that the configuration names. 0 or a negative errno. */
[[nodiscard]] int transports_open(struct transfer *t);

/* Free them; nobody is called back any more. */
void transports_close(struct transfer *t);

/* --- frames.c --- */

/* Send what is in t->buf to `conn` and empty it. */
void transfer_send(struct transfer *t, struct frame_conn *conn);

/* Send `n` bytes of block `id`, on which the caller has a pin, as a part of a
 * frame. They must not change while somebody has a pin on the block. */
void transfer_send_kv(struct transfer *t, struct frame_conn *conn, uint32_t id,
                      const void *data, size_t n);

/* The worker's request of that id, or NULL. */
struct request *transfer_find(const struct transfer *t, uint64_t id);

/* --- move.c --- */

/* The open fetch of `id`, or NULL. */
struct fetch *fetch_of(const struct peer *p, uint64_t id);

/* Have `piece` come over the peer's route. 0 or -ENOMEM. */
[[nodiscard]] int move_add(struct fetch *f, struct loader_piece *piece);

/* Ask for pieces that were not asked for. */
void move_pump(struct fetch *f);

/* FETCH_GRANT: reads what was wanted, unless it has to be wanted once more. 0
 * or -EBADMSG. */
int move_on_grant(struct peer *p, uint64_t id, const uint8_t *payload,
                  size_t len, int64_t now_us);

/* The peer's route has changed: what it says of pieces that were wanted over
 * the last one is of no use, and they are wanted once more when it has said it.
 */
void move_again(struct fetch *f);

/* Take back a piece that the peer was not asked for; NULL: there is none. */
struct loader_piece *move_take(struct fetch *f);

/* End it: pieces that do not move go back at once with rc, others when they
 * stop, and f with the last of them. */
void move_end(struct fetch *f, int rc);

/* --- peer.c --- */

/* The connection to host:port, made if need be. NULL: too many, no memory. */
struct peer *transfer_peer(struct transfer *t, const char *host, uint16_t port);

/* Close and free an outbound connection, without callbacks; it must have no
 * jobs that somebody waits for. */
void peer_free(struct transfer *t, struct peer *p);

/* --- outbound.c --- */

extern const struct frame_conn_ops outbound_ops;

/* End the jobs on `p` that make no progress, and keep the others. */
void outbound_tick(struct peer *p, int64_t now_us);

/* --- inbound.c --- */

/* Take the accepted socket `fd`; arg is the transfer. */
void inbound_accept(void *arg, evutil_socket_t fd);

/* End the connection if its peer says too little. */
void inbound_tick(struct inbound *in, int64_t now_us);

/* Close and free it, without callbacks; it must have no jobs that somebody
 * waits for. */
void inbound_free(struct transfer *t, struct inbound *in);

/* --- frames of the four jobs ---
 * Each takes the frame about request `id` with its `payload` of `len` bytes,
 * borrowed, at now_us. Returns 0, also if the request is gone here, or -EBADMSG
 * if the frame is malformed or does not fit the request. */

/* FETCH_CHAIN: compares its tokens, and says how many blocks can be read. */
int fetch_on_chain(struct peer *p, uint64_t id, const uint8_t *payload,
                   size_t len, int64_t now_us);

/* The head of FETCH_DATA: where its bytes belong, or NULL. */
void *fetch_place(struct peer *p, const struct frame_header *h,
                  const uint8_t *head);

/* FETCH_DATA, whose bytes are in their place: verifies them. */
int fetch_on_data(struct peer *p, const struct frame_header *h,
                  const uint8_t *head, int64_t now_us);

/* FETCH_GRANT: reads what was wanted. */
int fetch_on_grant(struct peer *p, uint64_t id, const uint8_t *payload,
                   size_t len, int64_t now_us);

/* FETCH_END: ends the fetch. */
int fetch_on_end(struct peer *p, uint64_t id, const uint8_t *payload,
                 size_t len);

/* KV_GRANT: sends what is computed already. */
int push_on_grant(struct peer *p, uint64_t id, int64_t now_us);

/* KV_REFUSE: ends the push with the peer's reason. */
int push_on_refuse(struct peer *p, uint64_t id, const uint8_t *payload,
                   size_t len);

/* FETCH: opens it and says what is held. */
int serve_on_fetch(struct inbound *in, uint64_t id, const uint8_t *payload,
                   size_t len);

/* FETCH_READ: sends a part of a block. */
int serve_on_read(struct inbound *in, uint64_t id, const uint8_t *payload,
                  size_t len);

/* TRANSPORTS: grants blocks over the one that it names; -EPROTO if the peer was
 * told of none. */
int serve_on_transports(struct inbound *in, const uint8_t *payload, size_t len);

/* FETCH_WANT: says where layers of a block lie, when their sums are made. */
int serve_on_want(struct inbound *in, uint64_t id, const uint8_t *payload,
                  size_t len);

/* KV_BEGIN: asks for blocks if it fits the announced request, else answers
 * KV_REFUSE. */
int receive_on_begin(struct inbound *in, uint64_t id, const uint8_t *payload,
                     size_t len);

/* KV_LAYER: copies the rows into the request's blocks. */
int receive_on_layer(struct inbound *in, uint64_t id, const uint8_t *payload,
                     size_t len);

/* KV_END: hands the request over to decode. */
int receive_on_end(struct inbound *in, uint64_t id, const uint8_t *payload,
                   size_t len);

/* Send the FETCH of `f`; the peer has said WELCOME. */
void fetch_send(struct peer *p, struct fetch *f);

/* Send the KV_BEGIN of `r`; the peer has said WELCOME. */
void push_send_begin(struct peer *p, struct request *r);

/* Tell the peer that its open fetches are still wanted, when it is time. */
void fetch_keep(struct peer *p, int64_t now_us);

/* End `f`: what was asked for will not come. `why` is logged. */
void fetch_fail(struct fetch *f, const char *why);

/* The same, open or closed: its peer is gone. */
void fetch_lose(struct fetch *f, const char *why);

/* The route of `p` has changed: ask once more for what was to come over it. */
void fetch_again(struct peer *p);

/* End the push of `r`. Calls push_ended. */
void push_end(struct transfer *t, struct request *r, const char *why);

/* Send what is ready of the pushes on `p`. */
void push_pump(struct peer *p, int64_t now_us);

/* Answer the open FETCHes while the output takes it. */
void serve_pump(struct inbound *in);

/* End the connection if its peer holds blocks and is silent for too long. */
void serve_check_lease(struct inbound *in, int64_t now_us);

/* Drop the open FETCH of `id`, if there is one. */
void serve_drop(struct inbound *in, uint64_t id);

/* Drop all open FETCHes. */
void serve_drop_all(struct inbound *in);

#endif
