/* An engine computes tokens: no other part of a worker knows how a model works.
 * It owns the weights and its scratch memory; the caller owns the blocks of KV,
 * so that the store, the loader and the transfers can move them without the
 * engine.
 *
 * Kinds: "cpu" (a real transformer in float32), "cuda" (the same in bfloat16 on
 * a card, where the project was built with nvcc) and "timed" (simulates: no
 * tensors, it sleeps as long as a cost model says).
 *
 * A block holds the KV of block_tokens consecutive tokens of one request:
 *
 *   layer 0                                   layer 1
 *   +--------------------+--------------------+-----------
 *   | K of slot 0,1,2... | V of slot 0,1,2... | K of ...
 *   +--------------------+--------------------+-----------
 *   each slot: kv_row_bytes, heads of K (or V) one after the other
 *
 * BATCH INVARIANCE: the KV rows and the answer of a token are the same, bit
 * for bit, however its prompt was cut into steps, whatever other segments were
 * in these steps, whatever the block size, and whether the KV in front of it
 * was computed here or copied from an engine with the same fingerprint on a
 * machine with the same kind of processor. "cuda" may round a decoded token
 * differently from the same token in a prompt.
 *
 * Steps are taken on one thread at a time. The functions on host blocks
 * (engine_kv_forget() and those of uploads) may be called on another thread
 * while a step runs, for blocks that the step does not use. */
#ifndef WORKERS_ENGINE_ENGINE_H
#define WORKERS_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workers/engine/model.h"

#define ENGINE_MIN_BLOCK_TOKENS 16
#define ENGINE_MAX_BLOCK_TOKENS 512
#define ENGINE_DEFAULT_BLOCK_TOKENS 256
#define ENGINE_DEFAULT_STEP_TOKENS 512
#define ENGINE_MAX_STEP_TOKENS 16384

struct cost_model;  /* predictor/cost_model.h */
struct shared_card; /* workers/engine/shared_card.h */
struct engine;

/* How to build an engine. (0: ...) names the default that zero stands for. */
struct engine_config {
    const char *kind;                /* "cpu", "timed" or "cuda" */
    const struct model_shape *shape; /* borrowed until engine_free() */
    uint64_t seed;                   /* of the weights */
    uint32_t block_tokens;           /* multiple of 16 (0: 256) */
    uint32_t layers;                 /* number of leading layers (0: all) */
    uint32_t step_tokens;            /* most tokens in one step (0: 512) */
    const struct cost_model *cost;   /* "timed"; borrowed until engine_free() */
    double speed;             /* "timed": speed relative to `cost` (0: 1) */
    double prefill_sigma;     /* "timed": random error of the times, see */
    double decode_sigma;      /* noise_factor() (traces/noise.h) */
    uint64_t device_kv_bytes; /* "cuda": memory for KV on the card (0: all that
                                 is free) */
};

/* The layout of a block. Plain data. */
struct engine_kv_layout {
    uint32_t layers;
    uint32_t block_tokens;
    uint32_t kv_row_bytes;     /* K (or V) of one token in one layer */
    uint64_t block_bytes;      /* layers x 2 x block_tokens x kv_row_bytes */
    uint64_t fingerprint;      /* of model_fingerprint() */
    uint32_t vocab;            /* token ids must be less */
    uint32_t window_tokens;    /* limit of position + n_tokens */
    uint32_t step_tokens;      /* limit of the sum of n_tokens in a step */
    uint32_t activation_bytes; /* a token's state between layers; 0 = the engine
                                  computes no stages */
};

/* The host memory that an engine takes, apart from KV blocks. */
struct engine_needs {
    uint64_t weights_bytes; /* 0 = none, or on a card */
    uint64_t step_bytes;    /* scratch memory of a step */
};

enum engine_which { ENGINE_K = 0, ENGINE_V = 1 };

/* The layers of a segment that one stage of a pipeline computes, and the
 * activations at its two ends: activation_bytes a token, in token order. Any
 * engine with the same fingerprint can read them. */
struct engine_stage {
    uint32_t from_layer, to_layer; /* half open, at least one layer */
    const void *in; /* (n_tokens, activation_bytes), output of layer from_layer
                       - 1; not read if from_layer is 0 */
    void *out; /* (n_tokens, activation_bytes), output of layer to_layer - 1;
                  not written for the last layer */
};

/* The part of a step for one request: computes n_tokens tokens behind the
 * `position` tokens whose KV is already in the blocks. A prefill chunk has many
 * tokens; a decode segment has one, the token answered last, and `decode` set.
 * Two segments of a step must not share a block that one of them writes to. */
struct engine_segment {
    uint64_t request_id;    /* the caller's own; "timed" draws errors by it */
    const uint32_t *tokens; /* [n_tokens], borrowed for the call */
    uint32_t n_tokens;      /* at least 1 */
    uint32_t position;      /* tokens whose KV is already there */
    uint32_t cached_tokens; /* tokens in front of this chunk's run of chunks: <=
                               position. "timed" counts them as reused. A
                               prefill begins a new run, with cached_tokens =
                               position, when it skips loaded blocks */
    bool decode;            /* counts as decode, not as prefill */
    bool want_token;        /* answer with the token after the last one */
    uint32_t token_out;     /* set by the step if want_token */
    void *const *blocks;    /* [ceil((position + n_tokens) / block_tokens)],
                               block i holds tokens [i bt, (i + 1) bt); 64-byte
                               aligned, block_bytes each */
};

/* Callbacks of a running step, on its own thread, for each segment, layer by
 * layer from the first on. Either may be NULL. Within a layer, the engine may
 * call them in either order. */
struct engine_step_ops {
    /* Waits until the rows of `layer` of the tokens in front of
     * segments[segment] are in its blocks; the engine reads none of them
     * before. Returns 0, or a negative errno: the rows will not come. NULL =
     * all rows are there from the start. Must return soon after the step's
     * abort flag is set. */
    int (*layer_wait)(void *arg, size_t segment, uint32_t layer);
    /* Reports that the K and V of every token of segments[segment] in `layer`
     * are in the blocks: they can be sent while later layers compute. Must be
     * short. K and V of a decode segment may stay where the engine computes. */
    void (*layer_done)(void *arg, size_t segment, uint32_t layer);
};

/* Returns the OPENBLAS_CORETYPE that this process should have started with, or
 * NULL if OpenBLAS has chosen well or the variable is set. An OpenBLAS older
 * than the processor falls back to kernels of 2004, five times slower. It reads
 * the variable only when it is loaded, so a program that gets a name here sets
 * the variable and executes itself again. Static. */
const char *engine_blas_coretype(void);

/* Computes the layout and memory that engine_new() would use for `config`:
 * *layout, whose window_tokens a card may still lower, and *needs. Returns 0,
 * or -EINVAL with a message that names field and value in err[err_bytes] (never
 * NULL). */
[[nodiscard]] int engine_plan(const struct engine_config *config,
                              struct engine_kv_layout *layout,
                              struct engine_needs *needs, char *err,
                              size_t err_bytes);

/* Builds an engine. Borrows `config` for the call. Returns an owned engine, or
 * NULL with a message that names field and value in err[err_bytes] (never
 * NULL). Does not check whether the machine has the memory; engine_plan()
 * computes the amount. Cost: the weights of "cpu" are drawn here, about 1 ns a
 * number. */
[[nodiscard]] struct engine *engine_new(const struct engine_config *config,
                                        char *err, size_t err_bytes);

/* Frees `e` and all it owns, but not the KV blocks. NULL is fine. */
void engine_free(struct engine *e);

/* "cpu", "timed" or "cuda"; static. */
const char *engine_kind(const struct engine *e);

/* Returns the computing device for logs, as "NVIDIA H100, ..."; "" = none.
 * Valid until engine_free(). */
const char *engine_device(const struct engine *e);

/* Returns why a function returned -ENODEV; "" if none did. Valid until
 * engine_free(). */
const char *engine_error(const struct engine *e);

/* Returns whether the times of this engine are made up (from a cost model). */
bool engine_simulates(const struct engine *e);

/* Returns the layout of the KV blocks; valid until engine_free(). */
const struct engine_kv_layout *engine_kv_layout(const struct engine *e);

/* Computes one step: segments[n], at least one, of at most step_tokens tokens
 * together. Writes KV rows position .. position + n_tokens - 1 of each segment
 * and its token_out. Greedy: the printable id with the largest logit, the
 * lowest id among equals.
 *   ops, arg   see above; ops may be NULL; borrowed for the call
 *   abort      NULL, or a flag looked at between layers
 * Returns 0; -EINVAL if a segment breaks a bound above (nothing was written);
 * -ECANCELED if *abort was set, -EIO if a layer_wait failed: the KV rows of
 * this step are then undefined, those in front of them are untouched, and the
 * step can be repeated; -ENODEV if the card is gone (engine_error()): the
 * engine can then only be freed.
 * Cost: that of the model; "timed" sleeps instead. */
[[nodiscard]] int engine_step(struct engine *e, struct engine_segment *segments,
                              size_t n, const struct engine_step_ops *ops,
                              void *arg, const atomic_bool *abort);

/* As engine_step(), but only in the layers of `stage` (borrowed for the call),
 * for one segment that is not a decode. Reads and writes only their rows.
 * Tokens are read only with layer 0, and must be NULL without it; want_token
 * may be set only with the last layer. BATCH INVARIANCE holds across stages,
 * too: rows and answers are those of engine_step(), however layers and tokens
 * were cut. "timed" takes the layers' share of the time. Returns as
 * engine_step(); -ENOTSUP without activation_bytes. */
[[nodiscard]] int engine_step_stage(struct engine *e, struct engine_segment *s,
                                    const struct engine_stage *stage,
                                    const struct engine_step_ops *ops,
                                    void *arg, const atomic_bool *abort);

/* --- a step in virtual time: of an engine that simulates -------------------
 */

/* Returns the time in us that engine_step() of these segments would take, or
 * engine_step_stage() if `stage` is not NULL; or what they return of the
 * arguments, a negative errno: -ENOTSUP if the engine does not simulate. The
 * caller lets the layers' shares of this time pass; the segments are borrowed
 * until engine_simulate_end(). */
[[nodiscard]] int64_t engine_simulate_us(const struct engine *e,
                                         const struct engine_segment *segments,
                                         size_t n,
                                         const struct engine_stage *stage);

/* Writes the rows of `layer`; for each layer in turn. */
void engine_simulate_layer(const struct engine *e,
                           const struct engine_segment *segments, size_t n,
                           const struct engine_stage *stage, uint32_t layer);

/* Writes the answers, and a stage's output, after the last layer. */
void engine_simulate_end(const struct engine *e,
                         struct engine_segment *segments, size_t n,
                         const struct engine_stage *stage);

/* Allocates `bytes` (at least 1) of memory for host blocks, aligned to a page;
 * locked if the engine copies it to a card. Returns it owned (engine_kv_free),
 * or NULL. */
[[nodiscard]] void *engine_kv_alloc(struct engine *e, size_t bytes);

/* Frees what engine_kv_alloc() returned; no step may use it. NULL is fine. */
void engine_kv_free(struct engine *e, void *memory);

/* Uses `memory`, owned by the caller and kept until engine_kv_disown(), for
 * blocks in place of engine_kv_alloc()'s; locks it if the engine copies it to a
 * card. Returns 0 or -ENOMEM. */
[[nodiscard]] int engine_kv_adopt(struct engine *e, void *memory, size_t bytes);
void engine_kv_disown(struct engine *e, void *memory);

/* Returns the engine's card, for other processes and network cards; NULL = it
 * computes in host memory. Valid until engine_free(). */
const struct shared_card *engine_card(const struct engine *e);

/* Announces new contents for the host block `block`: the engine drops its
 * copies of it and never writes them back. A no-op for engines that compute in
 * host memory. */
void engine_kv_forget(struct engine *e, void *block);

/* Begins to copy layers [from_layer, to_layer) of the host blocks[n], which
 * are complete and do not change, to the engine's own memory, ahead of a step.
 * Optional; an engine without memory of its own does nothing. Sets *ticket.
 * Returns 0, -EINVAL for layers that do not exist, -EBUSY if too much is under
 * way or no room is left (a step will then do it), -EIO. */
[[nodiscard]] int engine_kv_upload(struct engine *e, void *const *blocks,
                                   size_t n, uint32_t from_layer,
                                   uint32_t to_layer, uint64_t *ticket);

/* Returns whether a ticket's upload is over: 1, 0 (not yet; never with `wait`),
 * or -EIO. A step waits by itself; only tests that time copies call this. */
[[nodiscard]] int engine_kv_upload_done(struct engine *e, uint64_t ticket,
                                        bool wait);

/* Returns the address of the K or V row of a slot (0 .. block_tokens - 1) of a
 * layer in `block`. Rows of consecutive slots follow each other, so a range of
 * tokens of one block, one layer and one of K and V is one piece of memory. */
static inline void *engine_kv_row(const struct engine_kv_layout *layout,
                                  void *block, uint32_t layer,
                                  enum engine_which which, uint32_t slot)
{
    size_t row = ((size_t)layer * 2 + (size_t)which) * layout->block_tokens;

    return (char *)block + (row + slot) * layout->kv_row_bytes;
}

#endif
