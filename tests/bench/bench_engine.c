/* How fast engine "cpu" is against what one core can do: sgemm of a large
 * square, measured in the same run.
 * Usage: bench_engine [MODEL [LAYERS]] */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/unit/model_facts.h"
#include "workers/engine/cpu/kernels.h"
#include "workers/engine/engine.h"

#define PEAK_SIDE 1024
#define MAX_TOKENS 8192

static double peak_gflops(void)
{
    size_t n = (size_t)PEAK_SIDE * PEAK_SIDE;
    float *a = calloc(3 * n, sizeof(*a));
    int64_t best_us = INT64_MAX;

    if (!a)
        return 0;
    for (int i = 0; i < 4; i++) {
        int64_t start_us = clock_now_us();

        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, PEAK_SIDE,
                    PEAK_SIDE, PEAK_SIDE, 1, a, PEAK_SIDE, a + n, PEAK_SIDE, 0,
                    a + 2 * n, PEAK_SIDE);
        int64_t us = clock_now_us() - start_us;
        best_us = us < best_us ? us : best_us;
    }
    free(a);
    return 2e-3 * (double)n * PEAK_SIDE / (double)best_us;
}

static void **new_blocks(const struct engine_kv_layout *l, uint32_t tokens)
{
    uint32_t n = (tokens + l->block_tokens - 1) / l->block_tokens;
    void **blocks = calloc(n, sizeof(*blocks));

    for (uint32_t i = 0; blocks && i < n; i++) {
        blocks[i] = aligned_alloc(64, l->block_bytes);
        if (!blocks[i])
            return NULL;
    }
    return blocks;
}

/* Computes tokens [from, to), microseconds, or -1. */
static int64_t time_steps(struct engine *e, const uint32_t *tokens,
                          void *const *blocks, uint32_t from, uint32_t to,
                          uint32_t chunk)
{
    int64_t start_us = clock_now_us();

    for (uint32_t at = from; at < to; at += chunk) {
        struct engine_segment s = {
            .tokens = tokens + at,
            .n_tokens = to - at < chunk ? to - at : chunk,
            .position = at,
            .want_token = true,
            .blocks = blocks,
        };
        if (engine_step(e, &s, 1, NULL, NULL, NULL) != 0)
            return -1;
    }
    return clock_now_us() - start_us;
}

int main(int argc, char **argv)
{
    const struct model_shape *shape = model_find(argc > 1 ? argv[1] : "tiny");
    struct engine_config config = {
        .kind = "cpu",
        .shape = shape,
        .layers = argc > 2 ? (uint32_t)atoi(argv[2]) : 0,
    };
    static uint32_t tokens[MAX_TOKENS];
    char err[256];

    struct engine *e = engine_new(&config, err, sizeof(err));
    if (!e) {
        fprintf(stderr, "bench_engine: %s\n", err);
        return 1;
    }
    const struct engine_kv_layout *l = engine_kv_layout(e);
    double peak = peak_gflops();
    const char *better = engine_blas_coretype();
    printf("%s, %u layers; OpenBLAS core %s, kernels %s; one core's sgemm "
           "%.1f GFLOP/s\n",
           shape->name, l->layers, openblas_get_corename(),
           cpu_kernels_best()->isa, peak);
    if (better)
        printf("OpenBLAS does not know this processor: "
               "OPENBLAS_CORETYPE=%s is faster\n",
               better);
    for (uint32_t i = 0; i < MAX_TOKENS; i++)
        tokens[i] = 32 + i * 7919 % 95;
    void **blocks = new_blocks(l, MAX_TOKENS);
    if (!blocks)
        return 1;
    uint32_t most = shape->d_model > 1024 ? 512 : MAX_TOKENS;
    printf("%-16s %10s %10s %10s %8s\n", "", "us", "tokens/s", "GFLOP/s",
           "of peak");
    for (uint32_t n = 128; n <= most; n *= 4) {
        int64_t us = time_steps(e, tokens, blocks, 0, n, 512);
        double gflops =
            model_prefill_flops(shape, l->layers, 0, n) * 1e-3 / (double)us;

        printf("prefill %-8u %10lld %10.0f %10.1f %7.0f%%\n", n, (long long)us,
               n * 1e6 / (double)us, gflops, 100 * gflops / peak);
        uint32_t steps = most > 512 ? 16 : 2;
        us = time_steps(e, tokens, blocks, n - steps, n, 1) / steps;
        gflops =
            model_prefill_flops(shape, l->layers, n - 1, n) * 1e-3 / (double)us;
        printf("decode  %-8u %10lld %10.0f %10.1f %7.0f%%\n", n, (long long)us,
               1e6 / (double)us, gflops, 100 * gflops / peak);
    }
    for (uint32_t i = 0;
         i < (MAX_TOKENS + l->block_tokens - 1) / l->block_tokens; i++)
        free(blocks[i]);
    free(blocks);
    engine_free(e);
    return 0;
}
