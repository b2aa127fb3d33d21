/* The engine of the workers, alone and without its times. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/internal.h"
#include "workers/engine/engine.h"

#define TOKENS_MAX 1024u
#define BLOCKS_MAX (TOKENS_MAX / WORLD_BLOCK_TOKENS)
#define FAST 1e12 /* a step takes no time */

struct reference {
    struct engine *engine;
    void *blocks[BLOCKS_MAX];
    uint32_t tokens[TOKENS_MAX];
};

struct reference *reference_new(const struct cost_model *cost)
{
    const struct engine_config config = {.kind = "timed",
                                         .shape = model_find("tiny"),
                                         .seed = 1,
                                         .block_tokens = WORLD_BLOCK_TOKENS,
                                         .step_tokens = TOKENS_MAX,
                                         .cost = cost,
                                         .speed = FAST};
    struct reference *r = calloc(1, sizeof(*r));
    char err[200];

    if (!r)
        return NULL;
    r->engine = engine_new(&config, err, sizeof(err));
    for (uint32_t i = 0; r->engine && i < BLOCKS_MAX; i++) {
        r->blocks[i] = calloc(1, engine_kv_layout(r->engine)->block_bytes);
        if (!r->blocks[i]) {
            reference_free(r);
            return NULL;
        }
    }
    if (r->engine)
        return r;
    free(r);
    return NULL;
}

void reference_free(struct reference *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < BLOCKS_MAX; i++)
        free(r->blocks[i]);
    engine_free(r->engine);
    free(r);
}

int reference_answer(struct reference *r, const uint32_t *prompt,
                     uint32_t n_prompt, char *text, uint32_t n)
{
    if (n_prompt + n > TOKENS_MAX)
        return -EINVAL;
    memcpy(r->tokens, prompt, n_prompt * sizeof(*prompt));
    for (uint32_t i = 0, done = 0; i < n; i++) {
        uint32_t have = n_prompt + i;
        struct engine_segment s = {.tokens = r->tokens + done,
                                   .n_tokens = have - done,
                                   .position = done,
                                   .decode = i > 0,
                                   .want_token = true,
                                   .blocks = r->blocks};
        int rc = engine_step(r->engine, &s, 1, NULL, NULL, NULL);

        if (rc)
            return rc;
        done = have;
        text[i] = (char)s.token_out;
        r->tokens[have] = s.token_out;
    }
    return 0;
}
