/* Shared by the files of this folder; private to them.
 *
 * Invariants:
 *   every request of the table is in exactly one state, whose list (if any)
 *     belongs to the batch, or to kv_waits (REQUEST_KV_WAIT)
 *   n_arriving = requests in ANNOUNCED, KV_WAIT or RECEIVING <= max_queue */
#ifndef WORKERS_SERVICE_INTERNAL_H
#define WORKERS_SERVICE_INTERNAL_H

#include "base/loop/loop.h"
#include "workers/link/conductor_link.h"
#include "workers/load/loader.h"
#include "workers/pipeline/pipeline.h"
#include "workers/service/lead.h"
#include "workers/service/worker.h"
#include "workers/step/batch.h"
#include "workers/step/thread.h"
#include "workers/transfer/transfer.h"

struct dns;
struct stream_loop;
struct worker_shared;

/* A conductor that gives this worker work; conductors.c. */
struct conductor {
    TAILQ_ENTRY(conductor) entry;
    struct worker *worker;
    struct conductor_link *link;
    struct address at;    /* its address, */
    struct address alias; /* and the address that it announces */
    bool listed;          /* named by --conductor: kept until it refuses */
    bool up;              /* has the inventory, gets block events */
    bool refuses;         /* will never take this worker: free it */
    bool asked;           /* asked for the inventory, which is being sent */
    uint8_t role;         /* role of this worker, as this conductor knows it */
    bool turns;           /* to be reconnected, to announce another role */
    uint64_t lead;        /* leadership token of its LEAD; 0 = none */
    bool leave_due;       /* LEAVING sent, no LEAVE yet */
    int64_t named_us;     /* when another conductor last named it; 0 = never */
    struct msg_paths paths; /* PATHS last sent to it, */
    int64_t paths_us;       /* and when */
};

struct worker {
    const struct worker_options *options;
    struct loop *loop;
    struct stream_loop *stream_loop; /* of frame connections */
    struct dns *dns;
    const struct secret *secret; /* NULL = none */
    struct tls *tls;             /* authorities for conductors; NULL = no TLS */
    struct engine *engine;
    const struct engine_kv_layout *layout;
    struct kv_store *store;
    int slab_fd; /* -1 = memory comes from the engine */
    size_t slab_bytes;
    struct worker_disk *disk;     /* NULL = no disk tier */
    struct worker_shared *shared; /* NULL = no shared store */
    struct batch *batch;
    struct batch_thread *thread;
    struct engine_segment *step; /* running; borrowed from the batch */
    uint32_t n_step;
    bool step_gated; /* step waits for layers: do not learn from its time */
    struct loader *loader;
    struct transfer *transfer;
    struct pipeline *pipeline;
    bool staged_last; /* last computed: a stage, not a step */
    TAILQ_HEAD(, conductor) conductors;
    const struct conductor_link_ops *link_ops; /* callbacks of their links */
    uint32_t n_conductors;
    struct lead lead;
    struct msg_hello hello;         /* sent to each further conductor */
    char queue_order[MSG_NAME_MAX]; /* equal for all conductors */
    uint8_t role; /* enum proto_role: from --role, then from ROLE frames */
    struct request_table requests;
    struct request_list kv_waits; /* KV_BEGIN came, no blocks free; FIFO */
    uint32_t n_arriving;
    TAILQ_HEAD(, copy) copies; /* oldest first; copy.c */
    uint32_t n_copies;
    struct msg_token *tokens;    /* (max_batch) tokens of the last step */
    struct conductor **token_of; /* (max_batch) conductor of each token */
    struct msg_token *one_s; /* (max_batch) scratch: one conductor's tokens */
    uint32_t n_tokens;
    struct wire_buf out;    /* scratch: frames for a conductor */
    struct loop_timer poke; /* runs worker_go_on() */
    struct loop_timer tick;
    struct loop_timer copy_next; /* pokes when a copy's next blocks are due */
    struct loop_timer inventory; /* pending while sending a requested one */
    struct {
        int64_t until_us;        /* 0 = not leaving */
        int64_t answer_until_us; /* wait for LEAVE until then */
    } leave;
    int exit_status;
};

/* Has worker_go_on() run in the next turn of the loop. */
static inline void worker_poke(struct worker *w)
{
    loop_defer(&w->poke);
}

/* Returns whether `from` may give the orders reserved to the leader. */
static inline bool worker_is_led_by(const struct conductor *from)
{
    return lead_counts(&from->worker->lead, from->lead);
}

/* --- slab.c --- */

/* Returns an allocator for the blocks of the worker's store. */
struct kv_store_memory worker_slab_memory(struct worker *w);

/* --- turn.c --- */

/* Looks at the state and starts whatever is possible now. */
void worker_go_on(struct worker *w);

/* Callbacks of the compute thread. */
extern const struct batch_thread_ops worker_thread_ops;

/* --- pipeline.c --- */

/* Starts leading groups and computing stages; `hello` opens connections to
 * other workers. Returns 0 or -ENOMEM. */
[[nodiscard]] int worker_pipeline_start(struct worker *w,
                                        const struct msg_hello *hello);

/* Forms the group in `m` to prefill the waiting `r`; if none can be formed,
 * this worker prefills it alone. */
void worker_lead(struct worker *w, struct request *r,
                 const struct msg_prefill_group *m);

/* transfer_ops.stage_frame. */
int worker_stage_frame(void *arg, struct frame_conn *conn, struct stage **stage,
                       const struct frame_header *h, const uint8_t *payload);

/* --- requests.c --- */

/* Handles a frame from a conductor; see conductor_link_ops.frame. */
int worker_on_frame(void *conductor, const struct frame_header *h,
                    const uint8_t *payload);

/* --- leave.c --- */

/* Handles LEAVE from `c`. */
void worker_leave_answered(struct conductor *c);

/* If the worker is leaving, sends LEAVING to `c`, whose link just came up. */
void worker_leave_tell(struct worker *w, struct conductor *c);

/* Exits the loop once the worker may leave. */
void worker_leave_look(struct worker *w);

/* --- drop.c --- */

/* Fails the requests that an illegal state change broke. */
void worker_fail_broken(struct worker *w);

/* Tell the conductor that `r` failed, and drop it. */
void worker_fail(struct worker *w, struct request *r, uint16_t code,
                 const char *why);

/* Removes `r` from every part and releases its blocks; if the running step
 * uses it, after that step. */
void worker_drop(struct worker *w, struct request *r);

/* Releases the blocks of `r`, which nothing refers to any more, and frees
 * it. */
void worker_free_request(struct worker *w, struct request *r);

/* Drops every request of a conductor (NULL = of all) without reporting it. */
void worker_drop_all(struct worker *w, const struct conductor *of);

/* --- load.c --- */

/* Has the loader load the blocks named in the PREFILL `m` of `r`. */
void worker_begin_load(struct worker *w, struct request *r,
                       const struct msg_prefill *m);

/* Lets the loader start further loads. */
void worker_load_poke(struct worker *w);

/* --- copy.c --- */

/* Handles COPY: begins the copy or refuses it. Returns 0 or -EBADMSG. */
int worker_on_copy(struct conductor *from, uint64_t id, const uint8_t *payload,
                   size_t len);

/* Handles DROP. Returns 0 or -EBADMSG. */
int worker_on_drop(struct worker *w, const uint8_t *payload, size_t len);

/* Ends the copy `id` of a conductor, if there is one, without reporting
 * it. */
void worker_cancel_copy(struct conductor *from, uint64_t id);

/* Lets copies continue. */
void worker_copy_poke(struct worker *w);

/* Handles the loader giving up on `r`. Returns whether `r` belongs to a
 * copy. */
bool worker_copy_gives_up(struct worker *w, const struct request *r);

/* Ends all copies of a conductor (NULL = of all). */
void worker_drop_copies(struct worker *w, const struct conductor *of);

/* --- disk.c --- */

/* Opens the disk tier, if the options name one. Returns 0, or a negative errno
 * with a message that names the option in err[err_bytes]. Blocks. Called before
 * the store is made: KV memory may take minutes, and a wrong path should be
 * reported at once. */
[[nodiscard]] int worker_disk_open(struct worker *w, char *err,
                                   size_t err_bytes);

/* Starts writing stored blocks to the disk tier. Returns 0 or -ENOMEM. */
[[nodiscard]] int worker_disk_start(struct worker *w);

/* Closes the disk tier after the running I/O has ended. No-op without a
 * tier. */
void worker_disk_close(struct worker *w);

/* Notes that the store holds a block under `key`; may be repeated. */
void worker_disk_stored(struct worker *w, uint64_t key);

/* Continues I/O that had to wait; call it several times a second. */
void worker_disk_poke(struct worker *w);

/* The tier, or NULL. */
struct disk_tier *worker_disk_tier(const struct worker *w);

/* Returns the measured load rate from disk, throttle included, in bytes/s; 0 =
 * unknown so far, or no tier. */
uint64_t worker_disk_bytes_per_s(const struct worker *w);

/* --- shared.c --- */

/* Starts using the shared store, if the options name one. Returns 0, or a
 * negative errno with a message that names the option in err[err_bytes]. */
[[nodiscard]] int worker_shared_open(struct worker *w, char *err,
                                     size_t err_bytes);

/* Stops using it; waits for running jobs, --shared-store-timeout-ms at most.
 * This and the functions below are no-ops without a shared store. */
void worker_shared_close(struct worker *w);

/* Reports to a conductor (NULL = to all) whether the shared store is up, and
 * starts listing its blocks to all conductors. */
void worker_shared_tell(struct worker *w, struct conductor *to);

/* Writes the blocks that are due. */
void worker_shared_poke(struct worker *w);

/* As worker_shared_poke(), and checks whether the store is up; call it several
 * times a second. */
void worker_shared_tick(struct worker *w);

/* The tier, or NULL. */
struct shared_tier *worker_shared_tier(const struct worker *w);

/* Sends SHARED to a conductor (NULL = to all). */
void worker_shared_say(struct worker *w, struct conductor *to);

/* --- flow.c --- */

/* Grants KV_BEGINs, oldest first, while blocks are free. */
void worker_grant(struct worker *w);

/* Callbacks of the batch, the transfers and the loader. */
extern const struct batch_ops worker_batch_ops;
extern const struct transfer_ops worker_transfer_ops;
extern const struct loader_ops worker_loader_ops;

/* --- links.c --- */

/* Callbacks of the links to conductors. */
extern const struct conductor_link_ops worker_link_ops;

/* --- conductors.c --- */

/* Starts connecting to the conductors in the options. Returns 0, or -1: out of
 * memory. */
[[nodiscard]] int worker_conductors_start(struct worker *w,
                                          const struct msg_hello *hello);

/* Handles CONDUCTORS. Returns 0 or -EBADMSG. */
int worker_take_conductors(struct conductor *from, const uint8_t *payload,
                           size_t len);

/* Frees conductors that refused, or that were lost and not named for
 * FORGET_US. */
void worker_conductors_tick(struct worker *w, int64_t now_us);

/* Returns whether a conductor is up. */
bool worker_has_conductor(const struct worker *w);

/* Sets the worker's role, as ordered by `from`. Other conductors are told once
 * their requests here have ended. */
void worker_set_role(struct conductor *from, uint8_t role);

/* Tells a conductor this worker's role: reconnects once it has no requests
 * here. */
void worker_turn(struct conductor *c);

/* Handles LEAD. Returns 0 or -EBADMSG. */
int worker_take_lead(struct conductor *from, const uint8_t *payload,
                     size_t len);

/* Frees all conductors: drops their requests and closes their links. */
void worker_conductors_free(struct worker *w);

/* --- report.c --- */

/* Sends w->out to a conductor (NULL = to none) and empties it. */
void worker_send(struct worker *w, struct conductor *to);

/* Sends w->out to all conductors that are up, and empties it. */
void worker_send_all(struct worker *w);

/* Sends FAILED for a request id. */
void worker_send_failed(struct worker *w, struct conductor *to, uint64_t id,
                        uint16_t code, const char *why);

/* Sends each conductor the collected tokens of its requests, as one frame. */
void worker_send_tokens(struct worker *w);

/* Sends all conductors that are up the blocks that the store and the disk tier
 * gained and lost since the last call. */
void worker_send_events(struct worker *w);

/* Sends all blocks of the store and the disk tier to a conductor that is not
 * up yet (NULL = to all that are), after worker_send_events(). */
void worker_send_inventory(struct worker *w, struct conductor *to);

/* Starts sending the inventory again, in slices, to a conductor that
 * asked. */
void worker_begin_inventory(struct conductor *to);

/* Sends the next slice to the conductors that asked. */
void worker_go_on_inventory(struct worker *w);

/* Sends STATUS. */
void worker_send_status(struct worker *w, struct conductor *to);

#endif
