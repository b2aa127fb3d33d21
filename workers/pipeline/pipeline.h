/* A prompt that several workers prefill together, each some of the layers:
 *
 *   leader    layers [0, a)   chunk 0 | chunk 1 | chunk 2 | ...
 *   member 1  layers [a, b)             chunk 0 | chunk 1 | ...
 *   member 2  layers [b, L)                       chunk 0 | ...
 *
 * The leader has the request. It sends what its tokens pass over the boundary
 * to the first member, and what a member leaves to the next one; every member
 * sends the KV of its layers back. So the leader ends up with the whole KV, as
 * if it had computed all of it, and pushing, reuse and decoding know nothing
 * of the group.
 *
 * A member is lent for one prompt: it has a connection from the leader and
 * blocks for that prompt, and nothing else. When the connection closes, the
 * stage is over. If a member refuses, fails or stands still, the leader goes on
 * alone from the first token whose KV is not whole.
 */
#ifndef WORKERS_PIPELINE_PIPELINE_H
#define WORKERS_PIPELINE_PIPELINE_H

#include "base/frame_conn.h"
#include "proto/stage.h"
#include "workers/engine/engine.h"
#include "workers/service/request.h"
#include "workers/store/kv_store.h"

struct event_base;
struct evdns_base;
struct secret;
struct pipeline;
struct stage;

/* Groups that a worker may lead, and stages that it may compute, at once. */
#define PIPELINE_GROUPS_MAX 16u
#define PIPELINE_STAGES_MAX 16u

struct pipeline_config {
    struct event_base *base;               /* borrowed */
    struct evdns_base *dns;                /* borrowed */
    const struct secret *secret;           /* borrowed; NULL: none */
    struct kv_store *store;                /* borrowed */
    const struct engine_kv_layout *layout; /* borrowed */
    const struct msg_hello
        *hello;         /* as it opens connections to peers; copied */
    int64_t timeout_us; /* a group without progress is given up */
};

/* All run on the loop's thread. */
struct pipeline_ops {
    /* The KV of the first `position` tokens of `r` is whole. */
    void (*progress)(void *arg, struct request *r, uint32_t position);
    /* All of it is, and the first token of the answer is there. */
    void (*prefilled)(void *arg, struct request *r, uint32_t first_token);
    /* The group is over: `r` goes on alone. */
    void (*alone)(void *arg, struct request *r);
    /* The turn that a dropped request was in has ended: free it. */
    void (*removed)(void *arg, struct request *r);
    /* There may be something to compute. */
    void (*poke)(void *arg);
};

/* What to compute next. */
struct pipeline_turn {
    struct engine_segment segment;
    struct engine_stage stage;
};

/* Make one. `config` is borrowed for the call, what it points to (marked), and
 * `ops` and `arg`, for its life. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct pipeline *
pipeline_new(const struct pipeline_config *config,
             const struct pipeline_ops *ops, void *arg);

/* Close all connections without callbacks. No turn may be under way, and no
 * request may have a group. NULL is a no-op. */
void pipeline_free(struct pipeline *p);

/* Have the waiting prefill `r` computed by the group that `m` (borrowed for the
 * call) names: r->group. 0; -EINVAL: the layers do not fit the model, or a
 * chunk does not fit a step; -EBUSY: too many groups; -ENOMEM. */
[[nodiscard]] int pipeline_lead(struct pipeline *p, struct request *r,
                                const struct msg_prefill_group *m);

/* The turn of `r`, which has a group, has come, and it has its blocks: ask the
 * members. What it reuses is in front of r->position. */
void pipeline_begin(struct request *r, int64_t now_us);

/* Forget the group of `r`, if it has one, without a callback but `removed`. */
void pipeline_forget(struct request *r);

/* Choose what to compute next: *turn, borrowed until pipeline_turned(). False:
 * nothing can be computed now. None may be under way. */
bool pipeline_form(struct pipeline *p, struct pipeline_turn **turn);

/* True between the two. */
bool pipeline_in_turn(const struct pipeline *p);

/* Take in the outcome of that turn: rc of engine_step_stage(). */
void pipeline_turned(struct pipeline *p, int rc);

/* Give up groups that stand still, and stages whose leader is silent for four
 * times as long; call it some times a second. */
void pipeline_tick(struct pipeline *p, int64_t now_us);

/* A frame on a connection from another worker, with what it was told before in
 * *stage (NULL at first). Returns 0, -EBADMSG or -EPROTO. The stage borrows
 * `conn` until pipeline_stage_closed(). */
[[nodiscard]] int pipeline_stage_frame(struct pipeline *p,
                                       struct frame_conn *conn,
                                       struct stage **stage,
                                       const struct frame_header *h,
                                       const uint8_t *payload);

/* Its connection takes more output. */
void pipeline_stage_writable(struct stage *s);

/* Its connection is over: the stage is, too. NULL is a no-op. */
void pipeline_stage_closed(struct stage *s);

#endif
