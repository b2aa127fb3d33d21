/* What the loader's tests share: a worker without sockets and threads, on an
 * invented clock, and sources whose pieces come when the test says so. */
#ifndef TESTS_UNIT_LOAD_RIG_H
#define TESTS_UNIT_LOAD_RIG_H

#include "workers/load/loader.h"
#include "workers/step/batch.h"

/* Prompts whose KV a source has. */
struct source_prompt {
    const uint32_t *tokens; /* borrowed */
    uint32_t n_blocks;
    uint8_t *kv; /* (n_blocks, block_bytes), owned; NULL: no data */
};

#define SOURCE_PROMPTS_MAX 16

/* What one load reads from a source. */
struct source_session {
    struct load_run *run; /* NULL: free */
    const struct source_prompt *prompt;
    uint32_t n_blocks;
    bool said; /* loader_opened() was called */
};

/* A source. Plain data; the test turns its knobs at any time. */
struct rig_source {
    struct load_rig *rig;
    struct loader_source *source;
    struct loader_source_ops ops;
    struct source_prompt prompts[SOURCE_PROMPTS_MAX];
    uint32_t n_prompts;
    struct loader_piece_list pieces;
    uint32_t n_pieces;
    struct source_session sessions[32];
    bool lingers;     /* as a disk: what was asked for cannot be taken back */
    bool late_open;   /* opened by source_open_all() */
    bool hangs;       /* nothing comes by itself */
    bool refuses;     /* open() fails */
    uint32_t fail_in; /* this many pieces from now one is bad; 0: none */
    double us_per_byte;
    int64_t busy_until_us; /* of the invented link */
    uint32_t limit_blocks; /* it has no more than these; 0: all */
    bool unused;           /* new requests do not name it */
    uint64_t n_read;
};

#define RIG_ANSWERS 16

/* What became of the request of that id. */
struct rig_answer {
    uint64_t id;
    uint32_t n;
    uint32_t tokens[16];
    uint32_t n_local, n_fetched, n_disk; /* blocks */
    bool no_room; /* for what it was to compute instead of a read that hangs */
};

struct load_rig {
    struct kv_store *store;
    struct batch *batch;
    struct loader *loader;
    struct engine *engine; /* NULL: the test answers segments itself */
    struct engine_kv_layout layout;
    struct rig_source sources[3];
    uint32_t n_sources;
    uint64_t next_id;
    bool poked;
    struct engine_segment *segments;
    uint32_t n; /* segments of the step under way */
    uint32_t n_done;
    uint32_t n_failed;
    int64_t prefilled_us;                   /* when the last prefill ended */
    struct request last;                    /* a copy of its numbers then */
    struct rig_answer answers[RIG_ANSWERS]; /* by id */
    struct request *live[RIG_ANSWERS];      /* by id */
    struct loader_source *disk;             /* named by new requests, if any */
    uint32_t n_gated;                       /* steps that waited for layers */
    uint32_t n_stalled;
};

/* The invented clock. */
extern int64_t rig_now_us;

struct load_rig_config {
    struct engine *engine;          /* borrowed; or NULL and */
    struct engine_kv_layout layout; /* this */
    uint32_t blocks;
    uint32_t max_prefills;
    double bytes_per_s; /* throttle */
    const struct cost_model *cost;
};

void load_rig_init(struct load_rig *rig, const struct load_rig_config *c);

/* Reads under way end, and links get free. */
void load_rig_settle(struct load_rig *rig);

/* The store holds nothing any more. */
void load_rig_forget(struct load_rig *rig);

/* All requests must be gone. Checks the store: nothing is pinned. */
void load_rig_fini(struct load_rig *rig);

/* One more source, called by its origin. */
struct rig_source *load_rig_source(struct load_rig *rig,
                                   enum block_origin origin);

/* Give the source these blocks. kv is taken; NULL: their bytes do not matter.
 */
void source_add(struct rig_source *s, const uint32_t *tokens, uint32_t n_blocks,
                uint8_t *kv);

/* Forget all prompts. */
void source_clear(struct rig_source *s);

/* A source with late_open says what it has. */
void source_open_all(struct rig_source *s);

/* Hand back its piece number i, good or (fail_in) bad. */
void source_deliver(struct rig_source *s, uint32_t i);

/* End all its sessions as when a connection is lost. */
void source_lose(struct rig_source *s);

/* Time at which its first piece is there, by its rate; INT64_MAX: none. */
int64_t source_next_us(const struct rig_source *s);

/* Queue a prompt; max_tokens, at most 16, are answered here. mode and the rig's
 * sources, each planned for all blocks. */
struct request *load_rig_request(struct load_rig *rig, const uint32_t *tokens,
                                 uint32_t n_tokens, uint32_t max_tokens,
                                 enum load_mode mode);

/* Drop the request of that id, if it is still there, as a CANCEL does. */
void load_rig_cancel(struct load_rig *rig, uint64_t id);

/* The loader goes on. Do so after everything that may poke. */
void load_rig_poke(struct load_rig *rig);

/* Form a step; returns its segments, 0: nothing to do. */
uint32_t load_rig_form(struct load_rig *rig);

/* The step is over. */
void load_rig_complete(struct load_rig *rig, int rc);

/* Without an engine: run until all requests are done, by time: a step takes
 * step_us(segments), pieces come at their source's rate. Returns false if
 * nothing goes on. */
bool load_rig_run(struct load_rig *rig,
                  int64_t (*step_us)(const struct engine_segment *s,
                                     uint32_t n));

#endif
