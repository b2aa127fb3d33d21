/* What the engine tests share: a request with its own KV blocks. */
#ifndef TESTS_UNIT_ENGINE_RIG_H
#define TESTS_UNIT_ENGINE_RIG_H

#include <stdint.h>

#include "workers/engine/engine.h"

struct rig_request {
    const struct engine_kv_layout *layout;
    uint32_t *tokens; /* prompt and then what was answered */
    uint32_t n_prompt;
    uint32_t done; /* tokens that have their KV */
    uint32_t n_tokens;
    uint32_t room;
    void **blocks;
};

/* Blocks for prompt[n] and `extra` answered tokens, all bytes 0xff (NaN as a
 * float), so that reading what was never written shows. Aborts the test
 * program without memory. */
void rig_init(struct rig_request *r, const struct engine *e,
              const uint32_t *prompt, uint32_t n, uint32_t extra);
void rig_fini(struct rig_request *r);

/* The segment that takes the next `n` tokens of `r`; wants a token if these
 * are the last ones. */
struct engine_segment rig_segment(const struct rig_request *r, uint32_t n);

/* After the step: moves on and appends the token that was answered. */
void rig_take(struct rig_request *r, const struct engine_segment *s);

/* Prefills what is left of `r`, in steps of `chunk`, then decodes until `n`
 * tokens were answered. Returns 0 or the first error of engine_step(). */
int rig_run(struct engine *e, struct rig_request *r, uint32_t chunk,
            uint32_t n);

/* Copies the KV of tokens [0, n) from `from` to `to`; the block sizes may
 * differ. Sets to->done. */
void rig_copy_kv(struct rig_request *to, const struct rig_request *from,
                 uint32_t n);

/* Bytes in which the KV rows of tokens [0, n) differ. */
uint64_t rig_kv_differs(const struct rig_request *a,
                        const struct rig_request *b, uint32_t n);

/* A random state from CONDUCTOR_SEED or the clock, printed. */
uint64_t rig_seed(const char *test);
/* 0 .. below - 1. */
uint32_t rig_random(uint64_t *state, uint32_t below);

#endif
