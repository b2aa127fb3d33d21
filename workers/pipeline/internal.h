/* Shared by the files of the pipeline; private to them. */
#ifndef WORKERS_PIPELINE_INTERNAL_H
#define WORKERS_PIPELINE_INTERNAL_H

#include "base/handshake.h"
#include "workers/pipeline/pipeline.h"
#include "workers/pipeline/rows.h"

/* Callbacks of a member's connection. Either may free the group. */
struct member_ops {
    /* A frame advanced the group. */
    void (*advanced)(struct group *g);
    /* The connection ended. */
    void (*failed)(struct group *g, const char *why);
};

/* The leader's state of a member. */
struct member {
    struct group *group;
    struct frame_conn *conn; /* owned; NULL = not begun */
    struct handshake handshake;
    char host[MSG_HOST_MAX];
    uint16_t port;
    uint32_t to_layer;
    bool welcome;
    bool ready;            /* STAGE_READY came */
    uint32_t computed;     /* tokens it has computed, by STAGE_DONE */
    struct rows_ring ring; /* activations to send to it */
    struct rows_kv kv;     /* KV of its layers, in the request's blocks */
    uint32_t *next_token;  /* (its layers), owned: next KV expected */
    struct rows_kv_cursor prefix; /* KV of the prefix sent to it */
};

/* A group, at its leader. Invariants: member i's layers begin where the
 * previous member's end; r->position <= computed; from pipeline_begin() on r
 * has all its blocks. */
struct group {
    TAILQ_ENTRY(group) link;
    struct pipeline *pipeline;
    const struct member_ops *member_ops;
    struct request *r;
    struct chunk_cut cut;
    uint32_t to_layer; /* end of the leader's layers */
    uint32_t computed; /* tokens computed in the leader's layers */
    bool begun;
    bool in_turn; /* the compute thread is writing to its ring */
    bool over;    /* free it when the turn ends */
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
    struct frame_conn *conn; /* borrowed; NULL = over */
    uint64_t id;
    struct chunk_cut cut;
    uint32_t *ids; /* (n_blocks), owned, pinned */
    void **blocks; /* (n_blocks), owned */
    uint32_t n_blocks;
    struct rows_kv kv;
    uint32_t *next_token; /* (its layers), owned: next prefix KV expected */
    struct rows_ring in;
    struct rows_ring out; /* data NULL in the last stage */
    uint32_t computed;
    struct rows_kv_cursor sent; /* KV */
    bool in_turn;
    bool failed;         /* its connection is about to close */
    int64_t progress_us; /* last receive, send or compute */
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
    bool stage_was_last; /* groups and stages alternate */
    struct pipeline_turn turn;
    bool in_turn;
    struct group *turn_group; /* group of the turn, or */
    struct stage *turn_stage;
    struct request *turn_request; /* of the group; kept if the group ends */
};

/* --- group.c --- */

/* Ends the group, and lets its request continue alone. Logs `why`. */
void group_fail(struct group *g, const char *why);

/* Frees an ended group that no turn uses. */
void group_free(struct group *g);

/* Fills *turn with the leader's next chunk. Returns false if none can be
 * computed now. */
bool group_form(struct group *g, struct pipeline_turn *turn);

/* Takes the result of its turn. */
void group_turned(struct group *g, int rc, uint32_t first_token);

/* --- member.c --- */

/* Returns the first layer of a member. */
uint32_t member_from_layer(const struct member *m);

/* Connects to a member. Returns 0 or a negative errno. */
[[nodiscard]] int member_connect(struct member *m);

/* Sends available KV and activations while the connection takes output. */
void member_pump(struct member *m);

/* --- stage.c --- */

/* Ends a stage whose leader has been silent for too long. */
void stage_tick(struct stage *s, int64_t now_us);

/* As group_form() and group_turned(), for a stage. */
bool stage_form(struct stage *s, struct pipeline_turn *turn);
void stage_turned(struct stage *s, int rc, uint32_t first_token);

#endif
