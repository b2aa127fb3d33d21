/* The loader fills the blocks of waiting and running prefills from peers and
 * the disk, from the end of the cached prefix backward, while the engine
 * computes from the front. The two stop where they meet ("Compute Or Load KV
 * Cache? Why Not Both?", sections 3 and 4). Or it loads layer by layer, while
 * the rest of the prompt is computed in the layers that have come.
 *
 *      0     resident   position ->        <- loaded        end    n_tokens
 *      |  held  | computed |  neither yet  |   loaded blocks  | suffix |
 *
 * Blocks come from sources: peers, or the worker's own disk. A source compares
 * the tokens of the prompt's leading blocks from the first on, and says how
 * many it can send. The loader then asks each source for piece after piece, the
 * next missing one from the end backward. So several sources share the work by
 * their speed, and a source that fails leaves the rest to the others, or to the
 * engine.
 *
 * Invariants:
 *   a block is written by the engine or by one piece, never by both: if the
 * engine must compute it while a piece is on its way, it gets another block
 *   a piece pins the block that it is read into until its source is done with
 * it, even when nobody waits for it any more
 *   request.load.origin[i] is set once all layers of block i were verified
 *
 * All on the loop's thread.
 */
#ifndef WORKERS_LOAD_LOADER_H
#define WORKERS_LOAD_LOADER_H

#include "conductor/core/plan/load_plan.h"
#include "workers/engine/engine.h"
#include "workers/service/request.h"

#define LOAD_SOURCES_MAX 6 /* of one load: peers, own disk, shared store */
#define LOADER_SOURCES_MAX 64
/* What one source is asked for at once. */
#define LOADER_PIECES_MAX 32u

struct cost_model;
struct event_base;
struct load;
struct load_run;
struct loader;
struct loader_source;

/* A whole block, or one layer of it, on its way. Made by the loader; a source
 * may use `link`, `own` and `rc` while it has it. */
struct loader_piece {
    TAILQ_ENTRY(loader_piece) link;
    void *own;
    void *session;        /* that it is read in; it may be closed */
    struct load_run *run; /* NULL: nobody waits for it any more */
    struct loader_source *source;
    uint32_t block;
    uint32_t from_layer;
    uint32_t n_layers;
    void *data;     /* where layer from_layer begins */
    uint64_t bytes; /* of its layers */
    uint32_t id;    /* of the block, with a pin of the piece */
    int rc;

    LIST_ENTRY(loader_piece) of_run; /* private, as is all below */
    uint32_t unit;
    bool hung;      /* its source was given up, and has it still */
    int64_t due_us; /* it waits in the throttle until then; 0: it does not */
};

TAILQ_HEAD(loader_piece_list, loader_piece);

/* A way to get blocks. */
struct loader_source_ops {
    enum block_origin origin;
    /* Find out how many leading blocks of r's prompt, up to to_block, can be
     * read; say so with loader_opened(), from in here or later. Returns the
     * session, or NULL: it cannot be asked. */
    void *(*open)(void *arg, struct load_run *run, const struct request *r,
                  uint32_t to_block);
    /* Read `piece` into its memory, verify it, and hand it back with
     * loader_done(), not from in here. 0, or a negative errno: it will not. */
    int (*read)(void *arg, void *session, struct loader_piece *piece);
    /* Hand back `piece` as soon as its read can be ended, from in here or
     * later. NULL: close() sees to it. */
    void (*cancel)(void *arg, struct loader_piece *piece);
    /* The session ends: hand back its pieces, at once or when their reads end.
     * A read may take any time; its memory stays. Of a source that was given
     * up, and has pieces still, nothing is asked until it hands them back. */
    void (*close)(void *arg, void *session);
    /* The source is gone, and with it the use of `arg`. May be NULL. */
    void (*forget)(void *arg);
};

struct loader_config {
    struct event_base *base;               /* borrowed; NULL: no timers */
    struct kv_store *store;                /* borrowed */
    const struct engine_kv_layout *layout; /* borrowed */
    struct engine *engine;                 /* told of what comes; may be NULL */
    const struct cost_model *cost;         /* of the engine; NULL: learnt */
    double bytes_per_s;                    /* throttle of all loads; 0: none */
    int64_t (*now_us)(void);               /* the clock */
};

struct loader_ops {
    /* Blocks of waiting or running requests came, or a load is over: look for a
     * step again. Not called from inside the loader's functions. */
    void (*poke)(void *arg);
    /* A read into blocks of `r` hangs, and there is no room for other blocks:
     * drop the request. Called from loader_poke() only. */
    void (*failed)(void *arg, struct request *r, const char *why);
};

/* What is known of a load when it is asked for. */
struct load_request {
    enum load_mode mode;
    uint32_t n_sources; /* at most LOAD_SOURCES_MAX */
    struct {
        struct loader_source *source;
        uint32_t from_block; /* what it should send, by plan, */
        uint32_t to_block;   /* half open; it may send more */
    } sources[LOAD_SOURCES_MAX];
};

/* Make a loader. `config` is copied, what it points to and `ops` and `arg` are
 * borrowed. Returns it owned, or NULL: out of memory. */
[[nodiscard]] struct loader *loader_new(const struct loader_config *config,
                                        const struct loader_ops *ops,
                                        void *arg);

/* Free it; no request may have a load, and every source must have handed back
 * its pieces. NULL is a no-op. */
void loader_free(struct loader *l);

/* Add a source called `name` (copied, for logs). `ops` and `arg` are borrowed.
 * Returns it, owned by the loader, or NULL: LOADER_SOURCES_MAX are in use, or
 * no memory. */
[[nodiscard]] struct loader_source *
loader_add_source(struct loader *l, const char *name,
                  const struct loader_source_ops *ops, void *arg);

/* The source of that name, or NULL. O(sources). */
struct loader_source *loader_find_source(const struct loader *l,
                                         const char *name);

/* A source lives until it is in no load, is not held, and loader_add_source()
 * needs its place. Code that keeps a pointer to one holds it. */
void loader_source_hold(struct loader_source *s);

/* Ends a loader_source_hold(). */
void loader_source_release(struct loader_source *s);

/* Smoothed rate at which the source was seen to send, at most that of the
 * throttle, which holds also until it is known; 0: not known yet. */
double loader_source_bytes_per_s(const struct loader_source *s);

/* Add a load for the waiting prefill `r`: sets r->load.job, and
 * r->load.held_back if it must wait for the load. `plan` is copied. It begins
 * with the first loader_poke() that finds room. 0, -ENOMEM. */
[[nodiscard]] int loader_add(struct loader *l, struct request *r,
                             const struct load_request *plan);

/* Whether a request waits for a load, or a load is under way. */
bool loader_busy(const struct loader *l);

/* Begin the loads that can begin, and ask for the next pieces. `take` gives a
 * request its blocks if it may have them, as batch_take_ahead(); called with
 * take_arg.
 */
void loader_poke(struct loader *l, int (*take)(void *arg, struct request *r),
                 void *take_arg);

/* What was to be done by now: pieces that a throttle held back, runs that take
 * too long. A loader with an event base sees to it itself. */
void loader_tick(struct loader *l);

/* batch_ops.chunk: how many of the next `most` tokens of `r` to compute now,
 * while the rest of its load comes. They end at the end of a block if the load
 * is then met; the last block that would come in time is not computed. Computed
 * blocks are no longer loaded. */
uint32_t loader_chunk(struct loader *l, struct request *r, uint32_t most);

/* The step that waited at r's gate failed. */
void loader_stalled(struct loader *l, struct request *r);

/* Drop the load of `r`, if it has one. Blocks into which a read is under way
 * stay pinned until it ends. */
void loader_forget(struct request *r);

/* A step of these n segments took step_us: learn from it. */
void loader_learn(struct loader *l, const struct engine_segment *segments,
                  uint32_t n, int64_t step_us);

/* Of a source: blocks [0, n_blocks) can be read in that run's session. */
void loader_opened(struct load_run *run, uint32_t n_blocks);

/* Of a source: nothing more comes in this run; `why` is logged unless NULL. The
 * source hands back its pieces; the session is over, and the loader does not
 * close it. */
void loader_run_failed(struct load_run *run, const char *why);

/* Of a source: the read of `piece` is over. rc 0: its bytes are in their place
 * and verified; else why not, and the run ends. */
void loader_done(struct loader_piece *piece, int rc);

#endif
