/* What the engines and engine.c share. Not for users of an engine. */
#ifndef WORKERS_ENGINE_IMPL_H
#define WORKERS_ENGINE_IMPL_H

#include "workers/engine.h"

/* One kind of engine. */
struct engine_ops {
    const char *kind;
    bool simulates;
    enum model_element element;
    /* Bytes of one K (or V) row of `shape`. */
    uint32_t (*row_bytes)(const struct model_shape *shape);
    /* Builds it. `config` has its defaults filled in and is valid as far as
     * every kind demands; `layout` is to be copied. As engine_new(). */
    struct engine *(*create)(const struct engine_config *config,
                             const struct engine_kv_layout *layout, char *err,
                             size_t err_bytes);
    void (*destroy)(struct engine *e);
    /* As engine_step(); the segments keep their bounds. */
    int (*step)(struct engine *e, struct engine_segment *segments, size_t n,
                engine_layer_done_fn *layer_done, void *arg,
                const atomic_bool *abort);
};

/* The first member of every engine. `ops` and `layout` are set by
 * engine_new(). */
struct engine {
    const struct engine_ops *ops;
    struct engine_kv_layout layout;
};

extern const struct engine_ops engine_cpu_ops;
extern const struct engine_ops engine_timed_ops;

static inline bool engine_aborted(const atomic_bool *abort)
{
    return abort && atomic_load_explicit(abort, memory_order_relaxed);
}

#endif
