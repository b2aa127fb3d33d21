/* Shared by the engines and engine.c; private to them. */
#ifndef WORKERS_ENGINE_IMPL_H
#define WORKERS_ENGINE_IMPL_H

#include <errno.h>

#include "workers/engine/engine.h"

/* The parts of a step of an engine whose times are made up. stage NULL = all
 * layers. */
struct engine_simulation {
    /* Returns the time of a step in us. */
    int64_t (*step_us)(const struct engine *e,
                       const struct engine_segment *segments, size_t n,
                       const struct engine_stage *stage);
    /* Writes the rows of one layer. */
    void (*layer)(const struct engine *e, const struct engine_segment *segments,
                  size_t n, const struct engine_stage *stage, uint32_t layer);
    /* Writes the tokens and activations, after the last layer. */
    void (*end)(const struct engine *e, struct engine_segment *segments,
                size_t n, const struct engine_stage *stage);
};

/* One kind of engine. */
struct engine_ops {
    const char *kind;
    const struct engine_simulation *simulation; /* NULL = it computes */
    enum model_element element;
    /* Adds the memory that create() would take to *needs; NULL = next to
     * nothing. */
    void (*needs)(const struct engine_config *config,
                  struct engine_needs *needs);
    /* Builds the engine. `config` has all defaults filled in and has passed the
     * checks common to all kinds; create() copies `layout` and may lower its
     * window_tokens. Otherwise as engine_new(). */
    struct engine *(*create)(const struct engine_config *config,
                             struct engine_kv_layout *layout, char *err,
                             size_t err_bytes);
    void (*destroy)(struct engine *e);
    /* As engine_step(); the segments keep their bounds, `ops` is not NULL. */
    int (*step)(struct engine *e, struct engine_segment *segments, size_t n,
                const struct engine_step_ops *ops, void *arg,
                const atomic_bool *abort);
    /* As engine_step_stage(), checked as in step(). NULL = computes no
     * stages. */
    int (*stage)(struct engine *e, struct engine_segment *s,
                 const struct engine_stage *stage,
                 const struct engine_step_ops *ops, void *arg,
                 const atomic_bool *abort);
    /* As the functions of engine.h; all NULL if it computes in host
     * memory. */
    void *(*kv_alloc)(struct engine *e, size_t bytes);
    void (*kv_free)(struct engine *e, void *memory);
    int (*kv_adopt)(struct engine *e, void *memory, size_t bytes);
    void (*kv_disown)(struct engine *e, void *memory);
    const struct shared_card *(*card)(const struct engine *e);
    void (*kv_forget)(struct engine *e, void *block);
    int (*kv_upload)(struct engine *e, void *const *blocks, size_t n,
                     uint32_t from_layer, uint32_t to_layer, uint64_t *ticket);
    int (*kv_upload_done)(struct engine *e, uint64_t ticket, bool wait);
};

/* The first member of every engine. engine_new() sets `ops` and `layout`. */
struct engine {
    const struct engine_ops *ops;
    struct engine_kv_layout layout;
    char device[224]; /* engine_device() and engine_error() */
    char error[240];
};

extern const struct engine_ops engine_cpu_ops;
extern const struct engine_ops engine_timed_ops;
extern const struct engine_ops engine_cuda_ops; /* with ENGINE_CUDA */

/* Allocates host memory, aligned to a page, populated, contents undefined; in
 * huge pages if it is large and the kernel has them. Returns it owned (free()),
 * or NULL. */
void *engine_host_alloc(size_t bytes);

/* Waits for the rows of `layer` before the segments [s, end). Returns 0 or
 * -EIO. */
static inline int engine_wait_layer(const struct engine_step_ops *ops,
                                    void *arg, size_t s, size_t end,
                                    uint32_t layer)
{
    for (; ops->layer_wait && s < end; s++)
        if (ops->layer_wait(arg, s, layer) < 0)
            return -EIO;
    return 0;
}

/* Reports that the rows of `layer` of the segments [s, end) are written. */
static inline void engine_layer_done(const struct engine_step_ops *ops,
                                     void *arg, size_t s, size_t end,
                                     uint32_t layer)
{
    for (; ops->layer_done && s < end; s++)
        ops->layer_done(arg, s, layer);
}

static inline bool engine_aborted(const atomic_bool *abort)
{
    return abort && atomic_load_explicit(abort, memory_order_relaxed);
}

#endif
