/* The memory of the blocks: a file that other workers of this machine can map,
 * if a transport needs it; else the engine's own. */
#include "workers/transfer/engine/shm/slab.h"

#include "workers/service/internal.h"
#include "workers/transfer/transports.h"

static void *slab_alloc(void *arg, size_t bytes)
{
    struct worker *w = arg;
    void *memory =
        transports_slab_new(w->options->transports, bytes, &w->slab_fd);

    if (memory && engine_kv_adopt(w->engine, memory, bytes) < 0) {
        shm_slab_free(memory, bytes, w->slab_fd);
        w->slab_fd = -1;
        memory = NULL;
    }
    w->slab_bytes = bytes;
    return memory ? memory : engine_kv_alloc(w->engine, bytes);
}

static void slab_free(void *arg, void *memory)
{
    struct worker *w = arg;

    if (w->slab_fd < 0) {
        engine_kv_free(w->engine, memory);
        return;
    }
    if (memory)
        engine_kv_disown(w->engine, memory);
    shm_slab_free(memory, w->slab_bytes, w->slab_fd);
}

static void slab_taken(void *arg, void *data)
{
    struct worker *w = arg;

    engine_kv_forget(w->engine, data);
}

struct kv_store_memory worker_slab_memory(struct worker *w)
{
    w->slab_fd = -1;
    return (struct kv_store_memory){slab_alloc, slab_free, slab_taken, w};
}
