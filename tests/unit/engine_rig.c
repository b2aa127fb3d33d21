#include "tests/unit/engine_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/cases.h"

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

static uint32_t rig_blocks(const struct rig_request *r)
{
    return (r->room + r->layout->block_tokens - 1) / r->layout->block_tokens;
}

void rig_init(struct rig_request *r, const struct engine *e,
              const uint32_t *prompt, uint32_t n, uint32_t extra)
{
    memset(r, 0, sizeof(*r));
    r->layout = engine_kv_layout(e);
    r->n_prompt = n;
    r->n_tokens = n;
    r->room = n + extra;
    r->tokens = must(calloc(r->room, sizeof(*r->tokens)));
    memcpy(r->tokens, prompt, n * sizeof(*prompt));
    r->blocks = must(calloc(rig_blocks(r), sizeof(*r->blocks)));
    for (uint32_t i = 0; i < rig_blocks(r); i++) {
        r->blocks[i] = must(aligned_alloc(64, r->layout->block_bytes));
        memset(r->blocks[i], 0xff, r->layout->block_bytes);
    }
}

void rig_fini(struct rig_request *r)
{
    for (uint32_t i = 0; i < rig_blocks(r); i++)
        free(r->blocks[i]);
    free(r->blocks);
    free(r->tokens);
}

struct engine_segment rig_segment(const struct rig_request *r, uint32_t n)
{
    return (struct engine_segment){
        .tokens = r->tokens + r->done,
        .n_tokens = n,
        .position = r->done,
        .decode = r->done >= r->n_prompt,
        .want_token = r->done + n == r->n_tokens,
        .blocks = r->blocks,
    };
}

void rig_take(struct rig_request *r, const struct engine_segment *s)
{
    r->done += s->n_tokens;
    if (s->want_token && r->n_tokens < r->room)
        r->tokens[r->n_tokens++] = s->token_out;
}

int rig_run(struct engine *e, struct rig_request *r, uint32_t chunk, uint32_t n)
{
    while (r->n_tokens < r->n_prompt + n) {
        uint32_t left = r->n_tokens - r->done;
        struct engine_segment s = rig_segment(r, left < chunk ? left : chunk);
        int rc = engine_step(e, &s, 1, NULL, NULL, NULL);

        if (rc != 0)
            return rc;
        rig_take(r, &s);
    }
    return 0;
}

static char *row(const struct rig_request *r, uint32_t token, uint32_t layer,
                 enum engine_which which)
{
    uint32_t bt = r->layout->block_tokens;

    return engine_kv_row(r->layout, r->blocks[token / bt], layer, which,
                         token % bt);
}

void rig_copy_kv(struct rig_request *to, const struct rig_request *from,
                 uint32_t n)
{
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t l = 0; l < to->layout->layers; l++)
            for (int w = 0; w < 2; w++)
                memcpy(row(to, t, l, (enum engine_which)w),
                       row(from, t, l, (enum engine_which)w),
                       to->layout->kv_row_bytes);
    to->done = n;
}

uint64_t rig_kv_differs(const struct rig_request *a,
                        const struct rig_request *b, uint32_t n)
{
    uint64_t bytes = 0;

    for (uint32_t t = 0; t < n; t++)
        for (uint32_t l = 0; l < a->layout->layers; l++)
            for (int w = 0; w < 2; w++) {
                const char *x = row(a, t, l, (enum engine_which)w);
                const char *y = row(b, t, l, (enum engine_which)w);

                for (uint32_t i = 0; i < a->layout->kv_row_bytes; i++)
                    bytes += x[i] != y[i];
            }
    return bytes;
}

uint64_t rig_seed(const char *test)
{
    printf("%s: ", test);
    return cases_seed((uint64_t)time(NULL));
}

uint32_t rig_random(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % below);
}
