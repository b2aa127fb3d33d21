/* How fast prefill chunks are against the device's matrix product. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "tests/gpu/bench_rig.h"
#include "tests/unit/model_facts.h"

#define MAX_TOKENS 32768
#define MAX_CHUNKS (MAX_TOKENS / 512)
#define MAX_REPEATS 16

/* Prompts of one chunk size. */
struct passes {
    uint32_t chunk;
    uint32_t tokens;
    uint32_t n; /* measured */
    double us[MAX_CHUNKS][MAX_REPEATS];
    double whole_us[MAX_REPEATS];
};

/* One prompt; keeps the times if `keep`. */
static int pass(struct bench *b, struct passes *p, const uint32_t *prompt,
                const struct bench_kv *kv, bool keep)
{
    double whole_us = 0;

    for (uint32_t at = 0; at < p->tokens; at += p->chunk) {
        uint32_t token;
        bool last = at + p->chunk >= p->tokens;
        double us = bench_step_us(b, prompt, kv, at, at + p->chunk, 0,
                                  last ? &token : NULL);

        if (us < 0)
            return (int)us;
        if (keep)
            p->us[at / p->chunk][p->n] = us;
        whole_us += us;
    }
    if (keep)
        p->whole_us[p->n++] = whole_us;
    return 0;
}

static void report(struct bench *b, struct passes *p, const char *what,
                   uint32_t from, uint32_t to, double *us, double peak)
{
    double median = bench_median(us, p->n);
    double flops = model_prefill_flops(b->shape, b->layout->layers, from, to);
    double rate = flops / median * 1e6;

    sheet_text(&b->sheet, "what", what);
    sheet_number(&b->sheet, "chunk", p->chunk, 0);
    sheet_number(&b->sheet, "from", from, 0);
    sheet_number(&b->sheet, "to", to, 0);
    sheet_number(&b->sheet, "ms", median * 1e-3, 3);
    sheet_number(&b->sheet, "tokens_per_s", (to - from) * 1e6 / median, 0);
    sheet_number(&b->sheet, "tflops", rate * 1e-12, 3);
    sheet_number(&b->sheet, "share", rate / peak, 4);
    sheet_number(&b->sheet, "repeats", p->n, 0);
    bench_end_row(b);
}

static void report_all(struct bench *b, struct passes *p, double peak)
{
    uint32_t next = 0;

    for (uint32_t at = 0; at < p->tokens; at += p->chunk) {
        if (at != next && at + p->chunk < p->tokens)
            continue;
        report(b, p, "chunk", at, at + p->chunk, p->us[at / p->chunk], peak);
        next = at < p->chunk ? p->chunk : 2 * at;
    }
    report(b, p, "prompt", 0, p->tokens, p->whole_us, peak);
}

static int measure(struct bench *b, uint32_t chunk, uint32_t tokens,
                   const uint32_t *prompt, const struct bench_kv *kv,
                   double peak, double until_s)
{
    struct passes *p = calloc(1, sizeof(*p));
    double took_s = bench_left_s(b);
    int rc = -ENOMEM;

    if (!p)
        return rc;
    p->chunk = chunk;
    p->tokens = tokens / chunk * chunk;
    rc = pass(b, p, prompt, kv, false);
    took_s -= bench_left_s(b);
    while (rc == 0 && p->n < b->options.repeats && p->n < MAX_REPEATS &&
           (p->n == 0 || bench_left_s(b) - until_s > took_s)) {
        bench_say(b, "%u-token chunks, %u of %u", chunk, p->n + 1,
                  b->options.repeats);
        rc = pass(b, p, prompt, kv, true);
    }
    if (rc == 0)
        report_all(b, p, peak);
    free(p);
    return rc;
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct bench_kv kv = {0};
    uint32_t *prompt = NULL;
    double peak = 0;

    int rc = bench_open(&b, "bench_prefill",
                        "Prefill of one prompt in chunks of 512 and of 2,048 "
                        "tokens: TFLOP/s, and their\nshare of a large matrix "
                        "product on the same device.\n",
                        argc, argv);
    if (rc != 0)
        return EXIT_FAILURE;
    uint32_t tokens = b.options.max_tokens;
    tokens = tokens == 0 || tokens > MAX_TOKENS ? MAX_TOKENS : tokens;
    rc = b.card->multiply(&peak, b.err, sizeof(b.err));
    if (rc == 0)
        rc = bench_engine(&b, NULL, 0, tokens < 2048 ? 512 : 2048);
    if (rc != 0)
        goto done;
    sheet_fact_number(&b.sheet, "peak_tflops", peak * 1e-12, 3);
    sheet_fact_number(&b.sheet, "layers", b.layout->layers, 0);
    bench_say(&b, "matrix product: %.3f TFLOP/s", peak * 1e-12);
    prompt = bench_prompt(&b, tokens);
    rc = prompt ? bench_kv_init(&b, &kv, tokens) : -ENOMEM;
    /* The larger chunk first: it has a limit to keep. */
    if (rc == 0 && tokens >= 2048)
        rc =
            measure(&b, 2048, tokens, prompt, &kv, peak, b.options.seconds / 2);
    if (rc == 0)
        rc = measure(&b, tokens < 512 ? tokens : 512, tokens, prompt, &kv, peak,
                     0);
done:
    if (kv.blocks)
        bench_kv_fini(&b, &kv);
    free(prompt);
    return bench_close(&b, rc);
}
