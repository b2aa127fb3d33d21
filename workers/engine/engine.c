/* The front of every engine: checks arguments, so that the kinds need not. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "workers/engine/impl.h"

/* Alignment of host memory, required by direct I/O on blocks. */
#define PAGE_BYTES ((size_t)4096)

#ifdef ENGINE_CUDA
#define KINDS "cpu, timed or cuda"
#else
#define KINDS "cpu or timed (built without CUDA)"
#endif

/* Large memory uses huge pages: 1 MiB in small pages would be 256 targets for a
 * device, which then reads at half the speed. */
#define HUGE_BYTES ((size_t)2 << 20)

static const struct engine_ops *const kinds[] = {
    &engine_cpu_ops,
    &engine_timed_ops,
#ifdef ENGINE_CUDA
    &engine_cuda_ops,
#endif
};

static const struct engine_ops *kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (name && strcmp(kinds[i]->kind, name) == 0)
            return kinds[i];
    return NULL;
}

static void fill_defaults(struct engine_config *c)
{
    if (c->block_tokens == 0)
        c->block_tokens = ENGINE_DEFAULT_BLOCK_TOKENS;
    if (c->layers == 0)
        c->layers = c->shape->layers;
    if (c->step_tokens == 0)
        c->step_tokens = ENGINE_DEFAULT_STEP_TOKENS;
}

/* Returns whether `value` is lo .. hi; if not, writes a message. */
static bool in_range(const char *field, uint32_t value, uint32_t lo,
                     uint32_t hi, char *err, size_t err_bytes)
{
    if (value >= lo && value <= hi)
        return true;
    return error_say(err, err_bytes, false,
                     "engine: %s is %u: must be %u to %u", field, value, lo,
                     hi);
}

static bool config_ok(const struct engine_config *c, char *err,
                      size_t err_bytes)
{
    if (!in_range("block_tokens", c->block_tokens, ENGINE_MIN_BLOCK_TOKENS,
                  ENGINE_MAX_BLOCK_TOKENS, err, err_bytes) ||
        !in_range("layers", c->layers, 1, c->shape->layers, err, err_bytes) ||
        !in_range("step_tokens", c->step_tokens, 1, ENGINE_MAX_STEP_TOKENS, err,
                  err_bytes))
        return false;
    if (c->block_tokens % ENGINE_MIN_BLOCK_TOKENS != 0)
        return error_say(err, err_bytes, false,
                         "engine: block_tokens is %u: must be a multiple of %d",
                         c->block_tokens, ENGINE_MIN_BLOCK_TOKENS);
    return true;
}

/* Returns the bytes of one K (or V) row. */
static uint32_t kv_row_bytes(const struct model_shape *shape,
                             enum model_element element)
{
    uint32_t numbers = shape->kv_heads * shape->head_dim;

    return element == MODEL_HASH64    ? 8
           : element == MODEL_FLOAT32 ? 4 * numbers
                                      : 2 * numbers;
}

/* Returns the bytes that a token passes between two layers. */
static uint32_t activation_bytes(const struct engine_ops *ops,
                                 const struct model_shape *shape)
{
    if (!ops->stage)
        return 0;
    return ops->element == MODEL_HASH64    ? 16
           : ops->element == MODEL_FLOAT32 ? 4 * shape->d_model
                                           : 2 * shape->d_model;
}

/* Checks *c, fills in its defaults and *layout. Returns the kind, or NULL with
 * a message. */
static const struct engine_ops *prepare(struct engine_config *c,
                                        struct engine_kv_layout *layout,
                                        char *err, size_t err_bytes)
{
    const struct engine_ops *ops = kind_find(c->kind);

    if (!ops)
        return error_null(err, err_bytes, "engine: kind is %s: must be " KINDS,
                          c->kind ? c->kind : "missing");
    if (!c->shape)
        return error_null(err, err_bytes, "engine: shape is missing");
    if (model_check(c->shape, err, err_bytes) != 0)
        return NULL;
    fill_defaults(c);
    if (!config_ok(c, err, err_bytes))
        return NULL;

    uint32_t row_bytes = kv_row_bytes(c->shape, ops->element);
    *layout = (struct engine_kv_layout){
        .layers = c->layers,
        .block_tokens = c->block_tokens,
        .kv_row_bytes = row_bytes,
        .block_bytes = (uint64_t)c->layers * 2 * c->block_tokens * row_bytes,
        .fingerprint =
            model_fingerprint(c->shape, c->layers, c->seed, ops->element),
        .vocab = c->shape->vocab,
        .window_tokens = c->shape->window_tokens,
        .step_tokens = c->step_tokens,
        .activation_bytes = activation_bytes(ops, c->shape),
    };
    return ops;
}

int engine_plan(const struct engine_config *config,
                struct engine_kv_layout *layout, struct engine_needs *needs,
                char *err, size_t err_bytes)
{
    struct engine_config c = *config;
    const struct engine_ops *ops = prepare(&c, layout, err, err_bytes);

    if (!ops)
        return -EINVAL;
    *needs = (struct engine_needs){0};
    if (ops->needs)
        ops->needs(&c, needs);
    return 0;
}

struct engine *engine_new(const struct engine_config *config, char *err,
                          size_t err_bytes)
{
    struct engine_config c = *config;
    struct engine_kv_layout layout;
    const struct engine_ops *ops = prepare(&c, &layout, err, err_bytes);

    if (!ops)
        return NULL;
    struct engine *e = ops->create(&c, &layout, err, err_bytes);
    if (!e)
        return NULL;
    e->ops = ops;
    e->layout = layout;
    return e;
}

void engine_free(struct engine *e)
{
    if (e)
        e->ops->destroy(e);
}

const char *engine_kind(const struct engine *e)
{
    return e->ops->kind;
}

const char *engine_device(const struct engine *e)
{
    return e->device;
}

const char *engine_error(const struct engine *e)
{
    return e->error;
}

bool engine_simulates(const struct engine *e)
{
    return e->ops->simulation;
}

const struct engine_kv_layout *engine_kv_layout(const struct engine *e)
{
    return &e->layout;
}

static bool segment_ok(const struct engine_kv_layout *l,
                       const struct engine_segment *s)
{
    if (s->n_tokens == 0 || s->n_tokens > l->step_tokens ||
        s->position > l->window_tokens ||
        s->n_tokens > l->window_tokens - s->position ||
        s->cached_tokens > s->position)
        return false;
    for (uint32_t i = 0; s->tokens && i < s->n_tokens; i++)
        if (s->tokens[i] >= l->vocab)
            return false;
    return true;
}

static const struct engine_step_ops silent = {NULL, NULL};

/* Checks the segments of a step of all layers. */
static bool segments_ok(const struct engine_kv_layout *l,
                        const struct engine_segment *segments, size_t n)
{
    uint64_t tokens = 0;

    for (size_t i = 0; i < n; i++) {
        if (!segments[i].tokens || !segment_ok(l, &segments[i]))
            return false;
        tokens += segments[i].n_tokens;
        if (tokens > l->step_tokens)
            return false;
    }
    return n > 0;
}

int engine_step(struct engine *e, struct engine_segment *segments, size_t n,
                const struct engine_step_ops *ops, void *arg,
                const atomic_bool *abort)
{
    if (!segments_ok(&e->layout, segments, n))
        return -EINVAL;
    return e->ops->step(e, segments, n, ops ? ops : &silent, arg, abort);
}

static bool stage_ok(const struct engine_kv_layout *l,
                     const struct engine_segment *s,
                     const struct engine_stage *stage)
{
    bool first = stage->from_layer == 0;
    bool last = stage->to_layer == l->layers;

    return stage->from_layer < stage->to_layer &&
           stage->to_layer <= l->layers && !s->decode &&
           (last || (!s->want_token && stage->out)) && !s->tokens != first &&
           (first || stage->in);
}

int engine_step_stage(struct engine *e, struct engine_segment *s,
                      const struct engine_stage *stage,
                      const struct engine_step_ops *ops, void *arg,
                      const atomic_bool *abort)
{
    if (!e->ops->stage)
        return -ENOTSUP;
    if (!stage_ok(&e->layout, s, stage) || !segment_ok(&e->layout, s))
        return -EINVAL;
    return e->ops->stage(e, s, stage, ops ? ops : &silent, arg, abort);
}

int64_t engine_simulate_us(const struct engine *e,
                           const struct engine_segment *segments, size_t n,
                           const struct engine_stage *stage)
{
    const struct engine_kv_layout *l = &e->layout;

    if (!e->ops->simulation || (stage && !e->ops->stage))
        return -ENOTSUP;
    if (stage ? n != 1 || !stage_ok(l, segments, stage) ||
                    !segment_ok(l, segments)
              : !segments_ok(l, segments, n))
        return -EINVAL;
    return e->ops->simulation->step_us(e, segments, n, stage);
}

void engine_simulate_layer(const struct engine *e,
                           const struct engine_segment *segments, size_t n,
                           const struct engine_stage *stage, uint32_t layer)
{
    e->ops->simulation->layer(e, segments, n, stage, layer);
}

void engine_simulate_end(const struct engine *e,
                         struct engine_segment *segments, size_t n,
                         const struct engine_stage *stage)
{
    e->ops->simulation->end(e, segments, n, stage);
}

/* Populates all pages now: otherwise the first write to each block waits for
 * the kernel to clear its pages, which takes most of a transfer's time. */
static void touch(void *memory, size_t bytes)
{
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return;
    for (size_t i = 0; i < bytes; i += PAGE_BYTES)
        ((volatile char *)memory)[i] = 0;
}

void *engine_host_alloc(size_t bytes)
{
    size_t page = bytes < HUGE_BYTES ? PAGE_BYTES : HUGE_BYTES;

    if (bytes > SIZE_MAX - (page - 1))
        return NULL;
    size_t rounded = (bytes + page - 1) / page * page;
    void *memory = aligned_alloc(page, rounded);
    if (!memory)
        return NULL;
    /* Without huge pages memory is only slower. */
    if (page == HUGE_BYTES)
        madvise(memory, rounded, MADV_HUGEPAGE);
    touch(memory, rounded);
    return memory;
}

int engine_kv_adopt(struct engine *e, void *memory, size_t bytes)
{
    return e->ops->kv_adopt ? e->ops->kv_adopt(e, memory, bytes) : 0;
}

void engine_kv_disown(struct engine *e, void *memory)
{
    if (e->ops->kv_disown)
        e->ops->kv_disown(e, memory);
}

const struct shared_card *engine_card(const struct engine *e)
{
    return e->ops->card ? e->ops->card(e) : NULL;
}

void *engine_kv_alloc(struct engine *e, size_t bytes)
{
    return e->ops->kv_alloc ? e->ops->kv_alloc(e, bytes)
                            : engine_host_alloc(bytes);
}

void engine_kv_free(struct engine *e, void *memory)
{
    if (e->ops->kv_free)
        e->ops->kv_free(e, memory);
    else
        free(memory);
}

void engine_kv_forget(struct engine *e, void *block)
{
    if (e->ops->kv_forget)
        e->ops->kv_forget(e, block);
}

int engine_kv_upload(struct engine *e, void *const *blocks, size_t n,
                     uint32_t from_layer, uint32_t to_layer, uint64_t *ticket)
{
    if (from_layer > to_layer || to_layer > e->layout.layers)
        return -EINVAL;
    if (e->ops->kv_upload)
        return e->ops->kv_upload(e, blocks, n, from_layer, to_layer, ticket);
    *ticket = 0;
    return 0;
}

int engine_kv_upload_done(struct engine *e, uint64_t ticket, bool wait)
{
    if (e->ops->kv_upload_done)
        return e->ops->kv_upload_done(e, ticket, wait);
    return 1;
}
