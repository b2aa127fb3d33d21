/* Shared by the files of the loader; private to them. */
#ifndef WORKERS_LOAD_INTERNAL_H
#define WORKERS_LOAD_INTERNAL_H

#include "base/loop/loop.h"
#include "conductor/core/step/meeting.h"
#include "workers/load/loader.h"
#include "workers/load/rate.h"
#include "workers/load/step_pace.h"
#include "workers/load/units.h"

#define LOADER_NAME_MAX 300

_Static_assert(LOAD_SOURCES_MAX <= MEETING_TAILS_MAX, "a tail for each source");

struct loader_source {
    TAILQ_ENTRY(loader_source) link;
    struct loader *loader;
    char name[LOADER_NAME_MAX];
    struct loader_source_ops ops; /* the source's; some are the throttle's */
    const struct loader_source_ops *behind; /* the source's, borrowed */
    void *arg;
    uint32_t n_runs;       /* in loads that are not over */
    uint32_t holds;        /* loader_source_hold() */
    uint32_t in_flight;    /* pieces */
    uint32_t n_hung;       /* pieces kept by it when a run was given up */
    bool silent;           /* given up for silence; no piece came since */
    struct load_rate pace; /* short-term, for where load and computing meet */
    struct load_rate rate; /* long-term, for reports */
};

/* One source's part of one load. */
struct load_run {
    struct load *load;
    struct loader_source *source;
    void *session; /* NULL = none, or ended */
    bool open;     /* `held` is known, or the run has ended */
    bool ended;    /* ask its source for nothing more */
    uint32_t from; /* by plan it sends blocks [from, to) */
    uint32_t to;
    uint32_t held;      /* leading blocks that it can send */
    uint32_t in_flight; /* pieces */
    int64_t until_us;   /* give up at this time, if waited for; 0 = not asked
                           for a piece yet */
    LIST_HEAD(, loader_piece) pieces;
};

struct load {
    TAILQ_ENTRY(load) link;
    struct loader *loader;
    struct request *r;
    enum load_mode mode;
    bool begun;   /* the request has its blocks; sources were opened */
    bool spoilt;  /* layerwise: cannot be completed */
    bool over;    /* load_end() was called */
    bool stalled; /* layerwise: a step waited in vain, or some blocks will not
                     come; others are used once all their layers came */
    uint32_t n_runs;
    struct load_run runs[LOAD_SOURCES_MAX];
    uint32_t claimed; /* the engine computes all blocks before this one */
    uint32_t end;     /* layerwise: load the blocks before it; 0 = unknown */
    struct load_units units;
    int64_t asked_us; /* when the first piece was asked for; 0 = not yet */
    int64_t last_us;  /* when it began, or its last piece came */
};

/* The link that all sources share if they are throttled. */
struct throttle {
    double bytes_per_s; /* 0 = no throttle */
    int64_t free_us;    /* when the link is free again */
    struct loader_piece_list waiting;
};

struct loader {
    struct loader_config config;
    const struct loader_ops *ops;
    void *arg;
    struct step_pace pace;
    TAILQ_HEAD(, loader_source) sources;
    uint32_t n_sources;
    TAILQ_HEAD(load_list, load) loads; /* oldest first */
    struct throttle throttle;
    int64_t wake_us; /* when loader_tick() is due; INT64_MAX = never */
    struct loop_timer timer;
};

static inline int64_t loader_now_us(const struct loader *l)
{
    return l->config.now_us(l->config.loop);
}

/* --- deadline.c --- */

/* Notes that `run` was asked for a piece: sets its deadline unless it has
 * one. */
void load_run_asked(struct load_run *run);

/* Notes that `run` brought `p`: moves its deadline. */
void load_run_came(struct load_run *run, const struct loader_piece *p);

/* Returns the deadline (us) of `run`, after which it is given up. */
int64_t load_run_until_us(const struct load_run *run);

/* Returns when (us) its source will count as silent without a further piece;
 * INT64_MAX = never. */
int64_t load_run_silent_us(const struct load_run *run);

/* Has loader_tick() called at when_us or earlier. */
void loader_wake_at(struct loader *l, int64_t when_us);

/* --- throttle.c --- */

/* Throttle the new source `s`. */
void throttle_wrap(struct loader_source *s);

/* Asks the sources for the pieces that are due, and sets the next wake-up. */
void throttle_tick(struct loader *l);

/* --- load.c --- */

/* Ends and frees the load: the request goes on without it. */
void load_end(struct load *load);

/* Ends the load if no block can come any more. Returns whether it ended; `load`
 * is then freed. */
bool load_check(struct load *load);

/* Returns one past the last block that a source has or may have. */
uint32_t load_last(const struct load *load);

/* Returns the first block that is neither computed nor claimed by the engine.
 */
uint32_t load_first_wanted(const struct load *load);

/* Returns whether block b is still missing, and in flight or available. */
bool load_coming(const struct load *load, uint32_t b);

/* Ends the run: cancels its pieces and closes its session. Pieces that the
 * source cannot hand back at once stay in the run's list. */
void load_close_run(struct load_run *run);

/* --- pieces.c --- */

/* Asks for the next pieces of all loads, the oldest load first. */
void loader_pump(struct loader *l);

/* --- answers.c --- */

/* Asks the source of `run` to hand back its pieces. */
void load_cancel_pieces(struct load_run *run);

/* Takes `p` out of its run, which no longer waits for it. */
void load_orphan(struct loader_piece *p);

/* Takes `p`, which did not come, out of its run: another source sends the
 * block, or the engine computes it. */
void load_miss(struct loader_piece *p, int rc);

/* --- late.c --- */

/* Gives up runs that missed their deadline, and sets a wake-up for the next
 * deadline. Returns whether the request was dropped; `load` is then freed. */
bool load_give_up(struct loader *l, struct load *load);

/* --- meet.c --- */

/* Returns the time (us) in which `s` sends `bytes`; 0 = not known. */
double load_piece_us(const struct loader_source *s, uint64_t bytes);

/* Gives the request another block in place of block b, into which a read is
 * under way. The bytes read are not used. Returns 0, or -ENOSPC. */
[[nodiscard]] int load_replace(struct load *load, uint32_t b);

/* Layerwise: let the request into a step once its layers will come in time. */
void load_maybe_gate(struct load *load);

#endif
