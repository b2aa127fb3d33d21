#ifndef CONDUCTOR_CORE_REPLICATION_INTERNAL_H
#define CONDUCTOR_CORE_REPLICATION_INTERNAL_H

#include "conductor/core/replication/replication.h"

/* A copy that the last pass wants: a tip for one more holder. */
struct replication_job {
    struct access_tip tip;
    uint32_t to; /* pool id */
    double us_per_byte;
    struct replication_reason reason;
};

/* A piece under way. */
struct replication_piece {
    uint64_t id;
    uint32_t from, to; /* pool ids */
    uint64_t tip;
    uint64_t last_key; /* of its last block */
    uint32_t first_block, end_block;
};

/* Blocks that were copied to an instance. */
struct replication_kept {
    uint64_t tip;
    uint64_t last_key;
    uint32_t instance; /* pool id */
    uint32_t first_block, end_block;
    int64_t at_us; /* when the last of these blocks came */
};

/* An instance, by slot. */
struct replication_side {
    uint32_t id;       /* pool id of the instance */
    double busy_ratio; /* recent share of the time */
    int64_t failed_us; /* until then no copies to it; 0 = none failed */
    bool sends, receives;
};

struct replication {
    struct dispatch *dispatch; /* borrowed */
    struct access_sketch *asked;
    int64_t slowdown;
    int64_t sampled_us; /* last sample of sides' busy_ratio */
    int64_t due_us;     /* of the next pass */
    uint32_t n_sides;
    struct replication_side *sides; /* (n_sides) */
    uint32_t *order;                /* (n_sides): scratch of a pass */
    uint64_t *keys;                 /* (places of asked): scratch */
    uint32_t n_jobs;
    struct replication_job jobs[REPLICATION_JOBS]; /* the best first */
    uint32_t n_pieces;
    struct replication_piece *pieces; /* (n_sides) */
    uint32_t n_kept;
    struct replication_kept kept[REPLICATION_KEPT];
    uint64_t next_id;
    struct replication_counts counts;
};

/* weigh.c: adds a job for each further holder of a tip that is worth it. */
void replication_weigh(struct replication *r, const struct access_tip *tip,
                       int64_t now_us);

/* weigh.c: looks up a tip's blocks in r->keys. Returns whether all are known;
 * *look is valid until the next decision or look. */
bool replication_look(struct replication *r, const struct access_tip *tip,
                      struct schedule_look *look);

/* weigh.c: returns how many of keys (n), which *look looked up, an instance can
 * send: its leading blocks, or 0 if one is only in a slow tier. */
uint32_t replication_sendable(const struct schedule_look *look,
                              const uint64_t *keys,
                              const struct pool_instance *i, uint32_t n);

/* Scales a period by the slowdown. */
static inline int64_t replication_us(const struct replication *r, int64_t us)
{
    return us * r->slowdown;
}

/* Bytes of a block. */
static inline double replication_block_bytes(const struct schedule_look *look)
{
    return (double)look->model->block_tokens *
           (double)look->model->kv_bytes_per_token;
}

/* Returns whether an instance could hold copies. */
static inline bool replication_takes(const struct pool_instance *i)
{
    return i && (i->role & ROLE_PREFILL) != 0 && pool_takes_work(i);
}

#endif
