/* Moving KV between workers over TCP: the listener, the pooled connections,
 * and four jobs on them:
 *
 *   fetch    read blocks of a prompt from a peer            fetch.c
 *   serve    answer such a peer                             serve.c
 *   push     stream a prefill's KV to its decode worker     push.c
 *   receive  take such a stream                             receive.c
 *
 * The side that connects fetches and pushes; the side that accepts serves and
 * receives. There is one outbound connection per peer, shared by all requests.
 * Output is bounded: what is not sent yet stays in pinned blocks.
 *
 * A bad frame closes its connection, with a logged reason, and nothing else;
 * a lost connection ends the jobs on it and nothing else.
 */
#ifndef WORKERS_TRANSFER_TRANSFER_H
#define WORKERS_TRANSFER_TRANSFER_H

#include "proto/message.h"
#include "workers/engine/engine.h"
#include "workers/load/loader.h"
#include "workers/service/request.h"

struct event_base;
struct evdns_base;
struct frame_conn;
struct secret;
struct stage; /* workers/pipeline/pipeline.h */
struct transfer;

struct transfer_config {
    struct event_base *base;               /* borrowed */
    struct evdns_base *dns;                /* borrowed */
    const struct secret *secret;           /* borrowed; NULL: none */
    struct kv_store *store;                /* borrowed */
    const struct engine_kv_layout *layout; /* borrowed */
    struct loader *loader;                 /* borrowed; for fetches */
    const char *listen_host;               /* address or name */
    uint16_t listen_port;                  /* 0: any */
    const struct msg_hello *hello;         /* what this worker is; copied */
    int64_t fetch_timeout_us;              /* without progress */
    int64_t push_timeout_us;               /* without progress, when computed */
    const char *transports; /* names with commas in between; tcp is there in
                               any case; for the call */
    uint32_t streams;       /* of tcp, to a peer */
    const struct shared_card *card; /* borrowed; NULL: the engine has none */
    int slab_fd;               /* a file that the store's slab is the memory of
                                  (shm_slab_new()); -1: none, no shm */
    const char *rdma_devices;  /* names with commas in between; "": all */
    uint32_t rdma_slice_bytes; /* 0: as the transport has it */
};

/* All run on the loop's thread. */
struct transfer_ops {
    /* All KV of `r` was handed to the connection (why = NULL), or the push
     * failed. The callee may free r. */
    void (*push_ended)(void *arg, struct request *r, const char *why);
    /* The complete layers of the tokens that the step under way adds to r's
     * position; 0 if r is in no step. */
    uint32_t (*layers_done)(void *arg, const struct request *r);
    /* The request of that id, or NULL. */
    struct request *(*find)(void *arg, uint64_t id);
    /* KV_BEGIN fits the announced request `r`, which is now REQUEST_KV_WAIT:
     * allocate its blocks, then call transfer_grant. */
    void (*receive_begin)(void *arg, struct request *r);
    /* All KV of `r` is here, and r->last_token. */
    void (*received)(void *arg, struct request *r);
    /* The sender of `r` is gone. The callee may free r. */
    void (*receive_failed)(void *arg, struct request *r, const char *why);
    /* A peer no longer holds blocks that it held: requests that wait for room
     * look again. Not called from inside the transfer's functions. */
    void (*released)(void *arg);
    /* A frame about a stage of a pipeline; workers/pipeline/pipeline.h. *stage
     * is NULL before the first one, and then belongs to the connection. NULL:
     * none is taken. */
    int (*stage_frame)(void *arg, struct frame_conn *conn, struct stage **stage,
                       const struct frame_header *h, const uint8_t *payload);
    /* A connection that has a stage takes output, or is over. */
    void (*stage_writable)(struct stage *stage);
    void (*stage_closed)(struct stage *stage);
};

/* Listen and be ready. `config` is borrowed for the call, what it points to
 * (marked) and `ops` and `arg` for the transfer's life. Returns 0 and *out,
 * owned; or a negative errno with a message in err[err_bytes]. */
[[nodiscard]] int transfer_new(const struct transfer_config *config,
                               const struct transfer_ops *ops, void *arg,
                               struct transfer **out, char *err,
                               size_t err_bytes);

/* Close everything without callbacks. NULL is a no-op. */
void transfer_free(struct transfer *t);

/* The port that it listens on. */
uint16_t transfer_port(const struct transfer *t);

/* End transfers that made no progress in time, and tell peers that open fetches
 * are still wanted; call it some times a second. */
void transfer_tick(struct transfer *t, int64_t now_us);

/* The block under `key` is held now: others may ask for it. */
void transfer_held(struct transfer *t, uint64_t key);

/* The peer at host:port as a source of the loader, which owns it. NULL: no
 * memory, or too many. */
[[nodiscard]] struct loader_source *
transfer_source(struct transfer *t, const char *host, uint16_t port);

/* Fills *m with how fast blocks came from peers of late, and over what. */
void transfer_paths(const struct transfer *t, struct msg_paths *m);

/* Offer the KV of `r`, whose prefill starts, to the decode worker at
 * r->push.host:port. 0: push_ended comes later; or a negative errno: it does
 * not. */
[[nodiscard]] int transfer_push(struct transfer *t, struct request *r,
                                int64_t now_us);

/* Send what is computed of the KV of pushes. Call it when a step made progress
 * or ended. */
void transfer_push_poke(struct transfer *t);

/* True if `r` has KV to push. */
bool transfer_pushes(const struct request *r);

/* The blocks of `r` (REQUEST_KV_WAIT) are allocated: let its KV come. */
[[nodiscard]] int transfer_grant(struct transfer *t, struct request *r);

/* Forget push and receipt of `r`, without a callback. Its fetches are the
 * loader's. */
void transfer_forget(struct request *r);

#endif
