/* The loader fills blocks of waiting and running prefills from peers, the disk
 * and the shared store, from the end of the cached prefix backward, while the
 * engine computes from the front. The two stop where they meet ("Compute Or
 * Load KV Cache? Why Not Both?", sections 3 and 4). Or it loads layer by layer,
 * and the engine computes the rest of the prompt in the layers that have come.
 *
 *      0     resident   position ->        <- loaded        end    n_tokens
 *      |  held  | computed |  neither yet  |   loaded blocks  | suffix |
 *
 * A source compares the tokens of the prompt's leading blocks from the first
 * on, and reports how many it can send. The loader then asks each source for
 * piece after piece: always the next missing one, from the end backward. So
 * several sources share the work by their speed, and a source that fails leaves
 * the rest to the others, or to the engine.
 *
 * Invariants:
 *   a block is written by the engine or by one piece, never by both: if the
 * engine must compute it while a piece is on its way, the request gets another
 * block
 *   a piece pins its target block until its source hands the piece back, even
 * when nobody waits for it any more
 *   request.load.origin[i] is set once all layers of block i were verified
 *
 * Used on the loop's thread only. */
#ifndef WORKERS_LOAD_LOADER_H
#define WORKERS_LOAD_LOADER_H

#include "conductor/core/plan/load_plan.h"
#include "workers/engine/engine.h"
#include "workers/service/request.h"

#define LOAD_SOURCES_MAX 6 /* of one load: peers, own disk, shared store */
#define LOADER_SOURCES_MAX 64
/* Most pieces of one source in flight. */
#define LOADER_PIECES_MAX 32u

struct cost_model;
struct load;
struct load_run;
struct loader;
struct loader_source;
struct loop;

/* A whole block, or one layer of a block, on its way. Made by the loader; a
 * source may use `link`, `own` and `rc` until it hands the piece back. */
struct loader_piece {
    TAILQ_ENTRY(loader_piece) link;
    void *own;
    void *session;        /* of the read; may be closed */
    struct load_run *run; /* NULL = no run waits for it */
    struct loader_source *source;
    uint32_t block;
    uint32_t from_layer;
    uint32_t n_layers;
    void *data;     /* target: where layer from_layer of the block begins */
    uint64_t bytes; /* size of its layers */
    uint32_t id;    /* store id of the block, pinned by the piece */
    int rc;

    /* Private to the loader: */
    LIST_ENTRY(loader_piece) of_run;
    uint32_t unit;
    bool hung;      /* its run was given up while the source had it */
    int64_t due_us; /* end of its wait in the throttle; 0 = not waiting */
};

TAILQ_HEAD(loader_piece_list, loader_piece);

/* The calls of a source; `arg` was given to loader_add_source(). */
struct loader_source_ops {
    enum block_origin origin;
    /* Find out how many leading blocks of r's prompt, up to to_block, the
     * source can send; report it with loader_opened(), now or later. Returns
     * the session, or NULL: the source cannot be asked. */
    void *(*open)(void *arg, struct load_run *run, const struct request *r,
                  uint32_t to_block);
    /* Read `piece` into piece->data, verify it, and later hand it back with
     * loader_done(). Returns 0, or a negative errno: nothing is read, and the
     * piece is the caller's. */
    int (*read)(void *arg, void *session, struct loader_piece *piece);
    /* Hand back `piece` as soon as its read can be ended, now or later. NULL =
     * close() hands back the pieces. */
    void (*cancel)(void *arg, struct loader_piece *piece);
    /* End the session and hand back its pieces, now or when their reads end. A
     * read may take any time; its memory stays pinned. A source that was given
     * up is asked for nothing until it has handed back all pieces. */
    void (*close)(void *arg, void *session);
    /* The source is freed: the loader no longer uses `arg`. May be NULL. */
    void (*forget)(void *arg);
};

struct loader_config {
    struct loop *loop;                     /* borrowed; NULL = no timers */
    struct kv_store *store;                /* borrowed */
    const struct engine_kv_layout *layout; /* borrowed */
    struct engine *engine;         /* gets loaded layers early; NULL = none */
    const struct cost_model *cost; /* of the engine; NULL = learn its pace */
    double bytes_per_s;            /* throttle of all loads; 0 = none */
    int64_t (*now_us)(const struct loop *loop); /* loop_now_us() */
};

struct loader_ops {
    /* Called when blocks came, or a load is over: soon call loader_poke() and
     * form a step, but not inside this call. */
    void (*poke)(void *arg);
    /* Called, by loader_poke() only, when a read into blocks of `r` hangs and
     * there is no room for other blocks: drop the request. */
    void (*failed)(void *arg, struct request *r, const char *why);
};

/* A load as planned. */
struct load_request {
    enum load_mode mode;
    uint32_t n_sources; /* at most LOAD_SOURCES_MAX */
    struct {
        struct loader_source *source;
        uint32_t from_block; /* planned to send [from_block, to_block); */
        uint32_t to_block;   /* may be asked for more */
    } sources[LOAD_SOURCES_MAX];
};

/* Makes a loader. `config` is copied; its pointers, `ops` and `arg` are
 * borrowed. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct loader *loader_new(const struct loader_config *config,
                                        const struct loader_ops *ops,
                                        void *arg);

/* Frees it; no request may have a load, and every source must have handed back
 * its pieces. NULL is a no-op. */
void loader_free(struct loader *l);

/* Adds a source called `name` (copied, for logs). `ops` and `arg` are borrowed.
 * Returns it, owned by the loader, or NULL: LOADER_SOURCES_MAX are in use, or
 * no memory. */
[[nodiscard]] struct loader_source *
loader_add_source(struct loader *l, const char *name,
                  const struct loader_source_ops *ops, void *arg);

/* Returns the source called `name`, or NULL. O(sources). */
struct loader_source *loader_find_source(const struct loader *l,
                                         const char *name);

/* Holds `s`, for code that keeps a pointer to it. loader_add_source() may free
 * a source without a load and without a holder, when it needs its place. */
void loader_source_hold(struct loader_source *s);

/* Ends a loader_source_hold(). */
void loader_source_release(struct loader_source *s);

/* Returns the smoothed rate of the source, at most the throttle's rate; while
 * unknown the throttle's; 0 = unknown and no throttle. */
double loader_source_bytes_per_s(const struct loader_source *s);

/* Adds a load for the waiting prefill `r`: sets r->load.job, and
 * r->load.held_back if `r` must wait for the load. `plan` is copied. The load
 * begins with the first loader_poke() that finds room. Returns 0, or
 * -ENOMEM. */
[[nodiscard]] int loader_add(struct loader *l, struct request *r,
                             const struct load_request *plan);

/* Returns whether a load waits or is under way. */
bool loader_busy(const struct loader *l);

/* Begins the loads that can begin, and asks for the next pieces. take(take_arg,
 * r) gives `r` its blocks if there is room, like batch_take_ahead(). */
void loader_poke(struct loader *l, int (*take)(void *arg, struct request *r),
                 void *take_arg);

/* Does the work due by now: pieces that the throttle delayed, deadlines of
 * runs. A loader with an event loop calls it by itself. */
void loader_tick(struct loader *l);

/* Returns how many of the next `most` tokens of `r` to compute now, while the
 * rest of its load comes; 0 = wait (batch_ops.chunk). core/step/meeting chooses
 * where a chunk ends. Blocks in the chunk are no longer loaded. */
uint32_t loader_chunk(struct loader *l, struct request *r, uint32_t most);

/* Notes that a step failed because it waited at r's gate: hold `r` back until
 * all of its layers came. */
void loader_stalled(struct loader *l, struct request *r);

/* Drops the load of `r`, if it has one. Blocks with a read under way stay
 * pinned until it ends. */
void loader_forget(struct request *r);

/* Learns the engine's pace from a step of segments[n] that took step_us. */
void loader_learn(struct loader *l, const struct engine_segment *segments,
                  uint32_t n, int64_t step_us);

/* Called by a source: it can send blocks [0, n_blocks) in this run. */
void loader_opened(struct load_run *run, uint32_t n_blocks);

/* Called by a source to end this run; `why` is logged unless NULL. The source
 * hands back its pieces. The session has ended: the loader does not close
 * it. */
void loader_run_failed(struct load_run *run, const char *why);

/* Called by a source to hand back `piece`. rc is 0 if its bytes are in place
 * and verified; else a negative errno, and the run ends. */
void loader_done(struct loader_piece *piece, int rc);

#endif
