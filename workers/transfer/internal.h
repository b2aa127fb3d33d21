/* Shared by the files of the transfer; private to them. */
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
/* Buffered output at which a connection must drain before more is sent. */
#define TRANSFER_WATERMARK_BYTES (1u << 20)
/* Most KV bytes of one KV_LAYER, unless the rows of one token are more. */
#define TRANSFER_PIECE_BYTES (2u << 20)
/* Most blocks that the rows of one KV_LAYER may lie in. */
#define TRANSFER_PIECE_BLOCKS 64u
/* Most KV_LAYERs of one request that wait for KV_TAKEN. */
#define TRANSFER_PIECES_MAX 16u
/* How often a KV_LAYER's rows are read until their checksums match. */
#define TRANSFER_TRIES 3u
/* Request ids of TRANSPORTS: for the memory of the side that accepted the
 * connection, and of the side that connected. */
#define TRANSFER_ACCEPTED 0u
#define TRANSFER_CONNECTED 1u
/* Most open FETCHes on one connection. */
#define TRANSFER_SERVES_MAX 64u
/* Most unanswered FETCH_WANTs of one FETCH. */
#define TRANSFER_WANTS_MAX 64u
/* A peer with an open FETCH sends a frame at least this often. */
#define TRANSFER_KEEP_US 1000000
/* A peer that is silent for this long loses the blocks that it pins. */
#define TRANSFER_LEASE_US 5000000

/* An outbound connection. */
struct peer {
    TAILQ_ENTRY(peer) link;
    struct transfer *transfer;
    struct frame_conn *conn;
    char host[MSG_HOST_MAX];
    uint16_t port;
    struct handshake handshake;
    bool welcome;         /* WELCOME came: frames may be sent */
    int64_t progress_us;  /* time of the last block taken or KV sent */
    int64_t kept_us;      /* time of the last FETCH_KEEP */
    struct route *route;  /* to the peer; NULL = TRANSPORTS has not come */
    uint64_t moved_bytes; /* over `route`, at the last tick */
    TAILQ_HEAD(, fetch) fetches;
    struct request_list pushes;
    struct guest *guest; /* reads pushed KV; NULL = nothing was pushed */
};

/* A fetch: reads blocks from a peer for one request. */
struct fetch {
    TAILQ_ENTRY(fetch) link;
    struct transfer *transfer;
    struct peer *peer;      /* NULL = connection is gone; moves remain */
    bool closed;            /* no longer needed; waits for its moves */
    bool asked;             /* the peer has got its FETCH */
    struct load_run *run;   /* borrowed */
    uint64_t id;            /* of the request */
    const uint64_t *keys;   /* (n_keys), borrowed from the request */
    const uint32_t *tokens; /* of the prompt, borrowed from the request */
    const struct request *learner; /* its tokens are learned; NULL = none */
    uint32_t n_keys;
    bool chain;               /* FETCH_CHAIN has come */
    int64_t since_us;         /* begin of the wait for the next answer */
    TAILQ_HEAD(, move) moves; /* pieces still to come */
};

/* A peer's FETCH that is being answered. */
struct serve {
    TAILQ_ENTRY(serve) link;
    uint64_t request_id;
    bool chain_sent;
    uint32_t n;
    uint32_t *ids;                                   /* (n), owned, pinned */
    struct msg_fetch_want wants[TRANSFER_WANTS_MAX]; /* a ring */
    uint32_t first_want;
    uint32_t n_wants;
    bool granted; /* to the peer, under grant_id */
    uint64_t grant_id;
};

/* An accepted connection. */
struct inbound {
    TAILQ_ENTRY(inbound) link;
    struct transfer *transfer;
    struct frame_conn *conn;
    struct handshake handshake; /* with its HELLO */
    struct stranger stranger;   /* before WELCOME */
    bool welcome;     /* WELCOME was sent: its secret and its KV fit */
    int64_t heard_us; /* time of the last frame; before WELCOME, of accepting */
    struct guest *guest; /* reads our blocks; NULL = no common transport */
    TAILQ_HEAD(, serve) serves;
    uint32_t n_serves;
    struct request_list receives; /* requests it pushes */
    struct route *route; /* reads pushed KV; NULL = no TRANSPORTS came */
    TAILQ_HEAD(, receive_piece) pieces; /* of all its pushes */
    struct stage *stage;                /* of a pipeline; NULL = none */
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
    struct strangers strangers; /* inbounds without WELCOME */
    struct wire_buf buf;        /* scratch for one frame */
    struct transport *transports[MSG_TRANSPORTS_MAX]; /* best first */
    int card_regions[MSG_TRANSPORTS_MAX]; /* of transports; negative = none */
    uint32_t n_transports;
    struct transport *tcp; /* one of `transports` */
    struct errands *errands;
    struct layer_sums *sums;
    LIST_HEAD(, guest) guests;
    LIST_HEAD(, route) routes;
};

/* --- transports.c --- */

/* Makes the transports that the configuration names, and tcp. Returns 0, or a
 * negative errno. */
[[nodiscard]] int transports_open(struct transfer *t);

/* Frees the transports, without callbacks. */
void transports_close(struct transfer *t);

/* --- frames.c --- */

/* Sends the frame in t->buf to `conn`, and empties t->buf. */
void transfer_send(struct transfer *t, struct frame_conn *conn);

/* Returns the worker's request `id`, or NULL. */
struct request *transfer_find(const struct transfer *t, uint64_t id);

/* --- rows.c --- */

/* Contiguous rows in one block. */
struct row_slice {
    uint32_t block;  /* index into rows.ids */
    uint64_t offset; /* in the block, in bytes */
    uint64_t bytes;
    char *at; /* the rows in memory */
};

/* The KV rows of some tokens in one layer, and the blocks that contain them. */
struct rows {
    uint32_t layer;
    uint32_t from_token, n_tokens;
    uint32_t n_blocks;
    uint32_t ids[TRANSFER_PIECE_BLOCKS]; /* (n_blocks), pinned */
    /* One slice for a whole block; for part of a block one slice of K rows and
     * one of V rows. */
    uint32_t n_slices;
    struct row_slice slices[2 * TRANSFER_PIECE_BLOCKS];
    uint64_t sums[2 * TRANSFER_PIECE_BLOCKS]; /* (n_slices), for the caller */
};

/* Returns how many blocks contain the tokens [from, from + n), n > 0. */
uint32_t rows_blocks(const struct engine_kv_layout *l, uint32_t from,
                     uint32_t n);

/* Fills *rows with the rows of tokens [from, from + n) of `r` in `layer`, and
 * pins their blocks, 1 to TRANSFER_PIECE_BLOCKS of them. */
void rows_pin(const struct transfer *t, const struct request *r, uint32_t layer,
              uint32_t from, uint32_t n, struct rows *rows);

/* Unpins the blocks. */
void rows_unpin(const struct transfer *t, struct rows *rows);

/* Returns the offset in bytes of the block at `block` in region 0, the slab. */
uint64_t rows_offset(const struct transfer *t, const void *block);

/* --- move.c --- */

/* Returns the open fetch for request `id`, or NULL. */
struct fetch *fetch_of(const struct peer *p, uint64_t id);

/* Adds `piece` to the fetch; move_pump() asks for it. Returns 0, or -ENOMEM. */
[[nodiscard]] int move_add(struct fetch *f, struct loader_piece *piece);

/* Sends FETCH_WANT for all pieces without one, if the peer's route is
 * connected. */
void move_pump(struct fetch *f);

/* Ends `f`: hands back with rc now the pieces that do not move, others when
 * they stop. Frees `f` after the last one. */
void move_end(struct fetch *f, int rc);

/* --- push_pieces.c --- */

/* Begins a piece of the next n tokens in layer r->push.layer. Returns false if
 * out of memory. */
[[nodiscard]] bool push_piece_begin(struct transfer *t, struct request *r,
                                    uint32_t n);

/* Sends KV_LAYER for all pieces with checksums, in order. Ends the push if one
 * cannot be granted. */
void push_pieces_tell(struct request *r);

/* Ends the piece granted under grant_id: the peer has read it. Returns false if
 * there is no such piece. */
[[nodiscard]] bool push_piece_taken(struct request *r, uint64_t grant_id);

/* Ends the push of `r`, if there is one, without a callback. */
void push_drop(struct request *r);

/* Ends the push of `r` and calls push_ended with `why`. */
void push_end(struct transfer *t, struct request *r, const char *why);

/* --- peer.c --- */

/* Returns the connection to host:port, made if need be, or NULL: too many, or
 * out of memory. */
struct peer *transfer_peer(struct transfer *t, const char *host, uint16_t port);

/* Close and free an outbound connection without callbacks. Nobody may wait for
 * its jobs. */
void peer_free(struct transfer *t, struct peer *p);

/* --- outbound.c --- */

extern const struct frame_conn_ops outbound_ops;

/* Closes `p` if its jobs make no progress; else ends pushes that found no room
 * in time, and sends FETCH_KEEP. */
void outbound_tick(struct peer *p, int64_t now_us);

/* --- inbound.c --- */

/* Takes over the accepted socket `fd`. `arg` is the transfer. */
void inbound_accept(void *arg, int fd);

/* Closes the connection if it was not opened in time, or its lease ended. */
void inbound_tick(struct inbound *in, int64_t now_us);

/* Closes and frees it without callbacks. No job may be waiting for it. */
void inbound_free(struct transfer *t, struct inbound *in);

/* --- frames of the four jobs ---
 * Each takes a frame for request `id` with payload[len], borrowed, at now_us.
 * Returns 0, also if the request is gone here, or a negative errno that closes
 * the connection: -EBADMSG if the frame is malformed or does not fit. */

/* FETCH_CHAIN: compares its tokens, and reports how many blocks can be read. */
int fetch_on_chain(struct peer *p, uint64_t id, const uint8_t *payload,
                   size_t len, int64_t now_us);

/* FETCH_GRANT: reads the granted layers. */
int move_on_grant(struct peer *p, uint64_t id, const uint8_t *payload,
                  size_t len, int64_t now_us);

/* FETCH_END: ends the fetch. */
int fetch_on_end(struct peer *p, uint64_t id, const uint8_t *payload,
                 size_t len);

/* KV_GRANT: sends KV that is computed already. */
int push_on_grant(struct peer *p, uint64_t id, int64_t now_us);

/* KV_REFUSE: ends the push with the peer's reason. */
int push_on_refuse(struct peer *p, uint64_t id, const uint8_t *payload,
                   size_t len);

/* FETCH: opens it and answers with the tokens of the held blocks. */
int serve_on_fetch(struct inbound *in, uint64_t id, const uint8_t *payload,
                   size_t len);

/* FETCH_WANT: grants the block's layers once their checksums are made. */
int serve_on_want(struct inbound *in, uint64_t id, const uint8_t *payload,
                  size_t len);

/* KV_BEGIN: if it fits the announced request, asks for blocks once a transport
 * stands; else answers KV_REFUSE. */
int receive_on_begin(struct inbound *in, uint64_t id, const uint8_t *payload,
                     size_t len);

/* KV_LAYER: reads the rows into the request's blocks. */
int receive_on_layer(struct inbound *in, uint64_t id, const uint8_t *payload,
                     size_t len);

/* KV_END: hands the request over for decoding. */
int receive_on_end(struct inbound *in, uint64_t id, const uint8_t *payload,
                   size_t len);

/* TRANSPORTS: chooses a transport for reading what the peer pushes. */
int receive_on_transports(struct inbound *in, const uint8_t *payload,
                          size_t len);

/* Stops receiving `r`. Reads under way keep their blocks pinned until they
 * end. */
void receive_drop(struct request *r);

/* Ends all receipts on a connection that is gone. Calls receive_failed with
 * `reason`, unless that is NULL. */
void receive_shut(struct inbound *in, const char *reason);

/* KV_TAKEN: ends the piece, and sends the next ones. */
int push_on_taken(struct peer *p, uint64_t id, const uint8_t *payload,
                  size_t len, int64_t now_us);

/* Sends the FETCH of `f`. WELCOME must have come. */
void fetch_send(struct peer *p, struct fetch *f);

/* Sends the KV_BEGIN of `r`. WELCOME must have come. */
void push_send_begin(struct peer *p, struct request *r);

/* Sends FETCH_KEEP to a peer with open fetches if it is due. */
void fetch_keep(struct peer *p, int64_t now_us);

/* Ends `f`, open or closed, whose connection is gone. Logs `why`. */
void fetch_lose(struct fetch *f, const char *why);

/* Continues fetches of `peer` if its route is connected, or fails them. */
void fetch_ready(void *peer);

/* Sends all pieces of the pushes on `p` that are ready. */
void push_pump(struct peer *p);

/* Answers the open FETCHes until the output buffer is full. */
void serve_pump(struct inbound *in);

/* Closes the connection if its peer pins blocks and is silent for too long. */
void serve_check_lease(struct inbound *in, int64_t now_us);

/* Drops the open FETCH for request `id`, if there is one. */
void serve_drop(struct inbound *in, uint64_t id);

/* Drops all open FETCHes. */
void serve_drop_all(struct inbound *in);

#endif
