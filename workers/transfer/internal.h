/* What the files of the transfer share. Nobody else includes this. */
#ifndef WORKERS_TRANSFER_INTERNAL_H
#define WORKERS_TRANSFER_INTERNAL_H

#include "base/frame_conn.h"
#include "base/handshake.h"
#include "base/strangers.h"
#include "workers/transfer/engine/shm/shm.h"
#include "workers/transfer/engine/tcp/tcp.h"
#include "workers/transfer/errands.h"
#include "workers/transfer/guest.h"
#include "workers/transfer/layer_sums.h"
#include "workers/transfer/route.h"
#include "workers/transfer/transfer.h"

struct listener;

/* Most connections in each direction. */
#define TRANSFER_CONNS_MAX 256u
/* Output of one connection that is buffered before it must drain. */
#define TRANSFER_WATERMARK_BYTES (1u << 20)
/* KV that one KV_LAYER tells of, unless the rows of one token are more, */
#define TRANSFER_PIECE_BYTES (2u << 20)
/* and the blocks that it may lie in. */
#define TRANSFER_PIECE_BLOCKS 64u
/* KV_LAYERs of a request without KV_TAKEN. */
#define TRANSFER_PIECES_MAX 16u
/* How often one is read until its checksums fit. */
#define TRANSFER_TRIES 3u
/* The request id of TRANSPORTS about the memory of the side that accepted, and
 * of the one that connected. */
#define TRANSFER_ACCEPTED 0u
#define TRANSFER_CONNECTED 1u
/* FETCHes that one connection may have open. */
#define TRANSFER_SERVES_MAX 64u
/* FETCH_WANTs of one of them that wait for their answers. */
#define TRANSFER_WANTS_MAX 64u
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
    struct request_list pushes;
    struct guest *guest; /* which reads what is pushed; NULL: nothing was */
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
    bool chain;               /* it was said what the peer holds */
    int64_t since_us;         /* begin of the wait for the next answer */
    TAILQ_HEAD(, move) moves; /* pieces that are to come */
};

/* One FETCH that is being answered. */
struct serve {
    TAILQ_ENTRY(serve) link;
    uint64_t request_id;
    bool chain_sent;
    uint32_t n;
    uint32_t *ids;                                   /* (n), owned, pinned */
    struct msg_fetch_want wants[TRANSFER_WANTS_MAX]; /* a ring */
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
    struct route *route; /* to what it pushes; NULL: no TRANSPORTS came */
    TAILQ_HEAD(, receive_piece) pieces; /* of what it pushes */
    struct stage *stage;                /* of a pipeline; NULL: none */
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
    int card_regions[MSG_TRANSPORTS_MAX]; /* of each; negative: none */
    uint32_t n_transports;
    struct transport *tcp; /* of these; NULL: not used */
    struct errands *errands;
    struct layer_sums *sums;
    LIST_HEAD(, guest) guests;
    LIST_HEAD(, route) routes;
};

/* --- transports.c --- */

/* Make those that the configuration names. 0 or a negative errno. */
[[nodiscard]] int transports_open(struct transfer *t);

/* Free them; nobody is called back any more. */
void transports_close(struct transfer *t);

/* --- frames.c --- */

/* Send what is in t->buf to `conn` and empty it. */
void transfer_send(struct transfer *t, struct frame_conn *conn);

/* The worker's request of that id, or NULL. */
struct request *transfer_find(const struct transfer *t, uint64_t id);

/* --- rows.c --- */

/* Of one block. */
struct row_slice {
    uint32_t block;  /* counted from that of the first token */
    uint64_t offset; /* in it */
    uint64_t bytes;
    char *at;
};

/* The rows of some tokens in one layer, and the blocks that they lie in. */
struct rows {
    uint32_t layer;
    uint32_t from_token, n_tokens;
    uint32_t n_blocks;
    uint32_t ids[TRANSFER_PIECE_BLOCKS]; /* (n_blocks), pinned */
    /* Of each block that is whole one, of part of a block its K rows and then
     * its V rows: */
    uint32_t n_slices;
    struct row_slice slices[2 * TRANSFER_PIECE_BLOCKS];
    uint64_t sums[2 * TRANSFER_PIECE_BLOCKS]; /* (n_slices), for the caller */
};

/* How many blocks the tokens [from, from + n), n > 0, lie in. */
uint32_t rows_blocks(const struct engine_kv_layout *l, uint32_t from,
                     uint32_t n);

/* Fill *rows with those of the tokens [from, from + n) of `r` in `layer`, which
 * lie in 1 to TRANSFER_PIECE_BLOCKS blocks, and pin these. */
void rows_pin(const struct transfer *t, const struct request *r, uint32_t layer,
              uint32_t from, uint32_t n, struct rows *rows);

/* Unpin the blocks. */
void rows_unpin(const struct transfer *t, struct rows *rows);

/* Where a block begins in the region, which is the whole slab. */
uint64_t rows_offset(const struct transfer *t, const void *block);

/* --- move.c --- */

/* The open fetch of `id`, or NULL. */
struct fetch *fetch_of(const struct peer *p, uint64_t id);

/* Have `piece` come over the peer's route. 0 or -ENOMEM. */
[[nodiscard]] int move_add(struct fetch *f, struct loader_piece *piece);

/* Ask for pieces that were not asked for, if the peer's route stands. */
void move_pump(struct fetch *f);

/* End it: pieces that do not move go back at once with rc, others when they
 * stop, and f with the last of them. */
void move_end(struct fetch *f, int rc);

/* --- push_pieces.c --- */

/* Begin a piece of the next n tokens in the layer that r->push is at. False:
 * no memory. */
[[nodiscard]] bool push_piece_begin(struct transfer *t, struct request *r,
                                    uint32_t n);

/* Tell the peer of all pieces that are summed, in order. Ends the push if it
 * cannot. */
void push_pieces_tell(struct request *r);

/* The peer has read what it was granted under that id. False: there is no such
 * piece (any more). */
[[nodiscard]] bool push_piece_taken(struct request *r, uint64_t grant_id);

/* Pushes nothing more of `r`, without a callback. */
void push_drop(struct request *r);

/* End the push of `r`. Calls push_ended. */
void push_end(struct transfer *t, struct request *r, const char *why);

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

/* FETCH_GRANT: reads what was wanted. */
int move_on_grant(struct peer *p, uint64_t id, const uint8_t *payload,
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

/* FETCH_WANT: says where layers of a block lie, when their sums are made. */
int serve_on_want(struct inbound *in, uint64_t id, const uint8_t *payload,
                  size_t len);

/* KV_BEGIN: asks for blocks, when a transport stands, if it fits the announced
 * request, else answers KV_REFUSE. */
int receive_on_begin(struct inbound *in, uint64_t id, const uint8_t *payload,
                     size_t len);

/* KV_LAYER: reads the rows into the request's blocks. */
int receive_on_layer(struct inbound *in, uint64_t id, const uint8_t *payload,
                     size_t len);

/* KV_END: hands the request over to decode. */
int receive_on_end(struct inbound *in, uint64_t id, const uint8_t *payload,
                   size_t len);

/* TRANSPORTS: chooses one for what the peer pushes. */
int receive_on_transports(struct inbound *in, const uint8_t *payload,
                          size_t len);

/* Receives nothing more of `r`: what is being read into its blocks keeps them
 * pinned until it has stopped. */
void receive_drop(struct request *r);

/* The connection is gone: ends what it brings. `reason` NULL: there is nothing
 * that somebody waits for. */
void receive_shut(struct inbound *in, const char *reason);

/* KV_TAKEN: the piece may go. */
int push_on_taken(struct peer *p, uint64_t id, const uint8_t *payload,
                  size_t len, int64_t now_us);

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

/* The route of `peer` stands, or never will: its fetches go on, or fail. */
void fetch_ready(void *peer);

/* Send what is ready of the pushes on `p`. */
void push_pump(struct peer *p);

/* Answer the open FETCHes while the output takes it. */
void serve_pump(struct inbound *in);

/* End the connection if its peer holds blocks and is silent for too long. */
void serve_check_lease(struct inbound *in, int64_t now_us);

/* Drop the open FETCH of `id`, if there is one. */
void serve_drop(struct inbound *in, uint64_t id);

/* Drop all open FETCHes. */
void serve_drop_all(struct inbound *in);

#endif
