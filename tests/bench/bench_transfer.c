/* How fast blocks pass from one worker to another on one machine: two processes
 * with their transfer parts and stores, whole blocks, one request at a time,
 * fetched and pushed over each transport; and how fast memcpy is with the same
 * blocks.
 * tests/bench/transfer runs it beside iperf3.
 *
 * usage: bench_transfer [MIB [RUNS [SHAPES]]]   MIB of KV a run (1024), RUNS
 *   (5); the first SHAPES of the models and block sizes (all) */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "tests/unit/transfer_rig.h"

#define RUNS_MAX 100

/* With elements of 2 bytes, as on cards. */
static const struct {
    const char *name;
    uint32_t layers;
    uint32_t row_bytes;
} shapes[] = {{"8b", 32, 2048}, {"70b", 80, 2048}};

static const uint32_t block_tokens[] = {16, 64, 256, 512};

static const char *const way_names[] = {"tcp", "shm"};

static struct engine_kv_layout layout_of(size_t shape, uint32_t tokens)
{
    return (struct engine_kv_layout){
        .layers = shapes[shape].layers,
        .block_tokens = tokens,
        .kv_row_bytes = shapes[shape].row_bytes,
        .block_bytes =
            2ull * shapes[shape].layers * tokens * shapes[shape].row_bytes,
        .vocab = 256,
        .window_tokens = 1u << 20,
        .step_tokens = 512,
    };
}

/* The child: holds the prompt, says its port, and serves until it is killed. */
static void hold(const struct engine_kv_layout *l, uint32_t n,
                 enum site_way way, int port_fd)
{
    struct loop *loop = loop_new();
    struct site s;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    site_init(&s, loop, l, n, way);
    site_hold(&s, n);
    uint16_t port = transfer_port(s.transfer);
    if (write(port_fd, &port, sizeof(port)) != sizeof(port))
        _exit(1);
    loop_run(loop);
    _exit(1);
}

/* The child: takes what is pushed, again and again, until it is killed. */
static void receive(const struct engine_kv_layout *l, uint32_t n,
                    enum site_way way, int port_fd)
{
    struct loop *loop = loop_new();
    struct site s;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    site_init(&s, loop, l, n, way);
    site_announce(&s, n * l->block_tokens);
    uint16_t port = transfer_port(s.transfer);
    if (write(port_fd, &port, sizeof(port)) != sizeof(port))
        _exit(1);
    for (;;) {
        if (s.receive_over && s.why[0])
            _exit(1);
        if (s.receive_over) {
            site_push_drop(&s);
            site_announce(&s, n * l->block_tokens);
        }
        if (loop_turn(loop, -1) < 0)
            _exit(1);
    }
}

static double fetch_gb_per_s(struct site *s, uint16_t port, uint32_t n,
                             bool compare)
{
    int64_t from_us = clock_now_us();

    site_begin(s, port, n, LOAD_MODE_LOAD);
    while (!site_done(s) && loop_turn(s->loop, -1) == 0)
        ;
    int64_t us = clock_now_us() - from_us;
    if (site_came(s, compare) < n) {
        fprintf(stderr, "bench_transfer: not all blocks came\n");
        exit(1);
    }
    site_drop(s);
    return (double)n * (double)s->layout.block_bytes / (double)us / 1e3;
}

/* CPU time of a process. */
static double cpu_s(pid_t pid)
{
    clockid_t clock;
    struct timespec t;

    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
        return 0;
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct outcome {
    double first, runs[RUNS_MAX]; /* GB/s */
    double taker_s, giver_s;      /* CPU of the two sides, for a GB */
};

static void print(size_t shape, uint32_t tokens, enum site_way way,
                  const char *what, struct outcome *o, uint32_t n)
{
    qsort(o->runs, n, sizeof(o->runs[0]), ascending);
    printf("%-4s %4u tokens %6.1f MiB %-4s %-6s  first %5.2f  median %5.2f "
           "(%.2f to %.2f) GB/s  CPU of taker %.2f, giver %.2f s/GB\n",
           shapes[shape].name, tokens,
           (double)layout_of(shape, tokens).block_bytes / 1048576,
           way_names[way], what, o->first, o->runs[n / 2], o->runs[0],
           o->runs[n - 1], o->taker_s, o->giver_s);
    fflush(stdout);
}

/* One push, all of whose KV is computed, and the CPU time that it took. 0: the
 * child was not ready for it. */
static double try_push(struct site *s, uint16_t port, uint32_t n, pid_t child,
                       struct outcome *o)
{
    double gb = (double)n * (double)s->layout.block_bytes / 1e9;

    site_push(s, port, n * s->layout.block_tokens);
    double taker_s = cpu_s(child), giver_s = cpu_s(0);
    int64_t from_us = clock_now_us();
    s->pushed->position = n * s->layout.block_tokens;
    site_push_end(s);
    while (!s->push_over && loop_turn(s->loop, -1) == 0)
        ;
    int64_t us = clock_now_us() - from_us;
    bool came = s->why[0] == '\0';
    site_push_drop(s);
    if (!came)
        return 0;
    o->taker_s += (cpu_s(child) - taker_s) / gb;
    o->giver_s += (cpu_s(0) - giver_s) / gb;
    return gb / (double)us * 1e6;
}

static double push_gb_per_s(struct site *s, uint16_t port, uint32_t n,
                            pid_t child, struct outcome *o)
{
    for (int i = 0; i < 100; i++) {
        double gb_per_s = try_push(s, port, n, child, o);

        if (gb_per_s > 0)
            return gb_per_s;
    }
    fprintf(stderr, "bench_transfer: the other side takes nothing\n");
    exit(1);
}

static void measure_push(size_t shape, uint32_t tokens, enum site_way way,
                         uint64_t bytes, uint32_t n_runs)
{
    struct engine_kv_layout l = layout_of(shape, tokens);
    uint32_t n = (uint32_t)(bytes / l.block_bytes);
    struct outcome o = {0};
    int ends[2];
    uint16_t port;
    struct site s;

    if (pipe(ends))
        exit(1);
    pid_t child = fork();
    if (child == 0)
        receive(&l, n, way, ends[1]);
    if (child < 0 || read(ends[0], &port, sizeof(port)) != sizeof(port))
        exit(1);
    struct loop *loop = loop_new();
    site_init(&s, loop, &l, n, way);
    o.first = push_gb_per_s(&s, port, n, child, &o);
    o.taker_s = o.giver_s = 0;
    for (uint32_t i = 0; i < n_runs; i++)
        o.runs[i] = push_gb_per_s(&s, port, n, child, &o);
    o.taker_s /= n_runs;
    o.giver_s /= n_runs;
    print(shape, tokens, way, "push", &o, n_runs);
    site_fini(&s);
    loop_free(loop);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
}

static void measure(size_t shape, uint32_t tokens, enum site_way way,
                    uint64_t bytes, uint32_t n_runs)
{
    struct engine_kv_layout l = layout_of(shape, tokens);
    uint32_t n = (uint32_t)(bytes / l.block_bytes);
    struct outcome o;
    int ends[2];
    uint16_t port;
    struct site s;

    if (pipe(ends))
        exit(1);
    pid_t child = fork();
    if (child == 0)
        hold(&l, n, way, ends[1]);
    if (child < 0 || read(ends[0], &port, sizeof(port)) != sizeof(port))
        exit(1);
    struct loop *loop = loop_new();
    site_init(&s, loop, &l, n + 1, way);
    o.first = fetch_gb_per_s(&s, port, n, true);
    double taker_s = cpu_s(0), giver_s = cpu_s(child);
    for (uint32_t i = 0; i < n_runs; i++)
        o.runs[i] = fetch_gb_per_s(&s, port, n, false);
    double gb = (double)n_runs * (double)n * (double)l.block_bytes / 1e9;
    o.taker_s = (cpu_s(0) - taker_s) / gb;
    o.giver_s = (cpu_s(child) - giver_s) / gb;
    print(shape, tokens, way, "fetch", &o, n_runs);
    site_fini(&s);
    loop_free(loop);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
}

/* What one thread copies, from block to block. */
static void measure_memcpy(uint64_t bytes, uint32_t n_runs)
{
    char *from = malloc(bytes), *to = malloc(bytes);
    double runs[RUNS_MAX];

    if (!from || !to)
        exit(1);
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    double s = cpu_s(0);
    for (uint32_t i = 0; i < n_runs; i++) {
        int64_t from_us = clock_now_us();

        memcpy(to, from, bytes);
        /* It is not left out. */
        __asm__ volatile("" : : "r"(to) : "memory");
        runs[i] = (double)bytes / (double)(clock_now_us() - from_us) / 1e3;
    }
    s = (cpu_s(0) - s) / (double)n_runs / (double)bytes * 1e9;
    qsort(runs, n_runs, sizeof(runs[0]), ascending);
    printf("memcpy, one thread: median %.2f (%.2f to %.2f) GB/s, CPU %.2f "
           "s/GB\n",
           runs[n_runs / 2], runs[0], runs[n_runs - 1], s);
    fflush(stdout);
    free(from);
    free(to);
}

static void measure_ways(size_t shape, uint32_t tokens, uint64_t bytes,
                         uint32_t n_runs)
{
    for (enum site_way way = SITE_TCP; way < SITE_WAYS; way++) {
        measure(shape, tokens, way, bytes, n_runs);
        measure_push(shape, tokens, way, bytes, n_runs);
    }
}

int main(int argc, char **argv)
{
    uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 1024;
    uint32_t runs = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 5;
    size_t left = argc > 3 ? strtoul(argv[3], NULL, 10) : SIZE_MAX;

    if (mib < 160 || runs < 1 || runs > RUNS_MAX || left < 1) {
        fprintf(stderr, "usage: bench_transfer [MIB (160 or more) [RUNS "
                        "[SHAPES]]]\n");
        return 2;
    }
    log_init("bench_transfer", LOG_WARN);
    measure_memcpy(mib << 20, runs);
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
        for (size_t i = 0;
             i < sizeof(block_tokens) / sizeof(block_tokens[0]) && left > 0;
             i++, left--)
            measure_ways(s, block_tokens[i], mib << 20, runs);
    return 0;
}
