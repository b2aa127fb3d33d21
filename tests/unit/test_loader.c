/* The loader without engine and sockets, on an invented clock: where computing
 * and loading meet, several sources, layers, failures, pressure. */
#include <CUnit/Basic.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine_rig.h"
#include "tests/unit/load_rig.h"

#define BT 16u
#define LAYERS 4u
#define BLOCK_BYTES 1024u
#define STEP 64u
#define PROMPT 1030u /* 64 blocks may be reused, 6 tokens are left */
#define BLOCKS 64u

static const struct engine_kv_layout layout = {.layers = LAYERS,
                                               .block_tokens = BT,
                                               .kv_row_bytes = 8,
                                               .block_bytes = BLOCK_BYTES,
                                               .vocab = 512,
                                               .window_tokens = 4096,
                                               .step_tokens = STEP};

static uint32_t prompt[2][PROMPT];

static void make_prompts(void)
{
    for (uint32_t i = 0; i < PROMPT; i++) {
        prompt[0][i] = i % 251;
        prompt[1][i] = i % 241 + 1;
    }
}

/* An engine on which a token at position p takes 10 + p / 200 us. */
static int64_t run_us(double from, double n)
{
    return (int64_t)(10 * n + (from + n / 2) * n / 200);
}

static int64_t step_us(const struct engine_segment *s, uint32_t n)
{
    int64_t us = 0;

    for (uint32_t i = 0; i < n; i++)
        us += run_us(s[i].position, s[i].n_tokens);
    return us;
}

static void init(struct load_rig *rig, uint32_t blocks)
{
    struct load_rig_config c = {
        .layout = layout, .blocks = blocks, .max_prefills = 1};

    load_rig_init(rig, &c);
}

static struct rig_source *add_source(struct load_rig *rig,
                                     enum block_origin origin, double block_us,
                                     uint32_t n_blocks)
{
    struct rig_source *s = load_rig_source(rig, origin);

    s->us_per_byte = block_us / BLOCK_BYTES;
    for (int i = 0; i < 2; i++)
        source_add(s, prompt[i], n_blocks, NULL);
    return s;
}

/* TTFT of the prompt on a worker that has seen one other request like it. */
static int64_t ttft_us(enum load_mode mode, double block_us, double other_us)
{
    struct load_rig rig;

    init(&rig, 200);
    add_source(&rig, BLOCK_FROM_DISK, block_us, BLOCKS);
    if (other_us > 0)
        add_source(&rig, BLOCK_FETCHED, other_us, BLOCKS);
    for (int i = 1; i >= 0; i--) {
        int64_t start_us = rig_now_us;
        load_rig_request(&rig, prompt[i], PROMPT, 1, mode);
        CU_ASSERT(load_rig_run(&rig, step_us));
        rig.prefilled_us -= start_us;
        load_rig_settle(&rig);
    }
    CU_ASSERT_EQUAL(rig.n_done, 2);
    load_rig_fini(&rig);
    return rig.prefilled_us;
}

/* The best of all places to meet, in whole blocks. */
static int64_t ideal_us(double block_us)
{
    int64_t best = INT64_MAX;

    for (uint32_t m = 0; m <= BLOCKS; m++) {
        double load = block_us * (BLOCKS - m);
        double compute = (double)run_us(0, m * BT);
        double end = (load > compute ? load : compute) +
                     (double)run_us(m == BLOCKS ? m * BT : BLOCKS * BT,
                                    PROMPT - BLOCKS * BT);
        if (end < (double)best)
            best = (int64_t)end;
    }
    return best;
}

/* From a load ten times as slow as the engine to one ten times as fast. */
static void test_ratios(void)
{
    const double compute_us = (double)run_us(0, BLOCKS * BT);

    for (double ratio = 0.1; ratio < 10.1; ratio *= 1.2589254) {
        double block_us = compute_us / ratio / BLOCKS;
        int64_t load = ttft_us(LOAD_MODE_LOAD, block_us, 0);
        int64_t compute = ttft_us(LOAD_MODE_COMPUTE, block_us, 0);
        int64_t both = ttft_us(LOAD_MODE_BOTH, block_us, 0);
        int64_t ideal = ideal_us(block_us);
        int64_t single = load < compute ? load : compute;
        printf("\n    compute : load = %5.2f  compute %6lld load %6lld both "
               "%6lld ideal %6lld (%.3f)",
               ratio, (long long)compute, (long long)load, (long long)both,
               (long long)ideal, (double)both / (double)ideal);
        CU_ASSERT((double)both <= 1.05 * (double)ideal);
        CU_ASSERT((double)both <= 1.02 * (double)single);
    }
    printf(" ");
}

int main(void)
{
    make_prompts();
    CU_initialize_registry();
    CU_pSuite s = CU_add_suite("loader", NULL, NULL);
    CU_add_test(s, "ratios of computing and loading", test_ratios);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed > 0;
}
