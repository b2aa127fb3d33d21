/* How fast the disk tier reads against what fio reads from the same file with
 * O_DIRECT, in pieces of the same size and as many at once, in the same run.
 *
 * A slab is filled, then read in whole blocks and in layers, verified, in turns
 * with fio: disks have moods. Both read round and round for some seconds.
 * Prints medians and the processor time that a GB takes.
 *
 * Usage: bench_disk [FOLDER [MIB [REPEATS]]]. Without fio it says so and exits
 * with 77. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/entropy.h"
#include "base/log.h"
#include "workers/disk/tier/tier.h"

#define DEPTH 32u /* of the disk tier */
#define PIECE_BYTES (1ull << 20)
#define AHEAD_BYTES (128ull << 20) /* that are asked for at once */
#define BUFFERS_MAX 1024u
#define HUGE_BYTES (2u << 20)
#define REPEATS_MAX 99
/* Virtual disks lend some bytes at a higher rate after a pause; this long each
 * program reads before it counts, so that the loan is used up. */
#define RAMP_S 2
#define RUN_S 3

/* What is read, and how. */
struct shape {
    const char *name;
    uint32_t layers;
    uint64_t layer_bytes;
    bool by_layer;
};

/* K and V rows of a token are 8 heads x 128 x 2 bytes x 2 in one layer of
 * LLaMA-3-8B, and 256 float32 in one of `tiny`. */
static int64_t read_clock_us(const struct loop *)
{
    return clock_now_us();
}

static uint64_t random_number(struct loop *)
{
    return entropy_u64();
}

static const struct shape shapes[] = {
    {"llama3-8b, bfloat16, 256 tokens, blocks", 32, 1u << 20, false},
    {"the same, layers", 32, 1u << 20, true},
    {"tiny, float32, 256 tokens, blocks", 4, 128u << 10, false},
};

struct sample {
    double bytes_per_s;
    double cpu_s_per_gb;
};

struct bench;

/* Memory of one block. */
struct buffer {
    struct bench *b;
    uint32_t under_way;
};

struct bench {
    const char *folder;
    uint64_t bytes;
    char path[400];
    struct disk_tier_config config;
    struct disk_tier *t;
    struct disk_slab slab; /* where the data are; not open */
    uint32_t blocks;
    char *memory;
    struct buffer buffers[BUFFERS_MAX];
    uint32_t under_way;
    int rc;
};

static void on_done(void *arg, int rc)
{
    struct buffer *buffer = arg;

    buffer->under_way--;
    buffer->b->under_way--;
    if (rc < 0)
        buffer->b->rc = rc;
}

static void wait_done(struct bench *b)
{
    struct pollfd p = {.fd = disk_tier_fd(b->t), .events = POLLIN};

    poll(&p, 1, 1000);
    disk_tier_poll(b->t);
}

static void wait_all(struct bench *b)
{
    while (b->under_way > 0)
        wait_done(b);
}

static double cpu_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Bytes that do not compress, other ones in each block. */
static void fill_block(char *block, uint64_t bytes, uint32_t i)
{
    uint64_t x = i + 1;

    for (uint64_t at = 0; at + 8 <= bytes; at += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(block + at, &x, 8);
    }
}

/* Each block is the first one of a prompt of its own. */
static int fill(struct bench *b)
{
    uint32_t token;

    for (uint32_t i = 0; i < b->blocks && b->rc == 0; i++) {
        struct disk_ref ref;

        fill_block(b->memory, b->config.geometry.block_bytes, i);
        token = i;
        int rc = disk_tier_write(b->t, DISK_REF_NONE, i + 1, &token, b->memory,
                                 on_done, &b->buffers[0], &ref);
        if (rc < 0)
            return rc;
        b->buffers[0].under_way++;
        b->under_way++;
        wait_all(b);
    }
    return b->rc;
}

/* Asks for block `i`, when there is memory for it. */
static int ask(struct bench *b, const struct shape *s, uint32_t i)
{
    uint64_t block_bytes = b->config.geometry.block_bytes;
    uint32_t reads = s->by_layer ? s->layers : 1;
    uint32_t at = i % (uint32_t)(AHEAD_BYTES / block_bytes);
    struct buffer *buffer = &b->buffers[at];
    struct disk_ref ref;
    uint64_t key = i + 1;

    while (buffer->under_way > 0)
        wait_done(b);
    if (disk_tier_match(b->t, &key, &i, 1, &ref) != 1)
        return -1;
    for (uint32_t k = 0; k < reads && b->rc == 0; k++) {
        b->rc = disk_tier_read(
            b->t, ref, s->by_layer ? k : 0, s->by_layer ? k + 1 : s->layers,
            b->memory + at * block_bytes, on_done, buffer, NULL);
        buffer->under_way += b->rc == 0;
        b->under_way += b->rc == 0;
    }
    disk_tier_unpin(b->t, ref);
    return b->rc;
}

/* Reads the file in its order, round and round; what counts is what comes after
 * RAMP_S. */
static int read_tier(struct bench *b, const struct shape *s,
                     struct sample *sample)
{
    struct disk_tier_stats stats = {0};
    uint64_t from_bytes = 0;
    double from_cpu_s = 0;
    int64_t from_us = 0;
    int64_t start_us = clock_now_us();
    int64_t now_us = start_us;

    for (uint32_t i = 0; now_us - start_us < (RAMP_S + RUN_S) * 1000000;
         i = (i + 1) % b->blocks) {
        if (ask(b, s, i) < 0)
            return b->rc;
        now_us = clock_now_us();
        if (from_us > 0 || now_us - start_us < RAMP_S * 1000000)
            continue;
        disk_tier_stats(b->t, &stats);
        from_bytes = stats.read_bytes;
        from_us = now_us;
        from_cpu_s = cpu_s();
    }
    disk_tier_stats(b->t, &stats);
    double bytes = (double)(stats.read_bytes - from_bytes);
    sample->bytes_per_s = bytes / (1e-6 * (double)(now_us - from_us));
    sample->cpu_s_per_gb = (cpu_s() - from_cpu_s) / (bytes / 1e9);
    wait_all(b);
    return b->rc;
}

/* The fields of fio's terse format, version 3: bytes in KiB, milliseconds,
 * percent of a processor. */
static int parse_fio(char *line, double kib_to_bytes, struct sample *sample)
{
    double field[90] = {0};
    char *rest = line;
    char *at;
    int n = 0;

    while (n < 90 && (at = strsep(&rest, ";")))
        field[++n - 1] = strtod(at, NULL);
    double bytes = field[5] * kib_to_bytes;
    double s = field[8] / 1e3;
    if (n < 90 || bytes <= 0 || s <= 0)
        return -1;
    sample->bytes_per_s = bytes / s;
    sample->cpu_s_per_gb = (field[87] + field[88]) / 100 * s / (bytes / 1e9);
    return 0;
}

/* `huge`: its memory is in huge pages, as that of the KV blocks is. In small
 * ones a piece of 1 MiB is 256 places in memory, and the device pays for each.
 */
static int run_fio(const struct bench *b, const struct shape *s, bool huge,
                   struct sample *sample)
{
    uint64_t read_bytes = (s->by_layer ? 1 : s->layers) * s->layer_bytes;
    char command[1024];
    char line[4096];

    snprintf(
        command, sizeof(command),
        "%sfio --name=slab --filename='%s' --readonly --rw=read --direct=1 "
        "--ioengine=io_uring --iodepth=%u --bs=%llu --offset=%llu "
        "--size=%llu --time_based --ramp_time=%d --runtime=%d --thread "
        "--output-format=terse --terse-version=3",
        huge ? "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 " : "", b->path, DEPTH,
        (unsigned long long)(read_bytes < PIECE_BYTES ? read_bytes
                                                      : PIECE_BYTES),
        (unsigned long long)b->slab.data_offset,
        (unsigned long long)b->blocks * b->config.geometry.block_bytes, RAMP_S,
        RUN_S);
    FILE *f = popen(command, "r");
    if (!f)
        return -1;
    bool got = fgets(line, sizeof(line), f);
    return pclose(f) == 0 && got ? parse_fio(line, 1024, sample) : -1;
}

static int by_rate(const void *a, const void *b)
{
    const struct sample *x = a;
    const struct sample *y = b;

    return (x->bytes_per_s > y->bytes_per_s) -
           (x->bytes_per_s < y->bytes_per_s);
}

static int open_slab(struct bench *b, const struct shape *s)
{
    char err[512];

    for (uint32_t i = 0; i < BUFFERS_MAX; i++)
        b->buffers[i] = (struct buffer){.b = b};
    snprintf(b->path, sizeof(b->path), "%.300s/bench_disk.%d.slab", b->folder,
             (int)getpid());
    b->config = (struct disk_tier_config){
        .now_us = read_clock_us,
        .random = random_number,
        .path = b->path,
        .geometry = {.fingerprint = 1,
                     .block_bytes = s->layers * s->layer_bytes,
                     .block_tokens = 1,
                     .layers = s->layers},
        .max_reads = 4096,
        .max_writes = 1,
        .event_capacity = 1,
        .direct = true,
        .uring = true,
    };
    b->blocks = (uint32_t)(b->bytes / b->config.geometry.block_bytes);
    b->config.bytes = disk_slab_bytes(&b->config.geometry, b->blocks);
    b->slab.data_offset =
        b->config.bytes - b->blocks * b->config.geometry.block_bytes;
    if (disk_tier_open(&b->config, &b->t, err, sizeof(err)) == 0)
        return 0;
    fprintf(stderr, "bench_disk: %s\n", err);
    return -1;
}

/* What was measured in turns: the tier, fio in huge pages and in small ones. */
enum { TIER, FIO, FIO_SMALL, SIDES };

static int run_side(struct bench *b, const struct shape *s, int side,
                    struct sample *sample)
{
    if (side == TIER)
        return read_tier(b, s, sample);
    return run_fio(b, s, side == FIO, sample);
}

static void print_side(struct sample *samples, int n)
{
    qsort(samples, (size_t)n, sizeof(samples[0]), by_rate);
    printf(" %.0f (%.0f to %.0f), %.3f |", samples[n / 2].bytes_per_s / 1e6,
           samples[0].bytes_per_s / 1e6, samples[n - 1].bytes_per_s / 1e6,
           samples[n / 2].cpu_s_per_gb);
}

static int measure(struct bench *b, const struct shape *s, int repeats)
{
    struct sample samples[SIDES][REPEATS_MAX];
    struct sample ratio[REPEATS_MAX]; /* of neighbours in time */

    for (int i = 0; i < repeats; i++) {
        /* Who goes first may profit or suffer: take turns. */
        for (int k = 0; k < SIDES; k++) {
            int side = i % 2 ? SIDES - 1 - k : k;

            if (run_side(b, s, side, &samples[side][i]) < 0)
                return -1;
        }
        ratio[i].bytes_per_s =
            samples[TIER][i].bytes_per_s / samples[FIO][i].bytes_per_s;
    }
    printf("| %s |", s->name);
    for (int side = 0; side < SIDES; side++)
        print_side(samples[side], repeats);
    qsort(ratio, (size_t)repeats, sizeof(ratio[0]), by_rate);
    printf(" %.3f (%.3f to %.3f) |\n", ratio[repeats / 2].bytes_per_s,
           ratio[0].bytes_per_s, ratio[repeats - 1].bytes_per_s);
    fflush(stdout);
    return 0;
}

static int bench_shape(struct bench *b, const struct shape *s, int repeats)
{
    uint64_t memory_bytes = AHEAD_BYTES;
    int rc = -1;

    b->memory = aligned_alloc(HUGE_BYTES, memory_bytes);
    if (!b->memory || open_slab(b, s) < 0)
        goto free_memory;
    madvise(b->memory, memory_bytes, MADV_HUGEPAGE);
    memset(b->memory, 1, memory_bytes);
    fprintf(stderr, "%s: %u blocks, %s\n", s->name, b->blocks,
            disk_tier_way(b->t));
    rc = fill(b);
    if (rc == 0)
        rc = measure(b, s, repeats);
    disk_tier_close(b->t);
    unlink(b->path);
free_memory:
    free(b->memory);
    return rc;
}

int main(int argc, char **argv)
{
    struct bench b = {.folder = argc > 1 ? argv[1] : ".",
                      .bytes = strtoull(argc > 2 ? argv[2] : "1024", NULL, 10)
                               << 20};
    int repeats = argc > 3 ? atoi(argv[3]) : 5;

    log_init("bench_disk", LOG_WARN);
    if (b.bytes < 64u << 20 || repeats < 1 || repeats > REPEATS_MAX) {
        fprintf(stderr, "usage: bench_disk [FOLDER [MIB, at least 64 "
                        "[REPEATS, 1 to 99]]]\n");
        return 2;
    }
    if (system("fio --version >/dev/null 2>&1") != 0) {
        puts("skipped: fio is not installed, so there is nothing to compare "
             "with");
        return 77;
    }
    printf("%llu MiB, %d repeats of %d s: median (smallest to largest) MB/s, "
           "processor s/GB\n\n",
           (unsigned long long)(b.bytes >> 20), repeats, RUN_S);
    puts(
        "| what | disk tier | fio, huge pages | fio, small pages | tier to fio "
        "in huge pages |\n|---|---|---|---|---|");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (bench_shape(&b, &shapes[i], repeats) < 0) {
            fprintf(stderr, "bench_disk: %s failed\n", shapes[i].name);
            return 1;
        }
    return 0;
}
