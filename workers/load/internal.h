/* What the files of the loader share. Nobody else includes this. */
#ifndef WORKERS_LOAD_INTERNAL_H
#define WORKERS_LOAD_INTERNAL_H

#include "conductor/core/step/meeting.h"
#include "workers/load/loader.h"
#include "workers/load/rate.h"
#include "workers/load/step_pace.h"

#define LOADER_NAME_MAX 300

struct event;

_Static_assert(LOAD_SOURCES_MAX <= MEETING_TAILS_MAX, "a tail for each source");

struct loader_source {
    TAILQ_ENTRY(loader_source) link;
    struct loader *loader;
    char name[LOADER_NAME_MAX];
    const struct loader_source_ops *ops;
    void *arg;
    uint32_t n_runs;       /* open ones */
    uint32_t holds;        /* loader_source_hold() */
    uint32_t in_flight;    /* pieces */
    uint32_t n_hung;       /* of these, those that nobody waits for any more */
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
    LIST_HEAD(, load_part) parts;
};

/* A piece, and what only the loader knows of it. */
struct load_part {
    struct loader_piece piece;
    LIST_ENTRY(load_part) of_run;
    bool parked; /* there, but not due */
    bool hung;   /* counted as such by its source */
};

/* One block of a prompt: how many of its layers were asked for, are on their
 * way, are there. */
struct load_block {
    uint16_t asked;
    uint16_t flying;
    uint16_t got;
};

struct load {
    TAILQ_ENTRY(load) link;
    struct loader *loader;
    struct request *r;
    enum load_mode mode;
    bool begun;   /* it has its blocks, and sources were asked */
    bool spoilt;  /* layerwise: it cannot be completed */
    bool late;    /* nothing more is asked for */
    bool stalled; /* layerwise: a step waited in vain, or not all blocks will
                     come; what comes is used when all of it is there */
    uint32_t n_runs;
    struct load_run runs[LOAD_SOURCES_MAX];
    uint32_t first;   /* block that was not resident */
    uint32_t claimed; /* blocks in front are the engine's */
    uint32_t end;     /* layerwise: of what is loaded; 0: not known yet */
    struct load_block *blocks; /* (n_reusable), owned */
    uint32_t *layer_got;       /* (layers), owned: blocks that have it */
    int64_t asked_us;          /* first piece; 0: none yet */
    int64_t last_us;           /* begin, or last piece */
};

struct loader {
    struct loader_config config;
    const struct loader_ops *ops;
    void *arg;
    struct step_pace pace;
    TAILQ_HEAD(, loader_source) sources;
    uint32_t n_sources;
    TAILQ_HEAD(load_list, load) loads; /* the oldest first */
    struct loader_piece_list parked;   /* by due_us */
    uint32_t in_flight;
    int64_t link_free_us; /* of the throttle */
    int64_t wake_us;      /* look again then; INT64_MAX: no need */
    struct event *timer;
};

/* --- load.c --- */

/* Close the load: the request goes on without it. */
void load_end(struct load *load);

/* End the load if nothing useful can come any more. Returns whether it ended;
 * `load` is then gone. */
bool load_check(struct load *load);

/* One past the last block that sources have or may have. */
uint32_t load_last(const struct load *load);

/* Whether block b, which has not come, is on its way or can be asked for. */
bool load_coming(const struct load *load, uint32_t b);

/* --- pieces.c --- */

/* Ask for the next pieces of all loads, the oldest load first. */
void loader_pump(struct loader *l);

/* --- answers.c --- */

/* Take the pieces of `run` away from it. Parked ones end. */
void loader_orphan(struct loader *l, struct load_run *run);

/* End a parked piece, which is not to be used. */
void loader_unpark(struct loader *l, struct load_part *part, int rc);

/* Take `part`, which did not come (its rc says why), away from its run: the
 * block is to come from somewhere else, or to be computed. */
void loader_miss(struct load_part *part);

/* Have loader_tick() called at when_us, or before. */
void loader_wake_at(struct loader *l, int64_t when_us);

/* --- late.c --- */

/* Stop waiting for pieces that take too long, and look again when others may do
 * so. Returns whether the request was dropped; `load` is then gone. */
bool load_give_up(struct loader *l, struct load *load);

/* The time after which nobody waits for a piece that its source has not handed
 * back.
 */
int64_t loader_hung_us(const struct loader_piece *p);

/* --- meet.c --- */

/* Put another block in the place of block b, into which a read is under way;
 * what the read brings is not used. 0, or -ENOSPC. */
[[nodiscard]] int load_replace(struct load *load, uint32_t b);

/* Layerwise: let the request go once its layers will come in time. */
void load_maybe_gate(struct load *load);

#endif
