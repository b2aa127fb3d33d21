/* What the files of the worker share. Nobody else includes this.
 *
 * Invariants:
 *   every request of the table is in exactly one state, whose list (if any)
 *     belongs to the batch, or to kv_waits (REQUEST_KV_WAIT)
 *   n_arriving = requests in ANNOUNCED, KV_WAIT or RECEIVING <= max_queue
 */
#ifndef WORKERS_SERVICE_INTERNAL_H
#define WORKERS_SERVICE_INTERNAL_H

#include <event2/event.h>

#include "workers/link/conductor_link.h"
#include "workers/load/loader.h"
#include "workers/pipeline/pipeline.h"
#include "workers/service/lead.h"
#include "workers/service/worker.h"
#include "workers/step/batch.h"
#include "workers/step/thread.h"
#include "workers/transfer/transfer.h"

struct worker_shared;

/* A conductor that gives this worker work; conductors.c. */
struct conductor {
    TAILQ_ENTRY(conductor) entry;
    struct worker *worker;
    struct conductor_link *link;
    struct address at;      /* where it is reached, */
    struct address alias;   /* and where it says that it is */
    bool listed;            /* by --conductor: never let go of */
    bool up;                /* it knows what the store holds, and hears more */
    bool refuses;           /* for good: it is let go of */
    bool asked;             /* for the inventory, which is under way */
    uint8_t role;           /* of this worker, as it knows it */
    bool turns;             /* it is left, and told another role then */
    uint64_t lead;          /* the token that it was told to lead by; 0: none */
    bool leave_taken;       /* it takes LEAVING */
    bool leave_due;         /* and has not answered it */
    int64_t named_us;       /* when another one named it last; 0: none did */
    bool takes_paths;       /* it takes PATHS, */
    struct msg_paths paths; /* and was told these */
    int64_t paths_us;       /* at that time */
};

struct worker {
    const struct worker_options *options;
    struct event_base *base;
    struct evdns_base *dns;
    const struct secret *secret; /* NULL: none */
    struct tls *tls; /* whom it trusts; NULL: the conductor has no TLS */
    struct engine *engine;
    const struct engine_kv_layout *layout;
    struct kv_store *store;
    int slab_fd; /* -1: its memory is the engine's */
    size_t slab_bytes;
    struct worker_disk *disk;     /* NULL: no disk tier */
    struct worker_shared *shared; /* NULL: no shared store */
    struct batch *batch;
    struct batch_thread *thread;
    struct engine_segment *step; /* under way; borrowed from the batch */
    uint32_t n_step;
    bool step_gated; /* it waits for layers: its time says nothing */
    struct loader *loader;
    struct transfer *transfer;
    struct pipeline *pipeline;
    bool staged_last; /* the last thing computed was a stage's */
    TAILQ_HEAD(, conductor) conductors;
    const struct conductor_link_ops *link_ops; /* of their connections */
    uint32_t n_conductors;
    struct lead lead;
    struct msg_hello hello;         /* that the next one is told */
    char queue_order[MSG_NAME_MAX]; /* as they say; one for all */
    uint8_t role; /* enum proto_role: the option, until ROLE says another */
    struct request_table requests;
    struct request_list kv_waits; /* KV_BEGIN came, no room yet; FIFO */
    uint32_t n_arriving;
    TAILQ_HEAD(, copy) copies; /* the oldest first; copy.c */
    uint32_t n_copies;
    struct msg_token *tokens;    /* (max_batch) of the step that ended, */
    struct conductor **token_of; /* (max_batch) whose they are, */
    struct msg_token *one_s;     /* (max_batch) and those of one of them */
    uint32_t n_tokens;
    struct wire_buf out; /* scratch: frames for a conductor */
    struct event *poke;  /* look what can go on */
    struct event *tick;
    struct event *copy_next; /* the next blocks of a copy are due */
    struct event *inventory; /* pending: one that was asked for is under way */
    struct {
        int64_t until_us;        /* 0: it does not leave */
        int64_t answer_until_us; /* so long LEAVE is awaited */
    } leave;
    int exit_status;
};

/* Have the worker look at what can go on, in the next turn of the loop. */
static inline void worker_poke(struct worker *w)
{
    event_active(w->poke, 0, 0);
}

/* Whether orders that only a leader gives count from that conductor. */
static inline bool worker_is_led_by(const struct conductor *from)
{
    return lead_counts(&from->worker->lead, from->lead);
}

/* --- slab.c --- */

/* For the worker's store. */
struct kv_store_memory worker_slab_memory(struct worker *w);

/* --- turn.c --- */

/* Look at the state and start whatever is possible now. */
void worker_go_on(struct worker *w);

/* What the compute thread says. */
extern const struct batch_thread_ops worker_thread_ops;

/* --- pipeline.c --- */

/* Lead groups and compute stages from now on; `hello` is what opens connections
 * to other workers. 0 or -ENOMEM. */
[[nodiscard]] int worker_pipeline_start(struct worker *w,
                                        const struct msg_hello *hello);

/* Have the waiting `r` prefilled by the group that `m` names; if there can be
 * none, it is prefilled here. */
void worker_lead(struct worker *w, struct request *r,
                 const struct msg_prefill_group *m);

/* transfer_ops.stage_frame. */
int worker_stage_frame(void *arg, struct frame_conn *conn, struct stage **stage,
                       const struct frame_header *h, const uint8_t *payload);

/* --- requests.c --- */

/* A frame from a conductor; see conductor_link_ops.frame. */
int worker_on_frame(void *conductor, const struct frame_header *h,
                    const uint8_t *payload);

/* --- leave.c --- */

/* LEAVE came from it. */
void worker_leave_answered(struct conductor *c);

/* If the worker leaves, tell this conductor, which has just come up. */
void worker_leave_tell(struct worker *w, struct conductor *c);

/* Leave the loop, if it is time to. */
void worker_leave_look(struct worker *w);

/* --- drop.c --- */

/* Tell the conductor that `r` failed, and drop it. */
void worker_fail(struct worker *w, struct request *r, uint16_t code,
                 const char *why);

/* Forget `r` everywhere and give back its blocks; if the step under way uses
 * it, when that ends. */
void worker_drop(struct worker *w, struct request *r);

/* Give back the blocks of `r`, which nothing refers to any more, and free it.
 */
void worker_free_request(struct worker *w, struct request *r);

/* Drop every request of a conductor, without a word; NULL: of all. */
void worker_drop_all(struct worker *w, const struct conductor *of);

/* --- load.c --- */

/* Have the loader load what the PREFILL `m` of `r` says. */
void worker_begin_load(struct worker *w, struct request *r,
                       const struct msg_prefill *m);

/* Let the loader go on. */
void worker_load_poke(struct worker *w);

/* --- copy.c --- */

/* A COPY: begins it, or refuses it. Returns 0 or -EBADMSG. */
int worker_on_copy(struct conductor *from, uint64_t id, const uint8_t *payload,
                   size_t len);

/* A DROP. Returns 0 or -EBADMSG. */
int worker_on_drop(struct worker *w, const uint8_t *payload, size_t len);

/* End the copy of that id of a conductor, if there is one, without a word. */
void worker_cancel_copy(struct conductor *from, uint64_t id);

/* Let copies go on. */
void worker_copy_poke(struct worker *w);

/* The loader gives up the load of `r`. Returns whether it was a copy's. */
bool worker_copy_gives_up(struct worker *w, const struct request *r);

/* End all copies of a conductor; NULL: all. */
void worker_drop_copies(struct worker *w, const struct conductor *of);

/* --- disk.c --- */

/* Open the disk tier, if the options name one. 0, or a negative errno with a
 * message that names the option in err[err_bytes]. Blocks. The store comes
 * after it: KV memory may take minutes, and a wrong path is told at once. */
[[nodiscard]] int worker_disk_open(struct worker *w, char *err,
                                   size_t err_bytes);

/* Keep in it what the store holds from now on. Returns 0 or -ENOMEM. */
[[nodiscard]] int worker_disk_start(struct worker *w);

/* Close it. Waits for the I/O under way. Without a tier a no-op. */
void worker_disk_close(struct worker *w);

/* The store holds a block under `key`; may be repeated. */
void worker_disk_stored(struct worker *w, uint64_t key);

/* Go on with work that had to wait; call it some times a second. */
void worker_disk_poke(struct worker *w);

/* The tier, or NULL. */
struct disk_tier *worker_disk_tier(const struct worker *w);

/* The rate at which loads have come from disk, throttled or not; 0: not known
 * yet, or no tier. */
uint64_t worker_disk_bytes_per_s(const struct worker *w);

/* --- shared.c --- */

/* Begin to use the shared store, if the options name one. 0, or a negative
 * errno with a message that names the option in err[err_bytes]. */
[[nodiscard]] int worker_shared_open(struct worker *w, char *err,
                                     size_t err_bytes);

/* Stop: waits for what is under way, --shared-store-timeout-ms at most. Without
 * a shared store a no-op, as all below. */
void worker_shared_close(struct worker *w);

/* Tell a conductor (NULL: all) whether the store is there, and begin to tell
 * all what it has. */
void worker_shared_tell(struct worker *w, struct conductor *to);

/* Put what is due. */
void worker_shared_poke(struct worker *w);

/* The same, and look whether the store is there; some times a second. */
void worker_shared_tick(struct worker *w);

/* The tier, or NULL. */
struct shared_tier *worker_shared_tier(const struct worker *w);

/* Send SHARED; NULL: to all. */
void worker_shared_say(struct worker *w, struct conductor *to);

/* --- flow.c --- */

/* Grant KV_BEGINs, oldest first, while there is room. */
void worker_grant(struct worker *w);

/* What the batch and the transfer tell about requests. */
extern const struct batch_ops worker_batch_ops;
extern const struct transfer_ops worker_transfer_ops;
extern const struct loader_ops worker_loader_ops;

/* --- links.c --- */

/* What the connections to the conductors say. */
extern const struct conductor_link_ops worker_link_ops;

/* --- conductors.c --- */

/* Begin to connect to those of the options. 0, or -1: out of memory. */
[[nodiscard]] int worker_conductors_start(struct worker *w,
                                          const struct msg_hello *hello);

/* CONDUCTORS came. Returns 0 or -EBADMSG. */
int worker_take_conductors(struct conductor *from, const uint8_t *payload,
                           size_t len);

/* Let go of those that are not to be looked for any more. */
void worker_conductors_tick(struct worker *w, int64_t now_us);

/* Whether one of them is up. */
bool worker_has_conductor(const struct worker *w);

/* The worker has that role from now on, as `from` says; the others hear of it
 * when it has ended what it has of them. */
void worker_set_role(struct conductor *from, uint8_t role);

/* Has a conductor hear of this worker's role: once it has nothing here, its
 * connection is made again. */
void worker_turn(struct conductor *c);

/* LEAD came. Returns 0 or -EBADMSG. */
int worker_take_lead(struct conductor *from, const uint8_t *payload,
                     size_t len);

/* Drop their requests, close, and free them. */
void worker_conductors_free(struct worker *w);

/* --- report.c --- */

/* Send w->out to a conductor and empty it; NULL: nobody asked for it. */
void worker_send(struct worker *w, struct conductor *to);

/* The same to all who are up. */
void worker_send_all(struct worker *w);

/* Send FAILED for a request id. */
void worker_send_failed(struct worker *w, struct conductor *to, uint64_t id,
                        uint16_t code, const char *why);

/* Send the collected tokens, to each conductor its own as one frame. */
void worker_send_tokens(struct worker *w);

/* Send what the store and the disk tier gained and lost since the last call, to
 * all who are up. */
void worker_send_events(struct worker *w);

/* Send all that the store and the disk tier hold to a conductor that is not up
 * yet, behind worker_send_events(); NULL: to all who are. */
void worker_send_inventory(struct worker *w, struct conductor *to);

/* Begin to send it once more, in slices, because a conductor asked. */
void worker_begin_inventory(struct conductor *to);

/* Send its next slice to who asked. */
void worker_go_on_inventory(struct worker *w);

/* Send STATUS. */
void worker_send_status(struct worker *w, struct conductor *to);

#endif
