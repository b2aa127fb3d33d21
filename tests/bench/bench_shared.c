/* Whether somebody else computes on the cores of this machine, and what that
 * costs engine "cpu". Two hardware threads of a core share its units. In a
 * virtual machine the other thread may be a neighbour's, whom Linux counts
 * neither as load nor as stolen time.
 *
 * A chain of multiplications waits for itself and takes as long beside a
 * neighbour; independent additions fill the core and take up to twice as long.
 * So the clock is the first, and who else is there is the second.
 * Usage: bench_shared [ROUNDS [PAUSE_MS [TOKENS]]]
 *        bench_shared --watch PAUSE_MS: only looks, until it is ended; a line a
 *        look: when, in us since 1970, and what additions took, in ns. Run it
 *        with taskset, once on each core. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "workers/engine/engine.h"

#define MAX_ROUNDS 10000
#define MAX_TOKENS 512
#define BLOCK_TOKENS 32
#define STEPS 100000     /* of a probe */
#define LOOK_STEPS 20000 /* of one that shall not be noticed */

/* The empty assembly keeps the compiler from computing the result. */
static double chain_us(void)
{
    uint64_t x = 3;
    int64_t start_us = clock_now_us();

    for (int i = 0; i < STEPS; i++) {
        x *= 0x9e3779b97f4a7c15;
        __asm__ volatile("" : "+r"(x));
    }
    return (double)(clock_now_us() - start_us);
}

static void additions(int steps)
{
    uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;

    for (int i = 0; i < steps; i++) {
        a++, b++, c++, d++, e++, f++;
        __asm__ volatile(""
                         : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e),
                           "+r"(f));
    }
}

static double additions_us(void)
{
    int64_t start_us = clock_now_us();

    additions(STEPS);
    return (double)(clock_now_us() - start_us);
}

struct round {
    double chain, additions, prefill;
};

static int by_additions(const void *a, const void *b)
{
    const struct round *x = a, *y = b;

    return (x->additions > y->additions) - (x->additions < y->additions);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Quartiles of one kind of time in rounds [from, to). */
static void print_quartiles(const char *name, const struct round *rounds,
                            size_t from, size_t to, size_t offset)
{
    static double us[MAX_ROUNDS];
    size_t n = to - from;

    for (size_t i = 0; i < n; i++)
        us[i] = *(const double *)((const char *)&rounds[from + i] + offset);
    qsort(us, n, sizeof(us[0]), by_value);
    printf("  %-10s %9.0f %9.0f %9.0f\n", name, us[n / 4], us[n / 2],
           us[n * 3 / 4]);
}

static void print_part(const char *name, const struct round *rounds,
                       size_t from, size_t to, size_t n)
{
    printf("%s: %.0f %% of %zu rounds%s\n", name,
           100.0 * (double)(to - from) / (double)n, n,
           to > from ? "; quartiles in us" : "");
    if (to == from)
        return;
    print_quartiles("chain", rounds, from, to, offsetof(struct round, chain));
    print_quartiles("additions", rounds, from, to,
                    offsetof(struct round, additions));
    print_quartiles("prefill", rounds, from, to,
                    offsetof(struct round, prefill));
}

/* The core is taken to be free where additions take at most 1.25 times as long
 * as in the fastest twentieth of the rounds, and shared from 1.6 times on. */
static void report(struct round *rounds, size_t n)
{
    size_t free_end = 0, shared_from = 0;

    qsort(rounds, n, sizeof(rounds[0]), by_additions);
    double least = rounds[n / 20].additions;
    while (free_end < n && rounds[free_end].additions <= 1.25 * least)
        free_end++;
    while (shared_from < n && rounds[shared_from].additions < 1.6 * least)
        shared_from++;
    print_part("core to itself", rounds, 0, free_end, n);
    print_part("between", rounds, free_end, shared_from, n);
    print_part("core shared", rounds, shared_from, n, n);
}

/* The probes stand on both sides of the prefill. Returns false if the engine
 * failed. */
static bool measure(struct engine *e, void *const *blocks, uint32_t n_tokens,
                    struct round *r)
{
    uint32_t tokens[MAX_TOKENS];
    struct engine_segment s = {
        .tokens = tokens,
        .n_tokens = n_tokens,
        .want_token = true,
        .blocks = blocks,
    };

    for (uint32_t i = 0; i < n_tokens; i++)
        tokens[i] = 32 + i * 7919 % 95;
    r->chain = chain_us();
    r->additions = additions_us();
    int64_t start_us = clock_now_us();
    if (engine_step(e, &s, 1, NULL, NULL, NULL) != 0)
        return false;
    r->prefill = (double)(clock_now_us() - start_us);
    r->additions = (r->additions + additions_us()) / 2;
    return true;
}

static int64_t now_ns(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* The least of three, as Linux may give the core to another in between. */
static int64_t look_ns(void)
{
    int64_t least = INT64_MAX;

    for (int i = 0; i < 3; i++) {
        int64_t start_ns = now_ns(CLOCK_MONOTONIC);

        additions(LOOK_STEPS);
        int64_t ns = now_ns(CLOCK_MONOTONIC) - start_ns;
        least = ns < least ? ns : least;
    }
    return least;
}

static int watch(int pause_ms)
{
    const struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000L};
    int64_t at_us, took_ns;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    do {
        (void)nanosleep(&pause, NULL);
        took_ns = look_ns();
        at_us = now_ns(CLOCK_REALTIME) / 1000;
    } while (printf("%" PRId64 " %" PRId64 "\n", at_us, took_ns) > 0);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--watch") == 0)
        return watch(atoi(argv[2]));
    int rounds = argc > 1 ? atoi(argv[1]) : 500;
    int pause_ms = argc > 2 ? atoi(argv[2]) : 20;
    int tokens = argc > 3 ? atoi(argv[3]) : MAX_TOKENS;
    const struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000L};
    struct engine_config config = {.kind = "cpu",
                                   .shape = model_find("tiny"),
                                   .block_tokens = BLOCK_TOKENS};
    static struct round seen[MAX_ROUNDS];
    void *blocks[MAX_TOKENS / BLOCK_TOKENS];
    char err[256];

    if (rounds < 1 || rounds > MAX_ROUNDS || pause_ms < 0 || tokens < 1 ||
        tokens > MAX_TOKENS) {
        fprintf(stderr, "usage: bench_shared [ROUNDS [PAUSE_MS [TOKENS]]]\n");
        return 2;
    }
    struct engine *e = engine_new(&config, err, sizeof(err));
    if (!e) {
        fprintf(stderr, "bench_shared: %s\n", err);
        return 1;
    }
    size_t bytes = engine_kv_layout(e)->block_bytes;
    size_t n_blocks = sizeof(blocks) / sizeof(blocks[0]);
    char *kv = engine_kv_alloc(e, n_blocks * bytes);
    int status = kv ? 0 : 1;
    for (size_t i = 0; kv && i < n_blocks; i++)
        blocks[i] = kv + i * bytes;
    for (int i = 0; status == 0 && i < rounds; i++) {
        (void)nanosleep(&pause, NULL);
        status = measure(e, blocks, (uint32_t)tokens, &seen[i]) ? 0 : 1;
    }
    if (status == 0)
        report(seen, (size_t)rounds);
    engine_kv_free(e, kv);
    engine_free(e);
    return status;
}
