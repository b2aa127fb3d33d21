/* What the loader itself takes for a piece, without sources and engine: blocks
 * of a long prompt, whole and by layers, from one source and from two, which
 * bring each piece as soon as they are asked for it.
 *
 * usage: bench_loader [REPEATS]   (5) */
#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "tests/unit/load_rig.h"

#define LAYERS 32u
#define BT 16u
#define REPEATS_MAX 99

static const struct {
    const char *name;
    uint32_t blocks;
    enum load_mode mode;
    uint32_t sources;
} cases[] = {
    {"256 blocks", 256, LOAD_MODE_LOAD, 1},
    {"4096 blocks", 4096, LOAD_MODE_LOAD, 1},
    {"4096 blocks, two sources", 4096, LOAD_MODE_LOAD, 2},
    {"256 blocks by 32 layers", 256, LOAD_MODE_LAYERWISE, 1},
    {"256 blocks by 32 layers, two sources", 256, LOAD_MODE_LAYERWISE, 2},
    {"4096 blocks by 32 layers", 4096, LOAD_MODE_LAYERWISE, 1},
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

static int repeats = 5;

static double cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* Each source brings what it was asked for first. Returns the pieces. */
static uint64_t bring(struct load_rig *rig)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < rig->n_sources; i++) {
        if (rig->sources[i].n_pieces == 0)
            continue;
        rig_now_us += 8;
        source_deliver(&rig->sources[i], 0);
        n++;
    }
    load_rig_poke(rig);
    return n;
}

/* Microseconds a piece. */
static double load_us(uint32_t blocks, enum load_mode mode, uint32_t sources)
{
    struct load_rig_config c = {.layout = {.layers = LAYERS,
                                           .block_tokens = BT,
                                           .kv_row_bytes = 8,
                                           .block_bytes = LAYERS * BT * 16ull,
                                           .vocab = 512,
                                           .window_tokens = 1u << 20,
                                           .step_tokens = 512},
                                .blocks = blocks + 40,
                                .max_prefills = 1};
    uint32_t n = blocks * BT + 6;
    uint32_t *prompt = calloc(n, sizeof(*prompt));
    struct load_rig rig;
    uint64_t pieces = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(prompt);
    load_rig_init(&rig, &c);
    for (uint32_t i = 0; i < sources; i++)
        source_add(load_rig_source(&rig, BLOCK_FETCHED), prompt, blocks, NULL);
    double from_us = cpu_us();
    struct request *r = load_rig_request(&rig, prompt, n, 1, mode);
    while (r->load.job)
        pieces += bring(&rig);
    double us = cpu_us() - from_us;
    load_rig_cancel(&rig, r->id);
    load_rig_fini(&rig);
    free(prompt);
    return us / (double)pieces;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;

    return (*x > *y) - (*x < *y);
}

static void measure(void)
{
    double us[REPEATS_MAX];

    for (size_t i = 0; i < CASES; i++) {
        for (int k = 0; k < repeats; k++)
            us[k] = load_us(cases[i].blocks, cases[i].mode, cases[i].sources);
        qsort(us, (size_t)repeats, sizeof(us[0]), by_value);
        printf("%-37s %5.2f us a piece (%.2f to %.2f)\n", cases[i].name,
               us[repeats / 2], us[0], us[repeats - 1]);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        repeats = atoi(argv[1]);
    if (repeats < 1 || repeats > REPEATS_MAX) {
        fprintf(stderr, "usage: bench_loader [REPEATS]   1 to %d\n",
                REPEATS_MAX);
        return 2;
    }
    log_init("bench_loader", LOG_ERROR);
    /* The rig asserts, which takes a suite. */
    CU_initialize_registry();
    CU_add_test(CU_add_suite("bench", NULL, NULL), "loader", measure);
    CU_basic_set_mode(CU_BRM_SILENT);
    CU_basic_run_tests();
    unsigned failed = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed > 0;
}
