/*
 * Load plans: which cached blocks of a prompt to load, and which to compute
 * meanwhile, so that both end at the same time. This is the bidirectional
 * loading of the Cake paper ("Compute Or Load KV Cache? Why Not Both?", section
 * 4), with several sources, layerwise loading, and a choice of the best mode.
 *
 *      0        resident      split                  cached         n_tokens
 *      |  there   | computed ->|<- loaded from the end | computed at last |
 *
 * Computing b - a tokens behind a costs cost_model_prefill_us(b - a, a), as
 * one run however it is chunked: the polynomial telescopes.
 */
#ifndef CONDUCTOR_CORE_PLAN_LOAD_PLAN_H
#define CONDUCTOR_CORE_PLAN_LOAD_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "predictor/cost_model.h"

/* Later than every time that can be reached. */
#define LOAD_PLAN_NEVER_US (INT64_MAX / 4)

#define LOAD_PLAN_SOURCES_MAX 8
/* A piece ends where another source's run begins, where its source can send no
 * more (each once per source), and at the end. */
#define LOAD_PLAN_PIECES_MAX (2 * LOAD_PLAN_SOURCES_MAX + 1)

enum load_mode {
    LOAD_MODE_COMPUTE,   /* nothing is loaded */
    LOAD_MODE_LOAD,      /* all cached blocks are loaded, then the rest is
                            computed */
    LOAD_MODE_BOTH,      /* computed from the front, loaded from the end */
    LOAD_MODE_LAYERWISE, /* all cached blocks are loaded layer by layer, while
                            the rest is computed in the layers that have come */
};
#define LOAD_MODES 4
#define LOAD_MODE_BIT(mode) (1u << (mode))
#define LOAD_MODE_ALL ((1u << LOAD_MODES) - 1)

/* A source of blocks, one tier of a holder; it sends them one by one. */
struct load_source {
    uint32_t id;         /* the caller's own */
    uint32_t from_block; /* its run of blocks: [from_block, to_block) */
    uint32_t to_block;
    double bytes_per_s;     /* above 0 */
    int64_t free_at_us;     /* absolute: when it can begin */
    int64_t block_extra_us; /* per block on top of its bytes, at least 0 */
    bool by_layer;          /* it can send all blocks layer by layer */
};

struct load_plan_request {
    const struct cost_model *cost; /* borrowed */
    double cost_ratio;             /* correction of the instance, above 0 */
    int64_t n_tokens;              /* of the prompt, at least 1 */
    uint32_t block_tokens;         /* at least 1 */
    int64_t block_bytes;           /* at least 1 */
    uint32_t layers;               /* of the model; 0 = no layerwise mode */
    uint32_t resident_blocks;      /* leading blocks that need neither loading
                                      nor computing */
    uint32_t usable_blocks;        /* most blocks that may be reused */
    uint32_t step_tokens;          /* splits are multiples of it (rounded up to
                                      whole blocks) behind the resident blocks;
                                      0 = at any block */
    int64_t now_us;
    int64_t compute_free_us;           /* when the engine can begin with it */
    const struct load_source *sources; /* (n_sources), borrowed */
    size_t n_sources;                  /* at most LOAD_PLAN_SOURCES_MAX */
    unsigned modes; /* LOAD_MODE_BIT()s; computing is always possible */
};

/* Blocks that one source sends without a gap. */
struct load_piece {
    uint32_t source; /* its index in the request */
    uint32_t from_block;
    uint32_t to_block;
};

/* The part of a load that one source sends; all 0 = none. */
struct load_share {
    uint32_t n_blocks;
    int64_t start_us;
    int64_t end_us;
};

/* Plain data. Times are absolute and at most LOAD_PLAN_NEVER_US. */
struct load_plan {
    enum load_mode mode;
    uint32_t split_block;   /* [resident, split) is computed first */
    uint32_t cached_blocks; /* [split, cached) is loaded; = split if empty */
    uint32_t n_pieces;
    int64_t finish_us;   /* the prompt is done */
    int64_t load_end_us; /* the last block is there; now if none is loaded */
    int64_t compute_us;  /* work of the engine, before and after the load */
    /* Cover [split, cached), ascending; each source sends its pieces from the
     * highest block down. */
    struct load_piece pieces[LOAD_PLAN_PIECES_MAX];
    struct load_share of_source[LOAD_PLAN_SOURCES_MAX];
};

/*
 * Makes the plan that finishes first, of all allowed modes, splits and
 * assignments of blocks to sources:
 *   compute    finish = free + C(resident, n)
 *   load       finish = max(free, load_end) + C(cached, n)
 *   both       finish = max(free + C(resident, split), load_end) + C(cached, n)
 *   layerwise  with b = C(cached, n) / layers and, of each source, its start s
 *              and a = its load / layers:
 *              finish = max(free + layers b, s + a + layers b,
 *                           s + layers a + b)
 * where cached is the end of one of the sources' runs. Ties go to fewer
 * computed tokens, then to the lower mode; blocks that several sources can
 * send in time to the one whose run ends first, then to the lower index.
 *   request  borrowed; runs are cut to [resident, usable).
 *   plan     written in full, or untouched on error.
 * Returns 0 or -EINVAL: a value out of its range.
 * The answer is exact as long as the cost rises with the tokens computed.
 * Cost: with c distinct ends of s sources and n splits about
 * O(c s (log n + log microseconds)); no allocation.
 */
[[nodiscard]] int load_plan_make(const struct load_plan_request *request,
                                 struct load_plan *plan);

/* Returns "compute", "load", "both" or "layerwise"; "?" for another number. */
const char *load_mode_name(enum load_mode mode);

#endif
