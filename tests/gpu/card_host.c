/* The processor as a device: one core. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/gpu/bench_rig.h"
#include "tests/gpu/card.h"
#include "workers/engine/cpu/cpu.h"

#define TRIES 5
#define SIDE 1024
#define COPY_BYTES ((size_t)64 << 20)

static int out_of_memory(char *err, size_t err_bytes)
{
    snprintf(err, err_bytes, "%s", strerror(ENOMEM));
    return -ENOMEM;
}

static int host_name(char *name, size_t name_bytes, char *err, size_t err_bytes)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];

    (void)err;
    (void)err_bytes;
    snprintf(name, name_bytes, "one core of an unknown processor");
    while (f && fgets(line, sizeof(line), f)) {
        char *value = strstr(line, ": ");

        if (strncmp(line, "model name", 10) == 0 && value) {
            value[strcspn(value, "\n")] = '\0';
            snprintf(name, name_bytes, "one core of %s", value + 2);
            break;
        }
    }
    if (f)
        fclose(f);
    return 0;
}

/* The product that the engine uses, at its own width. */
static int host_multiply(double *flops_per_s, char *err, size_t err_bytes)
{
    size_t n = (size_t)SIDE * SIDE;
    size_t lanes = (size_t)SIDE * CPU_LANES;
    float *w = aligned_alloc(64, (n + 2 * lanes) * sizeof(*w));
    double us[TRIES + 1];

    if (!w)
        return out_of_memory(err, err_bytes);
    for (size_t i = 0; i < n + 2 * lanes; i++)
        w[i] = (float)(i * 7919 % 1000) * 0x1p-10f;
    for (int try = 0; try <= TRIES; try++) {
        int64_t start_us = clock_now_us();

        for (size_t i = 0; i < SIDE / CPU_LANES; i++)
            cpu_multiply(SIDE, SIDE, w, w + n, 0, w + n + lanes);
        us[try] = (double)(clock_now_us() - start_us);
    }
    free(w);
    *flops_per_s = 2e6 * (double)n * SIDE / bench_median(us + 1, TRIES);
    return 0;
}

static double copy_us(void *to, const void *from, size_t bytes)
{
    double us[TRIES + 1];

    for (int try = 0; try <= TRIES; try++) {
        int64_t start_us = clock_now_us();

        memcpy(to, from, bytes);
        us[try] = (double)(clock_now_us() - start_us);
    }
    double median = bench_median(us + 1, TRIES);
    return median < 1 ? 1 : median;
}

static int host_memory(double *bytes_per_s, char *err, size_t err_bytes)
{
    char *memory = malloc(2 * COPY_BYTES);

    if (!memory)
        return out_of_memory(err, err_bytes);
    memset(memory, 1, 2 * COPY_BYTES);
    *bytes_per_s =
        2e6 * COPY_BYTES / copy_us(memory, memory + COPY_BYTES, COPY_BYTES);
    free(memory);
    return 0;
}

/* Both ways are the same. */
static int host_copy(enum card_copy way, size_t bytes, double *bytes_per_s,
                     char *err, size_t err_bytes)
{
    char *memory = malloc(2 * bytes);

    (void)way;
    if (!memory)
        return out_of_memory(err, err_bytes);
    memset(memory, 1, 2 * bytes);
    double us = copy_us(memory, memory + bytes, bytes);
    free(memory);
    *bytes_per_s = 1e6 * (double)bytes / us;
    return 0;
}

static int emulated_name(char *name, size_t name_bytes, char *err,
                         size_t err_bytes)
{
    (void)err;
    (void)err_bytes;
    snprintf(name, name_bytes, "an emulated card");
    return 0;
}

const struct card card_emulated = {
    .gpu = false,
    .copies = true,
    .name = emulated_name,
    .multiply = host_multiply,
    .memory = host_memory,
    .copy = host_copy,
};

const struct card card_host = {
    .gpu = false,
    .copies = false,
    .name = host_name,
    .multiply = host_multiply,
    .memory = host_memory,
    .copy = host_copy,
};
