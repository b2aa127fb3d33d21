/*
 * A native worker as an instance: joining, reports, loss. Private to the files
 * of conductor/service.
 */
#ifndef CONDUCTOR_SERVICE_WORKER_WORKER_H
#define CONDUCTOR_SERVICE_WORKER_WORKER_H

#include "base/loop/loop.h"
#include "conductor/core/warm/warm.h"
#include "conductor/link/worker_link.h"
#include "conductor/service/request/request.h"
#include "conductor/service/worker/copies.h"
#include "conductor/service/worker/notes.h"
#include "conductor/service/worker/switch.h"

TAILQ_HEAD(worker_list, worker);

/* A piece of a refused prompt that a worker computes in the background. */
struct worker_warm {
    uint64_t attempt_id;  /* 0 = none */
    struct warm_job *job; /* its prompt */
    struct warm_piece piece;
    int64_t heard_us; /* arrival of the last frame about it */
    bool started;
};

/* A registered worker, by its pool slot. */
struct worker {
    struct worker_link *link; /* NULL = slot not in use */
    uint32_t id;              /* pool id */
    struct msg_hello hello;
    char host[MSG_HOST_MAX];   /* address for its peers */
    uint64_t kv_pinned_blocks; /* as last reported */
    uint64_t disk_used_blocks; /* as last reported */
    struct msg_shared shared;  /* as last reported; all 0 = no shared store */
    uint64_t shared_id;        /* the last id other than 0 */
    uint32_t keys_taken;       /* of a frame that FRAME_AGAIN repeats */
    bool leaves;               /* has sent LEAVING */
    uint64_t lead;             /* token of the last LEAD sent; 0 = none */
    bool greet;                /* must get the list of conductors */
    bool waits;                /* in native.blocks.line */
    TAILQ_ENTRY(worker) line;
    struct {
        int64_t until_us; /* limit to begin, then to end; 0 = not asked */
        bool began;       /* the inventory has begun */
        int64_t next_us;  /* earliest next question */
        int64_t pause_us; /* length of the last pause */
    } ask;                /* request for its inventory */
    struct request_list
        unsent; /* PREFILLs not sent yet, in order of decision */
    struct worker_warm warm;
    struct worker_copy copy;
    char path_names[POOL_PATHS_MAX][MSG_NAME_MAX]; /* transport of each path */
};

/* The native workers of a service. Written by this folder alone. */
struct native {
    struct secret *secret; /* NULL: workers need none */
    struct worker_links *links;
    struct worker *workers; /* (max_instances), by pool slot */
    uint32_t n_workers;
    uint64_t fingerprint;    /* of the registered workers; 0 = none yet */
    uint64_t shared_id;      /* of their shared store; 0 = none */
    struct loop_timer sweep; /* the index has slices of work */
    bool has_orphans;        /* some request may be orphaned */
    int64_t stalled_us;      /* last search for stalled requests */
    struct copies *copies;   /* hot blocks, ahead of demand */
    struct notes copy_notes;
    struct warm warm;    /* refused prompts, computed in the background */
    struct roles *roles; /* owned: which workers switch between roles */
    struct wire_buf out; /* scratch for one frame */
    struct {
        struct loop_timer next;  /* the next turn of the loop; pending if this
                                    turn has taken blocks */
        uint32_t left;           /* blocks that this turn may still take */
        uint32_t part;           /* part of left for the worker being served */
        struct worker_list line; /* workers that wait, the next one first */
        struct worker *served;   /* NULL: none of the line */
    } blocks;                    /* blocks that workers report */
    struct {
        int64_t next_us;    /* no worker is asked before */
        uint32_t next_slot; /* to be looked at */
    } healing;              /* workers asked for their inventory */
};

/* service_set_window(s): sets the served window to the longest of the
 * registered workers, after a worker came or left. Without workers it stays. */
void service_set_window(struct service *s);

/* Returns whether a native worker of that name is registered. */
bool service_has_worker(const struct service *s, const char *name);

/* service_join(...): worker_link_ops.joined; arg is the service. */
uint16_t service_join(void *arg, struct worker_link *link,
                      const struct msg_hello *m, const char *peer_host,
                      struct msg_welcome *welcome, char text[MSG_TEXT_MAX]);

/* service_link_ops: the callbacks of the worker links; arg is the service. */
extern const struct worker_link_ops service_link_ops;

/* shared_frame(s, worker, payload, len): takes a frame SHARED. Returns 0,
 * -EBADMSG or -EPROTO. */
[[nodiscard]] int shared_frame(struct service *s, struct worker *worker,
                               const uint8_t *payload, size_t len);

/* shared_left(s, worker): handles the loss of a worker. The index forgets a
 * shared store with its last worker. */
void shared_left(struct service *s, struct worker *worker);

/* shared_write_metrics(s, out): appends the metrics of the shared store; s NULL
 * = none. Returns 0 or -ENOMEM. */
[[nodiscard]] int shared_write_metrics(const struct service *s,
                                       struct text_buf *out);

/* shared_is_same(s, worker): returns whether the worker uses the shared store
 * that the index has. */
bool shared_is_same(const struct service *s, const struct worker *worker);

/* blocks_init(s), blocks_fini(s): set up and end the state of
 * blocks_frame(). */
void blocks_init(struct service *s);
void blocks_fini(struct service *s);

/* blocks_frame(s, worker, slot, h, payload): takes a frame about the blocks of
 * the worker in a pool slot. Returns 0, FRAME_AGAIN or a negative errno, as
 * worker_link_ops.frame. */
[[nodiscard]] int blocks_frame(struct service *s, struct worker *worker,
                               uint32_t slot, const struct frame_header *h,
                               const uint8_t *payload);

/* blocks_left(s, worker): removes a lost worker from the line. */
void blocks_left(struct service *s, struct worker *worker);

/* instances_tick(service, away_us): marks silent workers as suspect; fails
 * orphaned requests whose KV did not arrive, and requests without progress.
 * away_us: time for which this process did not run. */
void instances_tick(struct service *service, int64_t away_us);

/* index_tick(service): sweeps the index's entries of lost workers, and asks a
 * worker for its inventory. Called a few times a second. */
void index_tick(struct service *service);

/* index_on_sweep(...): callback of service->sweep; arg is the service. */
void index_on_sweep(void *arg);

/* index_inventory_mark(service, worker, slot, payload, len): takes the frame
 * that begins or ends the inventory of the worker in a pool slot. Returns 0 or
 * -EBADMSG. */
[[nodiscard]] int index_inventory_mark(struct service *service,
                                       struct worker *worker, uint32_t slot,
                                       const uint8_t *payload, size_t len);

/* instances_count(service, role, named): returns the number of ready instances
 * that have this role bit and this name; named NULL = any. */
uint32_t instances_count(const struct service *service, unsigned role,
                         const struct name_set *named);

/* instances_pack_lead(service, worker): appends the frame LEAD, with the
 * leading conductor, to service->native.out if the worker has not got it. */
void instances_pack_lead(struct service *service, struct worker *worker);

/* worker_of(service, id): returns the worker of a pool id, or NULL if it is
 * gone. */
struct worker *worker_of(const struct service *service, uint32_t id);

#endif
