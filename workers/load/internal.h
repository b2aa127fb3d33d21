/* What the files of the loader share. Nobody else includes this. */
#ifndef WORKERS_LOAD_INTERNAL_H
#define WORKERS_LOAD_INTERNAL_H

#include "conductor/core/step/meeting.h"
#include "workers/load/loader.h"
#include "workers/load/rate.h"
#include "workers/load/step_pace.h"
#include "workers/load/units.h"

#define LOADER_NAME_MAX 300

struct event;

_Static_assert(LOAD_SOURCES_MAX <= MEETING_TAILS_MAX, "a tail for each source");

struct loader_source {
    TAILQ_ENTRY(loader_source) link;
    struct loader *loader;
    char name[LOADER_NAME_MAX];
    struct loader_source_ops ops; /* its own, or in part the throttle's */
    const struct loader_source_ops *behind; /* its own */
    void *arg;
    uint32_t n_runs;       /* open ones */
    uint32_t holds;        /* loader_source_hold() */
    uint32_t in_flight;    /* pieces */
    uint32_t n_hung;       /* of these, those that it was given up for */
    bool silent;           /* it was, until it sends or a load begins with it */
    struct load_rate pace; /* short-term, for where load and computing meet */
    struct load_rate rate; /* long-term, for reports */
};

/* What one source does for one load. */
struct load_run {
    struct load *load;
    struct loader_source *source;
    void *session; /* NULL: none, or over */
    bool open;     /* `held` is known */
    bool ended;    /* it is asked for nothing more */
    uint32_t from; /* what it was planned to send */
    uint32_t to;   /* half open */
    uint32_t held; /* leading blocks that it can send */
    uint32_t in_flight;
    int64_t until_us; /* it is given up then, if it is waited for; 0: not yet
                         asked for anything */
    LIST_HEAD(, loader_piece) pieces;
};

struct load {
    TAILQ_ENTRY(load) link;
    struct loader *loader;
    struct request *r;
    enum load_mode mode;
    bool begun;   /* it has its blocks, and sources were asked */
    bool spoilt;  /* layerwise: it cannot be completed */
    bool over;    /* in load_end() */
    bool stalled; /* layerwise: a step waited in vain, or not all blocks will
                     come; what comes is used when all of it is there */
    uint32_t n_runs;
    struct load_run runs[LOAD_SOURCES_MAX];
    uint32_t claimed; /* blocks in front are the engine's */
    uint32_t end;     /* layerwise: of what is loaded; 0: not known yet */
    struct load_units units;
    int64_t asked_us; /* first piece; 0: none yet */
    int64_t last_us;  /* begin, or last piece */
};

/* The link of all sources, if it has a rate. */
struct throttle {
    double bytes_per_s; /* 0: it does not exist */
    int64_t free_us;    /* it is free again */
    struct loader_piece_list waiting;
};

struct loader {
    struct loader_config config;
    const struct loader_ops *ops;
    void *arg;
    struct step_pace pace;
    TAILQ_HEAD(, loader_source) sources;
    uint32_t n_sources;
    TAILQ_HEAD(load_list, load) loads; /* the oldest first */
    struct throttle throttle;
    int64_t wake_us; /* look again then; INT64_MAX: no need */
    struct event *timer;
};

/* --- deadline.c --- */

/* `run` was asked for a piece; it brought `p`. */
void load_run_asked(struct load_run *run);
void load_run_came(struct load_run *run, const struct loader_piece *p);

/* Nobody waits for `run` any longer than this. */
int64_t load_run_until_us(const struct load_run *run);

/* Nor for what its source has under way, if nothing comes from it until then;
 * INT64_MAX: that is no reason. */
int64_t load_run_silent_us(const struct load_run *run);

/* Have loader_tick() called at when_us, or before. */
void loader_wake_at(struct loader *l, int64_t when_us);

/* --- throttle.c --- */

/* Make `s`, a new source, one that is throttled. */
void throttle_wrap(struct loader_source *s);

/* Ask for the pieces that are due, and see to the next time. */
void throttle_tick(struct loader *l);

/* --- load.c --- */

/* Close the load: the request goes on without it. */
void load_end(struct load *load);

/* End the load if nothing useful can come any more. Returns whether it ended;
 * `load` is then gone. */
bool load_check(struct load *load);

/* One past the last block that sources have or may have. */
uint32_t load_last(const struct load *load);

/* The first block that the engine does not have. */
uint32_t load_first_wanted(const struct load *load);

/* Whether block b, which has not come, is on its way or can be asked for. */
bool load_coming(const struct load *load, uint32_t b);

/* Ask for no more, take back what was asked for, and end the session. Pieces
 * that the source still has stay in the run's list. */
void load_close_run(struct load_run *run);

/* --- pieces.c --- */

/* Ask for the next pieces of all loads, the oldest load first. */
void loader_pump(struct loader *l);

/* --- answers.c --- */

/* Take back from the source of `run` what it can hand back at once. */
void load_cancel_pieces(struct load_run *run);

/* Nobody waits for `p` any more. */
void load_orphan(struct loader_piece *p);

/* Take `p`, which did not come, away from its run: the block is to come from
 * somewhere else, or to be computed. */
void load_miss(struct loader_piece *p, int rc);

/* --- late.c --- */

/* Give up runs that take too long, and look again when others may do so.
 * Returns whether the request was dropped; `load` is then gone. */
bool load_give_up(struct loader *l, struct load *load);

/* --- meet.c --- */

/* What a piece of so many bytes takes at `s`; 0: not known. */
double load_piece_us(const struct loader_source *s, uint64_t bytes);

/* Put another block in the place of block b, into which a read is under way;
 * what the read brings is not used. 0, or -ENOSPC. */
[[nodiscard]] int load_replace(struct load *load, uint32_t b);

/* Layerwise: let the request go once its layers will come in time. */
void load_maybe_gate(struct load *load);

#endif
