/* The same greedy answer however a prompt's KV came to be: computed, loaded,
 * both with any split, or loaded layer by layer. Random prompts, lengths, cuts
 * and splits; prints its seed; exits 1 if an answer differs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/bench_rig.h"

#define ANSWER 12
#define BLOCK_TOKENS 16

enum mode { COMPUTE, LOAD, BOTH, LAYERWISE, MODES };

static const char *const mode_names[MODES] = {"compute", "load", "both",
                                              "layerwise"};

struct check {
    struct bench *b;
    struct bench_kv source; /* what was computed at once: "storage" */
    struct bench_kv kv;     /* of the request */
    uint32_t tokens[4096];  /* prompt, then answer */
    uint32_t n_tokens;      /* of the prompt */
    uint32_t cached_blocks;
    uint64_t random;
};

static uint32_t below(struct check *c, uint32_t n)
{
    return bench_random(&c->random, n);
}

/* Computes the prompt's tokens [from, to) in random steps. */
static int prefill(struct check *c, const struct bench_kv *kv, uint32_t from,
                   uint32_t to, uint32_t cached, uint32_t *token)
{
    uint32_t most = c->b->layout->step_tokens;

    while (from < to) {
        uint32_t n = 1 + below(c, most);
        uint32_t end = n < to - from ? from + n : to;
        double us = bench_step_us(c->b, c->tokens, kv, from, end, cached,
                                  end == c->n_tokens ? token : NULL);

        if (us < 0)
            return (int)us;
        from = end;
    }
    return 0;
}

/* Goes on behind the prompt's first answer. */
static int decode(struct check *c, const struct bench_kv *kv,
                  uint32_t answer[ANSWER])
{
    for (uint32_t i = 1; i < ANSWER; i++) {
        c->tokens[c->n_tokens + i - 1] = answer[i - 1];
        double us = bench_step_us(c->b, c->tokens, kv, c->n_tokens + i - 1,
                                  c->n_tokens + i, 0, &answer[i]);
        if (us < 0)
            return (int)us;
    }
    return 0;
}

/* Layer `layer` of the cached blocks arrives: the engine asks for it. */
static int bring_layer(void *arg, size_t segment, uint32_t layer)
{
    struct check *c = arg;
    const struct engine_kv_layout *l = c->b->layout;
    size_t bytes = (size_t)2 * l->block_tokens * l->kv_row_bytes;

    (void)segment;
    for (uint32_t i = 0; i < c->cached_blocks; i++)
        memcpy(engine_kv_row(l, c->kv.blocks[i], layer, ENGINE_K, 0),
               engine_kv_row(l, c->source.blocks[i], layer, ENGINE_K, 0),
               bytes);
    return 0;
}

static int prefill_layerwise(struct check *c, uint32_t *token)
{
    static const struct engine_step_ops ops = {.layer_wait = bring_layer};
    uint32_t cached = c->cached_blocks * BLOCK_TOKENS;
    struct engine_segment s = {
        .tokens = c->tokens + cached,
        .n_tokens = c->n_tokens - cached,
        .position = cached,
        .cached_tokens = cached,
        .want_token = true,
        .blocks = c->kv.blocks,
    };
    int rc = engine_step(c->b->engine, &s, 1, &ops, c, NULL);

    *token = s.token_out;
    return rc;
}

/* Loads blocks [from, to) from the last one down. */
static int load(struct check *c, uint32_t from, uint32_t to)
{
    struct engine *e = c->b->engine;

    for (uint32_t i = to; i-- > from;) {
        uint64_t ticket = 0;

        memcpy(c->kv.blocks[i], c->source.blocks[i], c->b->layout->block_bytes);
        int rc = engine_kv_upload(e, &c->kv.blocks[i], 1, 0,
                                  c->b->layout->layers, &ticket);
        if (rc == 0)
            rc = engine_kv_upload_done(e, ticket, true);
        if (rc < 0 && rc != -EBUSY)
            return rc;
    }
    return 0;
}

/* The request's blocks hold NaN wherever nothing was written. */
static int answer_by(struct check *c, enum mode mode, uint32_t answer[ANSWER])
{
    uint32_t split = mode == COMPUTE ? c->cached_blocks
                     : mode == BOTH  ? below(c, c->cached_blocks + 1)
                                     : 0;
    int rc = 0;

    bench_kv_forget(c->b, &c->kv, 0, c->kv.n_blocks);
    memset(c->kv.memory, 0xff,
           (size_t)c->kv.n_blocks * c->b->layout->block_bytes);
    if (mode == LAYERWISE) {
        rc = prefill_layerwise(c, &answer[0]);
        return rc == 0 ? decode(c, &c->kv, answer) : rc;
    }
    rc = prefill(c, &c->kv, 0, split * BLOCK_TOKENS, 0, NULL);
    if (rc == 0)
        rc = load(c, split, c->cached_blocks);
    if (rc == 0)
        rc = prefill(c, &c->kv, c->cached_blocks * BLOCK_TOKENS, c->n_tokens,
                     (c->cached_blocks - split) * BLOCK_TOKENS, &answer[0]);
    return rc == 0 ? decode(c, &c->kv, answer) : rc;
}

/* One prompt in all modes. Returns how many answered otherwise, or an error. */
static int one_case(struct check *c, uint32_t most)
{
    uint32_t want[ANSWER];
    uint32_t got[ANSWER];
    int wrong = 0;

    c->n_tokens = BLOCK_TOKENS + 1 + below(c, most - BLOCK_TOKENS - 1);
    c->cached_blocks = 1 + below(c, (c->n_tokens - 1) / BLOCK_TOKENS);
    /* The layerwise mode computes what is not cached in one step. */
    if (c->n_tokens - c->cached_blocks * BLOCK_TOKENS >
        c->b->layout->step_tokens)
        c->cached_blocks = (c->n_tokens - 1) / BLOCK_TOKENS;
    for (uint32_t i = 0; i < c->n_tokens; i++)
        c->tokens[i] = MODEL_FIRST_OUTPUT + below(c, MODEL_OUTPUTS);
    int rc = prefill(c, &c->source, 0, c->n_tokens, 0, &want[0]);
    if (rc == 0)
        rc = decode(c, &c->source, want);
    for (int m = 0; rc == 0 && m < MODES; m++) {
        rc = answer_by(c, (enum mode)m, got);
        if (rc != 0 || memcmp(want, got, sizeof(want)) == 0)
            continue;
        fprintf(stderr, "%s: %u tokens, %u cached: another answer by %s\n",
                c->b->name, c->n_tokens, c->cached_blocks * BLOCK_TOKENS,
                mode_names[m]);
        wrong++;
    }
    return rc != 0 ? rc : wrong;
}

static int run(struct check *c, uint32_t most)
{
    struct bench *b = c->b;
    uint32_t cases = 0;
    uint32_t wrong = 0;
    int rc = 0;

    while (rc == 0 && cases < b->options.repeats &&
           (cases == 0 || bench_left_s(b) > 0)) {
        rc = one_case(c, most);
        wrong += rc > 0 ? (uint32_t)rc : 0;
        rc = rc > 0 ? 0 : rc;
        cases++;
    }
    sheet_number(&b->sheet, "cases", cases, 0);
    sheet_number(&b->sheet, "answers", (double)cases * MODES, 0);
    sheet_number(&b->sheet, "wrong", wrong, 0);
    sheet_number(&b->sheet, "tokens_each", ANSWER, 0);
    sheet_number(&b->sheet, "seed", (double)b->options.seed, 0);
    bench_end_row(b);
    if (rc == 0 && wrong) {
        snprintf(b->err, sizeof(b->err), "%u answers differ", wrong);
        rc = -EBADMSG;
    }
    return rc;
}

int main(int argc, char **argv)
{
    static struct bench b;
    static struct check c;

    int rc = bench_open(&b, "check_modes",
                        "Greedy answers to random prompts, computed, loaded, "
                        "both, and layer by layer:\nall must be the same. "
                        "--repeats is the number of prompts.\n",
                        argc, argv);
    if (rc != 0)
        return EXIT_FAILURE;
    uint32_t most = b.options.max_tokens ? b.options.max_tokens : 512;
    most = most > 4096 - ANSWER ? 4096 - ANSWER : most;
    c.b = &b;
    c.random = b.options.seed;
    rc = bench_engine(&b, NULL, BLOCK_TOKENS, 512);
    if (rc == 0)
        rc = bench_kv_init(&b, &c.source, most + ANSWER);
    if (rc == 0)
        rc = bench_kv_init(&b, &c.kv, most + ANSWER);
    if (rc == 0)
        rc = run(&c, most);
    if (c.source.blocks)
        bench_kv_fini(&b, &c.source);
    if (c.kv.blocks)
        bench_kv_fini(&b, &c.kv);
    return bench_close(&b, rc);
}
