/* Moves KV between workers: the listener, one control connection for each peer
 * and direction, and four jobs on them:
 *
 *   fetch    read blocks of a prompt from a peer            fetch.c
 *   serve    answer a peer that fetches serve.c
 *   push     stream a prefill's KV to its decode worker     push.c
 *   receive  take a stream receive.c
 *
 * The side that connects fetches and pushes; the side that accepts serves and
 * receives. There is one outbound connection per peer, shared by all requests.
 * Output is bounded: unsent KV stays in pinned blocks.
 *
 * A bad frame closes its connection, with a logged reason, and nothing else;
 * a lost connection ends the jobs on it and nothing else. */
#ifndef WORKERS_TRANSFER_TRANSFER_H
#define WORKERS_TRANSFER_TRANSFER_H

#include "proto/message.h"
#include "workers/engine/engine.h"
#include "workers/load/loader.h"
#include "workers/service/request.h"

struct frame_conn;
struct loop;
struct dns;
struct stream_loop;
struct secret;
struct stage; /* workers/pipeline/pipeline.h */
struct transfer;

struct transfer_config {
    struct loop *loop;                     /* borrowed */
    struct stream_loop *stream_loop;       /* of its connections; borrowed */
    struct dns *dns;                       /* borrowed */
    const struct secret *secret;           /* borrowed; NULL = none */
    struct kv_store *store;                /* borrowed */
    const struct engine_kv_layout *layout; /* borrowed */
    struct loader *loader;                 /* borrowed; for fetches */
    const char *listen_host;               /* address or name */
    uint16_t listen_port;                  /* 0 = any free port */
    const struct msg_hello *hello;         /* describes this worker; copied */
    int64_t fetch_timeout_us;              /* most time without progress */
    int64_t push_timeout_us; /* most time without progress, once computed */
    const char *transports;  /* names separated by commas, for the call; tcp is
                                always used */
    uint32_t streams;        /* data connections of tcp to a peer */
    const struct shared_card *card; /* borrowed; NULL = the engine has none */
    int slab_fd;                    /* the file that backs the store's slab
                                       (shm_slab_new()); -1 = none, so no shm */
    const char *rdma_devices;       /* names separated by commas; "" = all */
    uint32_t rdma_slice_bytes;      /* 0 = the transport's default */
};

/* All run on the loop's thread. */
struct transfer_ops {
    /* Called when the decode worker has read all KV of `r` (why = NULL), or the
     * push failed. The callee may free r. */
    void (*push_ended)(void *arg, struct request *r, const char *why);
    /* Returns how many layers are complete for the tokens added to `r` by the
     * step under way; 0 if r is in no step. */
    uint32_t (*layers_done)(void *arg, const struct request *r);
    /* Returns the request `id`, or NULL. */
    struct request *(*find)(void *arg, uint64_t id);
    /* Called when KV_BEGIN fits the announced request `r`, now in
     * REQUEST_KV_WAIT: allocate its blocks, then call transfer_grant(). */
    void (*receive_begin)(void *arg, struct request *r);
    /* Called when all KV of `r` came, and its first token (r->last_token). */
    void (*received)(void *arg, struct request *r);
    /* Called when the KV of `r` will not come. The callee may free r. */
    void (*receive_failed)(void *arg, struct request *r, const char *why);
    /* Called when pins were released: let requests that wait for room look
     * again, but not inside this call. */
    void (*released)(void *arg);
    /* Takes a frame of a pipeline stage; see workers/pipeline/pipeline.h.
     * *stage is NULL before the first one; the connection keeps what is set.
     * NULL = stages are refused. */
    int (*stage_frame)(void *arg, struct frame_conn *conn, struct stage **stage,
                       const struct frame_header *h, const uint8_t *payload);
    /* Called when the connection of a stage takes output again. */
    void (*stage_writable)(struct stage *stage);
    /* The connection of a stage is gone. */
    void (*stage_closed)(struct stage *stage);
};

/* Makes a transfer and listens. `config` is borrowed for the call; its pointers
 * marked borrowed, `ops` and `arg` for the transfer's life. Returns 0 and *out,
 * owned; or a negative errno with a message in err[err_bytes]. */
[[nodiscard]] int transfer_new(const struct transfer_config *config,
                               const struct transfer_ops *ops, void *arg,
                               struct transfer **out, char *err,
                               size_t err_bytes);

/* Closes all connections without callbacks. NULL is a no-op. */
void transfer_free(struct transfer *t);

/* Returns the port that it listens on. */
uint16_t transfer_port(const struct transfer *t);

/* Ends transfers that made no progress in time, and sends FETCH_KEEP. Call it
 * several times a second. */
void transfer_tick(struct transfer *t, int64_t now_us);

/* Notes that the block under `key` is held: peers may ask for it. */
void transfer_held(struct transfer *t, uint64_t key);

/* Returns the peer at host:port as a source of the loader, which owns it, or
 * NULL: out of memory, or too many sources. */
[[nodiscard]] struct loader_source *
transfer_source(struct transfer *t, const char *host, uint16_t port);

/* Fills *m with the rate at which blocks come from each peer, and the
 * transport. */
void transfer_paths(const struct transfer *t, struct msg_paths *m);

/* Begins to push the KV of `r`, whose prefill starts, to the decode worker at
 * r->push.host:port. Returns 0, and push_ended is called later; or a negative
 * errno, and it is not. */
[[nodiscard]] int transfer_push(struct transfer *t, struct request *r,
                                int64_t now_us);

/* Sends computed KV of all pushes. Call it when a step made progress or
 * ended. */
void transfer_push_poke(struct transfer *t);

/* Returns true while `r` has KV to push. */
bool transfer_pushes(const struct request *r);

/* Sends KV_GRANT for `r` (REQUEST_KV_WAIT), whose blocks are allocated. Returns
 * 0, or -EINVAL: it waits for no KV. */
[[nodiscard]] int transfer_grant(struct transfer *t, struct request *r);

/* Ends the push and the receipt of `r` without a callback. The loader ends its
 * fetches. */
void transfer_forget(struct request *r);

#endif
