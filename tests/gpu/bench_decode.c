/* How long decode steps take, over batch and KV tokens, against the time that
 * reading weights and KV once takes at the device's memory rate. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/bench_rig.h"
#include "tests/unit/model_facts.h"

#define MAX_BATCH 256
#define MAX_TOKENS 16384
#define MAX_REPEATS 64

struct decode {
    struct bench *b;
    struct bench_kv kv;
    uint32_t *prompt;
    double memory_bytes_per_s;
    struct engine_segment segments[MAX_BATCH];
};

/* The first request's KV is computed; all others get copies of its blocks: what
 * the rows hold does not change the time. */
static int fill(struct decode *d, uint32_t tokens)
{
    const struct engine_kv_layout *l = d->b->layout;
    uint32_t full = tokens / l->block_tokens;

    for (uint32_t at = 0; at < tokens; at += l->step_tokens) {
        uint32_t to = at + l->step_tokens;
        double us = bench_step_us(d->b, d->prompt, &d->kv, at,
                                  to < tokens ? to : tokens, 0, NULL);

        if (us < 0)
            return (int)us;
    }
    for (uint32_t i = bench_blocks(d->b, tokens); i < d->kv.n_blocks; i++) {
        engine_kv_forget(d->b->engine, d->kv.blocks[i]);
        memcpy(d->kv.blocks[i], d->kv.blocks[full ? i % full : 0],
               l->block_bytes);
    }
    return 0;
}

static double step_us(struct decode *d, uint32_t batch, uint32_t tokens)
{
    uint32_t each = bench_blocks(d->b, tokens);

    for (uint32_t i = 0; i < batch; i++)
        d->segments[i] = (struct engine_segment){
            .tokens = d->prompt + tokens - 1,
            .n_tokens = 1,
            .position = tokens - 1,
            .decode = true,
            .want_token = true,
            .blocks = d->kv.blocks + (size_t)i * each,
        };
    double start_us = bench_now_us();
    int rc = engine_step(d->b->engine, d->segments, batch, NULL, NULL, NULL);

    return rc == 0 ? bench_now_us() - start_us : rc;
}

static void report(struct decode *d, uint32_t batch, uint32_t tokens, double us,
                   uint32_t repeats)
{
    struct bench *b = d->b;
    const struct engine_kv_layout *l = b->layout;
    double element =
        l->kv_row_bytes / ((double)b->shape->kv_heads * b->shape->head_dim);
    double weights = model_weights(b->shape, l->layers) * element;
    double kv = 2.0 * l->layers * l->kv_row_bytes * batch * tokens;
    double rate = (weights + kv) / us * 1e6;

    sheet_number(&b->sheet, "batch", batch, 0);
    sheet_number(&b->sheet, "kv_each", tokens, 0);
    sheet_number(&b->sheet, "kv_tokens", (double)batch * tokens, 0);
    sheet_number(&b->sheet, "us", us, 1);
    sheet_number(&b->sheet, "weights_mb", weights * 1e-6, 1);
    sheet_number(&b->sheet, "kv_mb", kv * 1e-6, 1);
    sheet_number(&b->sheet, "gb_per_s", rate * 1e-9, 1);
    sheet_number(&b->sheet, "share", rate / d->memory_bytes_per_s, 4);
    sheet_number(&b->sheet, "repeats", repeats, 0);
    bench_end_row(b);
}

/* The first step brings the pages to the device, the second is a warm-up. */
static int measure(struct decode *d, uint32_t batch, uint32_t tokens)
{
    double us[MAX_REPEATS + 2];
    uint32_t want = d->b->options.repeats + 2;
    uint32_t n = 0;

    while (n < want && n < MAX_REPEATS + 2) {
        us[n] = step_us(d, batch, tokens);
        if (us[n] < 0)
            return (int)us[n];
        n++;
    }
    report(d, batch, tokens, bench_median(us + 2, n - 2), n - 2);
    return 0;
}

static int run(struct decode *d, uint32_t max_tokens, uint32_t max_batch)
{
    struct bench *b = d->b;
    int rc = fill(d, max_tokens);

    for (uint32_t tokens = max_tokens / 16; rc == 0 && tokens <= max_tokens;
         tokens *= 4) {
        for (uint32_t batch = 1; rc == 0 && batch <= max_batch; batch *= 4) {
            uint64_t blocks = (uint64_t)batch * bench_blocks(b, tokens);

            if (blocks > d->kv.n_blocks || bench_left_s(b) < 0) {
                b->sheet.left_out++;
                continue;
            }
            bench_say(b, "batch %u, %u tokens each", batch, tokens);
            rc = measure(d, batch, tokens);
            /* More than the device has room for: not a failure of the rest. */
            if (rc == -ENOMEM || rc == -ENOSPC) {
                b->sheet.left_out++;
                rc = 0;
            }
        }
    }
    return rc;
}

int main(int argc, char **argv)
{
    static struct bench b;
    static struct decode d;

    int rc = bench_open(&b, "bench_decode",
                        "Decode steps over batch and KV tokens: bytes that one "
                        "step has to read (weights\nand KV, once) over its "
                        "time, against the device's memory rate.\n",
                        argc, argv);
    if (rc != 0)
        return EXIT_FAILURE;
    uint32_t tokens = b.options.max_tokens ? b.options.max_tokens : MAX_TOKENS;
    d.b = &b;
    rc = b.card->memory(&d.memory_bytes_per_s, b.err, sizeof(b.err));
    if (rc == 0)
        rc = bench_engine(&b, NULL, 0, 0);
    if (rc != 0)
        goto done;
    sheet_fact_number(&b.sheet, "memory_gb_per_s", d.memory_bytes_per_s * 1e-9,
                      1);
    sheet_fact_number(&b.sheet, "layers", b.layout->layers, 0);
    bench_say(&b, "memory: %.1f GB/s", d.memory_bytes_per_s * 1e-9);
    uint32_t batch = b.card->gpu ? MAX_BATCH : 16;
    uint64_t have = (b.options.kv_mib << 20) / b.layout->block_bytes;
    uint64_t want = (uint64_t)batch * bench_blocks(&b, tokens);
    have = have < want ? have : want;
    d.prompt = bench_prompt(&b, tokens);
    rc = -ENOMEM;
    if (d.prompt && have >= bench_blocks(&b, tokens))
        rc = bench_kv_init(&b, &d.kv, (uint32_t)have * b.layout->block_tokens);
    if (rc == 0)
        rc = run(&d, tokens, batch);
done:
    if (d.kv.blocks)
        bench_kv_fini(&b, &d.kv);
    free(d.prompt);
    return bench_close(&b, rc);
}
