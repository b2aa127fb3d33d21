/* A prefill computed by several workers, each with some of the layers:
 *
 *   leader    layers [0, a)   chunk 0 | chunk 1 | chunk 2 | ...
 *   member 1  layers [a, b)             chunk 0 | chunk 1 | ...
 *   member 2  layers [b, L)                       chunk 0 | ...
 *
 * The leader owns the request. It sends its activations to the first member,
 * and each member's activations to the next; every member returns the KV of its
 * layers. So the leader has the whole KV in the end, and pushing, reuse and
 * decoding know nothing of the group.
 *
 * A member serves one prompt: it has a connection from the leader and blocks
 * for that prompt, and nothing else. Closing the connection ends the stage. If
 * a member refuses, fails or stalls, the leader continues alone from the first
 * token with incomplete KV. */
#ifndef WORKERS_PIPELINE_PIPELINE_H
#define WORKERS_PIPELINE_PIPELINE_H

#include "base/frame_conn.h"
#include "proto/stage.h"
#include "workers/engine/engine.h"
#include "workers/service/request.h"
#include "workers/store/kv_store.h"

struct loop;
struct dns;
struct stream_loop;
struct pipeline;
struct secret;
struct stage;

/* Most groups that a worker leads, and stages that it computes, at once. */
#define PIPELINE_GROUPS_MAX 16u
#define PIPELINE_STAGES_MAX 16u

struct pipeline_config {
    struct loop *loop;                     /* borrowed */
    struct stream_loop *stream_loop;       /* of its connections; borrowed */
    struct dns *dns;                       /* borrowed */
    const struct secret *secret;           /* borrowed; NULL = none */
    struct kv_store *store;                /* borrowed */
    const struct engine_kv_layout *layout; /* borrowed */
    const struct msg_hello *hello;         /* sent to members; copied */
    int64_t timeout_us; /* gives up a group after this long without progress */
};

/* All run on the loop's thread. */
struct pipeline_ops {
    /* Called when the KV of the first `position` tokens of `r` is complete. */
    void (*progress)(void *arg, struct request *r, uint32_t position);
    /* Called when all KV is complete, and the answer's first token is known. */
    void (*prefilled)(void *arg, struct request *r, uint32_t first_token);
    /* Called when the group ended: `r` continues alone. */
    void (*alone)(void *arg, struct request *r);
    /* Called when the turn of a dropped request ended: free the request. */
    void (*removed)(void *arg, struct request *r);
    /* Called when there may be something to compute. */
    void (*poke)(void *arg);
};

/* The next chunk to compute. */
struct pipeline_turn {
    struct engine_segment segment;
    struct engine_stage stage;
};

/* Makes a pipeline. Borrows `config` for the call, and its members marked
 * borrowed, `ops` and `arg` for its life. Returns it owned, or NULL: out of
 * memory. */
[[nodiscard]] struct pipeline *
pipeline_new(const struct pipeline_config *config,
             const struct pipeline_ops *ops, void *arg);

/* Frees it. No turn may be running, no request may have a group, and no stage
 * may be left. NULL is a no-op. */
void pipeline_free(struct pipeline *p);

/* Gives the waiting prefill `r` the group in `m` (borrowed for the call):
 * r->group. Returns 0; -EINVAL: the layers do not fit the model, or a chunk
 * does not fit a step; -EBUSY: too many groups; -ENOMEM. */
[[nodiscard]] int pipeline_lead(struct pipeline *p, struct request *r,
                                const struct msg_prefill_group *m);

/* Starts the group of `r`, which has its blocks: connects to the members. The
 * tokens in front of r->position are reused. */
void pipeline_begin(struct request *r, int64_t now_us);

/* Ends the group of `r`, if any. The only callback may be `removed`. */
void pipeline_forget(struct request *r);

/* Chooses the next chunk: *turn, borrowed until pipeline_turned(). Returns
 * false if nothing can be computed now. No turn may be running. */
bool pipeline_form(struct pipeline *p, struct pipeline_turn **turn);

/* Returns whether a turn is running: formed, and not yet pipeline_turned(). */
bool pipeline_in_turn(const struct pipeline *p);

/* Takes the result of the turn: rc of engine_step_stage(). */
void pipeline_turned(struct pipeline *p, int rc);

/* Gives up groups without progress for timeout_us, and stages whose leader was
 * silent for four times as long; call it several times a second. */
void pipeline_tick(struct pipeline *p, int64_t now_us);

/* Handles a frame on a connection from another worker; *stage is the
 * connection's stage, NULL at first. Returns 0, -EBADMSG or -EPROTO. The stage
 * borrows `conn` until pipeline_stage_closed(). */
[[nodiscard]] int pipeline_stage_frame(struct pipeline *p,
                                       struct frame_conn *conn,
                                       struct stage **stage,
                                       const struct frame_header *h,
                                       const uint8_t *payload);

/* Handles a stage's connection that takes more output. */
void pipeline_stage_writable(struct stage *s);

/* Ends a stage whose connection was closed. NULL is a no-op. */
void pipeline_stage_closed(struct stage *s);

#endif
