/* How fast KV moves between page-locked host blocks and the device through the
 * engine, against one plain copy of as many bytes.
 *
 * To the device: engine_kv_upload() of blocks that it does not hold. To the
 * host: a prefill step, which stores every row that it computes; its model has
 * the KV rows of llama3-8b and so little else that the copies take longer than
 * the computing. What the step takes is all counted as copying. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "tests/gpu/bench_rig.h"
#include "tests/unit/model_facts.h"

#define STEP_TOKENS 4096
#define SEGMENT_TOKENS 256 /* short ones: attention is quadratic */
#define MAX_REPEATS 64

static const struct model_shape narrow = {
    "narrow", 32, 128, 8, 8, 128, 256, 512, 500000.0f, 1e-5f, 131072};

struct copies {
    struct bench *b;
    struct bench_kv kv;
    uint32_t *prompt;
    uint32_t tokens;
    double us[MAX_REPEATS + 1];
};

/* Every segment is the start of a prompt of its own. */
static double store_us(struct copies *c)
{
    struct engine_segment segments[STEP_TOKENS / SEGMENT_TOKENS];
    uint32_t n = c->tokens / SEGMENT_TOKENS;
    uint32_t each = bench_blocks(c->b, SEGMENT_TOKENS);

    for (uint32_t i = 0; i < n; i++)
        segments[i] = (struct engine_segment){
            .tokens = c->prompt + i * SEGMENT_TOKENS,
            .n_tokens = SEGMENT_TOKENS,
            .blocks = c->kv.blocks + (size_t)i * each,
        };
    double start_us = bench_now_us();
    int rc = engine_step(c->b->engine, segments, n, NULL, NULL, NULL);

    return rc == 0 ? bench_now_us() - start_us : rc;
}

static double upload_us(struct copies *c)
{
    uint64_t ticket = 0;

    bench_kv_forget(c->b, &c->kv, 0, c->kv.n_blocks);
    double start_us = bench_now_us();
    int rc = engine_kv_upload(c->b->engine, c->kv.blocks, c->kv.n_blocks, 0,
                              c->b->layout->layers, &ticket);
    if (rc == 0)
        rc = engine_kv_upload_done(c->b->engine, ticket, true);
    return rc >= 0 ? bench_now_us() - start_us : rc;
}

/* The first call is the warm-up. `raw`: bytes a second of a plain copy. */
static int measure(struct copies *c, const char *way, double raw,
                   double (*once)(struct copies *c))
{
    struct bench *b = c->b;
    double bytes = (double)c->kv.n_blocks * (double)b->layout->block_bytes;
    uint32_t n = 0;
    int rc = 0;

    for (; rc == 0 && n <= b->options.repeats && n <= MAX_REPEATS; n++) {
        c->us[n] = once(c);
        rc = c->us[n] < 0 ? (int)c->us[n] : 0;
    }
    if (rc != 0)
        return rc;
    double us = bench_median(c->us + 1, n - 1);
    /* An engine in host memory moves nothing. */
    double rate = b->card->copies ? bytes / us * 1e6 : (double)NAN;
    sheet_text(&b->sheet, "way", way);
    sheet_number(&b->sheet, "mb", bytes * 1e-6, 1);
    sheet_number(&b->sheet, "ms", us * 1e-3, 3);
    sheet_number(&b->sheet, "gb_per_s", rate * 1e-9, 2);
    sheet_number(&b->sheet, "raw_gb_per_s", raw * 1e-9, 2);
    sheet_number(&b->sheet, "share", rate / raw, 4);
    sheet_number(&b->sheet, "repeats", n - 1, 0);
    bench_end_row(b);
    return 0;
}

int main(int argc, char **argv)
{
    static struct bench b;
    static struct copies c;

    int rc = bench_open(&b, "bench_copy",
                        "Copies of KV blocks to the device and back through "
                        "the engine, against one\nplain copy. --model is not "
                        "used: a narrow model with the KV rows of llama3-8b.\n",
                        argc, argv);
    if (rc != 0)
        return EXIT_FAILURE;
    c.b = &b;
    c.tokens = b.options.max_tokens && b.options.max_tokens < STEP_TOKENS
                   ? b.options.max_tokens / SEGMENT_TOKENS * SEGMENT_TOKENS
                   : STEP_TOKENS;
    c.tokens = c.tokens ? c.tokens : SEGMENT_TOKENS;
    double raw[2] = {0};
    size_t bytes = model_kv_bytes_per_token(&narrow, 2) * c.tokens;
    for (int way = 0; rc == 0 && way < 2; way++)
        rc = b.card->copy((enum card_copy)way, bytes, &raw[way], b.err,
                          sizeof(b.err));
    if (rc == 0)
        rc = bench_engine(&b, &narrow, SEGMENT_TOKENS, c.tokens);
    if (rc != 0)
        goto done;
    sheet_fact(&b.sheet, "model", "narrow: KV rows of llama3-8b");
    c.prompt = bench_prompt(&b, c.tokens);
    rc = c.prompt ? bench_kv_init(&b, &c.kv, c.tokens) : -ENOMEM;
    /* The store first: it writes what the upload reads. */
    if (rc == 0)
        rc = measure(&c, "to_host", raw[CARD_TO_HOST], store_us);
    if (rc == 0)
        rc = measure(&c, "to_device", raw[CARD_TO_DEVICE], upload_us);
done:
    if (c.kv.blocks)
        bench_kv_fini(&b, &c.kv);
    free(c.prompt);
    return bench_close(&b, rc);
}
