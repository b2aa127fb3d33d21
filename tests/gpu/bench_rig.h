/* What the benches of an engine share: options, the engine and its KV blocks,
 * steps with a clock, the result. A bench measures any kind of engine; the
 * figures are a GPU's only with --engine cuda on a card.
 */
#ifndef TESTS_GPU_BENCH_RIG_H
#define TESTS_GPU_BENCH_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/gpu/card.h"
#include "tests/gpu/sheet.h"
#include "workers/engine/engine.h"

/* Zero in a field marked (0: ...) takes that. */
struct bench_options {
    const char *engine;  /* "cuda" */
    const char *model;   /* "llama3-8b" */
    const char *json;    /* NULL, or the file to write */
    uint32_t layers;     /* (0: all) */
    uint32_t max_tokens; /* of one request (0: the bench's own) */
    uint32_t repeats;    /* 5 */
    uint64_t kv_mib;     /* of host blocks: cells that need more are left out;
                            16384 */
    uint64_t device_kv_mib; /* of KV on a card (0: what is free) */
    uint64_t seed;          /* 1 */
    double seconds;         /* cells that would not fit are left out; 60 */
};

struct bench {
    const char *name;
    struct bench_options options;
    const struct model_shape *shape;
    const struct card *card;
    char device[SHEET_TEXT_BYTES]; /* its name */
    struct engine *engine;
    const struct engine_kv_layout *layout;
    int64_t start_us;
    char err[512];
    struct sheet sheet;
};

/* Host blocks in one piece of memory, as the worker has them. */
struct bench_kv {
    void *memory;
    void **blocks;
    uint32_t n_blocks;
};

/* Reads the options; on --help or a wrong one prints and exits (0 or 2). Names
 * the device in the sheet. `about` is the first paragraph of the help. `b` is
 * to be all zero. Returns 0, or a negative errno with a message printed. */
[[nodiscard]] int bench_open(struct bench *b, const char *name,
                             const char *about, int argc, char **argv);

/* Builds the engine of the options with this shape (NULL: that of --model),
 * step and block size (0: the engine's default) instead of the one before.
 * Returns 0, or a negative errno with a message in b->err. */
[[nodiscard]] int bench_engine(struct bench *b, const struct model_shape *shape,
                               uint32_t block_tokens, uint32_t step_tokens);

/* Ends the sheet's row, and writes the JSON as it is by now: whoever ends the
 * program before its time has what was measured. */
void bench_end_row(struct bench *b);

/* Says what went wrong (rc < 0: b->err or the number's name), writes the JSON
 * and frees what is left. Returns the exit status of the program. */
[[nodiscard]] int bench_close(struct bench *b, int rc);

/* Seconds of --seconds that are left. */
double bench_left_s(const struct bench *b);

/* One line on stderr, with the seconds since the start. */
__attribute__((format(printf, 2, 3))) void bench_say(const struct bench *b,
                                                     const char *format, ...);

/* Blocks for `tokens` tokens, with anything in them. Returns 0, or -ENOMEM with
 * a message in b->err. */
[[nodiscard]] int bench_kv_init(struct bench *b, struct bench_kv *kv,
                                uint32_t tokens);
void bench_kv_fini(struct bench *b, struct bench_kv *kv);

/* Tells the engine to drop what it keeps of the blocks [from, to): they are
 * only in host memory then. */
void bench_kv_forget(struct bench *b, const struct bench_kv *kv, uint32_t from,
                     uint32_t to);

/* Blocks that `tokens` tokens take. */
uint32_t bench_blocks(const struct bench *b, uint32_t tokens);

/* A prompt of n printable tokens of the seed, owned (free), or NULL. */
uint32_t *bench_prompt(const struct bench *b, uint32_t n);

/* One step of tokens [from, to) of the prompt, of which the first `cached` were
 * reused and not computed. Sets *token (may be NULL) to what is answered.
 * Returns microseconds, or a negative errno. */
[[nodiscard]] double bench_step_us(struct bench *b, const uint32_t *prompt,
                                   const struct bench_kv *kv, uint32_t from,
                                   uint32_t to, uint32_t cached,
                                   uint32_t *token);

/* Microseconds with fractions, for what the engine's clock is too coarse. */
double bench_now_us(void);

/* The median; sorts values[n], n >= 1. */
double bench_median(double *values, size_t n);

/* 0 .. below - 1, and moves *state on. */
uint32_t bench_random(uint64_t *state, uint32_t below);

#endif
