/* What the files of the pipeline share. Nobody else includes this. */
#ifndef WORKERS_PIPELINE_INTERNAL_H
#define WORKERS_PIPELINE_INTERNAL_H

#include "base/handshake.h"
#include "workers/pipeline/pipeline.h"
#include "workers/pipeline/rows.h"

/* What a member's connection tells its group. Either may free the group. */
struct member_ops {
    /* Something came: see how far the request is. */
    void (*advanced)(struct group *g);
    /* The connection is over. */
    void (*failed)(struct group *g, const char *why);
};

/* A member, as its leader sees it. */
struct member {
    struct group *group;
    struct frame_conn *conn; /* owned; NULL before pipeline_begin() */
    struct handshake handshake;
    char host[MSG_HOST_MAX];
    uint16_t port;
    uint32_t to_layer;
    bool welcome;
    bool ready;                   /* STAGE_READY came */
    uint32_t computed;            /* tokens in front of it are, it says */
    struct rows_ring ring;        /* what it is sent */
    struct rows_kv kv;            /* of its layers, in the request's blocks */
    uint32_t *next_token;         /* (its layers), owned: KV that came */
    struct rows_kv_cursor prefix; /* KV that it is sent */
};

/* A group, at its leader.
 * Invariants: member i's layers begin where those of the one before it end;
 * r->position <= computed; from pipeline_begin() on r has all its blocks. */
struct group {
    TAILQ_ENTRY(group) link;
    struct pipeline *pipeline;
    const struct member_ops *member_ops;
    struct request *r;
    struct chunk_cut cut;
    uint32_t to_layer; /* of the leader */
    uint32_t computed; /* tokens in front of it are, in the leader's layers */
    bool begun;
    bool in_turn; /* the compute thread writes to its ring */
    bool over;    /* free it when the turn has ended */
    bool has_token;
    uint32_t first_token;
    int64_t progress_us;
    uint32_t n_members;
    struct member members[];
};

/* A stage that this worker computes for a leader.
 * Invariant: computed <= in.filled; out.filled = computed unless it is the
 * last stage. */
struct stage {
    TAILQ_ENTRY(stage) link;
    struct pipeline *pipeline;
    struct frame_conn *conn; /* borrowed; NULL: over */
    uint64_t id;
    struct chunk_cut cut;
    uint32_t *ids; /* (n_blocks), owned, pinned */
    void **blocks; /* (n_blocks), owned */
    uint32_t n_blocks;
    struct rows_kv kv;
    uint32_t *next_token; /* (its layers), owned: KV of the prefix that came */
    struct rows_ring in;
    struct rows_ring out; /* no rows: it is the last one */
    uint32_t computed;
    struct rows_kv_cursor sent; /* KV */
    bool in_turn;
    bool failed;         /* the connection is about to close */
    int64_t progress_us; /* when something last came, went or was computed */
};

struct pipeline {
    struct pipeline_config config;
    struct msg_hello hello;
    const struct pipeline_ops *ops;
    void *arg;
    struct rows_sender sender;
    TAILQ_HEAD(, group) groups;
    TAILQ_HEAD(, stage) stages;
    uint32_t n_groups;
    uint32_t n_stages;
    bool stage_was_last; /* the two take turns */
    struct pipeline_turn turn;
    bool in_turn;
    struct group *turn_group; /* whose turn it is; or */
    struct stage *turn_stage;
    struct request *turn_request; /* of that group, which may be over */
};

/* --- group.c --- */

/* The group is over, and its request goes on alone. `why` is logged. */
void group_fail(struct group *g, const char *why);

/* Free a group that is over, when no turn uses it. */
void group_free(struct group *g);

/* What the leader can compute now, in *turn. */
bool group_form(struct group *g, struct pipeline_turn *turn);

/* Take in the outcome of its turn. */
void group_turned(struct group *g, int rc, uint32_t first_token);

/* --- member.c --- */

/* The first layer of a member. */
uint32_t member_from_layer(const struct member *m);

/* Connect to a member. 0, or a negative errno. */
[[nodiscard]] int member_connect(struct member *m);

/* Send what there is, while the output takes it. */
void member_pump(struct member *m);

/* --- stage.c --- */

/* Ends it if its leader has been silent for too long. */
void stage_tick(struct stage *s, int64_t now_us);

/* As group_form() and group_turned(), of a stage. */
bool stage_form(struct stage *s, struct pipeline_turn *turn);
void stage_turned(struct stage *s, int rc, uint32_t first_token);

#endif
