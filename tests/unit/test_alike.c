/*
 * Whether engines are taken for equal: those that are, under noise of every
 * kind, and those that are not. Random cases; a failure names its seed.
 * Environment: CONDUCTOR_CASES percent of the seeds.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "predictor/alike.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"

#define ENGINES_MAX 4u
#define SAMPLES 4000u /* of each engine */
#define SEEDS 40u
/* Samples of an engine until it is told apart at 1.4 times the time, and until
 * an equal one is taken back, under noise that does not last. */
#define TOLD_MAX 900u
#define BACK_MAX 300u
#define TOLD_QUIET 330u
#define BACK_QUIET 100u

/* What multiplies a time. */
enum noise {
    QUIET,
    EVEN,    /* log-normal, 0.3 */
    TAILS,   /* one in ten has a heavy tail: no mean exists */
    MACHINE, /* all engines take twice as long, for about 50 samples each */
    SCALES,  /* three that last for about 2, 20 and 50 samples */
    PHASES,  /* of one engine: 1.7 times, for about 12 samples */
    ALL,
    NOISES
};

static const char *const names[NOISES] = {
    "quiet", "even", "tails", "machine", "scales", "phases", "all",
};
/* Equal engines that are called unlike, in 10 million samples at most. What
 * lasts as long as a block, or longer, and is of one engine, is no noise to
 * anybody who sees no more. */
static const double false_max[NOISES] = {[SCALES] = 200, [ALL] = 200};

struct world {
    uint64_t state;
    enum noise noise;
    bool sticky; /* one engine has nine of ten requests for a while */
    unsigned n, favourite;
    bool slow_machine, slow[ENGINES_MAX];
    double part[ENGINES_MAX][3];
    double factor; /* of engine 0 */
    struct alike_model model;
    struct alike a[ENGINES_MAX];
};

static double draw(struct world *w)
{
    return ((double)(draw_u64(&w->state) >> 11) + 1) / 9007199254740993.0;
}

static double normal(struct world *w)
{
    double size = sqrt(-2 * log(draw(w)));

    return size * cos(2 * M_PI * draw(w));
}

static double log_noise(struct world *w, unsigned e)
{
    static const double lasts[3] = {0.5, 0.95, 0.98};
    enum noise noise = w->noise;
    double x = 0.02 * normal(w);

    if (draw(w) < 1.0 / (50 * w->n))
        w->slow_machine = !w->slow_machine;
    if (noise == EVEN || noise == ALL)
        x += 0.3 * normal(w);
    if ((noise == TAILS || noise == ALL) && draw(w) < 0.1)
        x += log(1 + pow(draw(w), -1.2));
    if ((noise == MACHINE || noise == ALL) && w->slow_machine)
        x += log(2);
    for (int i = 0; (noise == SCALES || noise == ALL) && i < 3; i++) {
        double *part = &w->part[e][i];

        *part =
            lasts[i] * *part + 0.15 * sqrt(1 - lasts[i] * lasts[i]) * normal(w);
        x += *part;
    }
    if (noise == PHASES || noise == ALL) {
        if (draw(w) < (w->slow[e] ? 1.0 / 12 : 1.0 / 36))
            w->slow[e] = !w->slow[e];
        x += w->slow[e] ? log(1.7) : 0;
    }
    return x;
}

static void begin(struct world *w, uint64_t seed, enum noise noise, unsigned n,
                  bool sticky)
{
    memset(w, 0, sizeof(*w));
    w->state = (seed + 1) * 0x9e3779b97f4a7c15u + noise;
    w->noise = noise;
    w->n = n;
    w->sticky = sticky;
    w->factor = 1;
}

/* A request more. Returns whose it was; *changed: its verdict did. */
static unsigned turn(struct world *w, bool *changed)
{
    double tokens = 100 + floor(2000 * draw(w));
    unsigned e = (unsigned)(draw(w) * w->n) % w->n;

    if (w->sticky && draw(w) < 1.0 / 200)
        w->favourite = e;
    if (w->sticky && draw(w) < 0.9)
        e = w->favourite;
    double us =
        (5000 + 80 * tokens) * exp(log_noise(w, e)) * (e == 0 ? w->factor : 1);
    *changed = alike_see(&w->a[e], &w->model, (int64_t)tokens,
                         (int64_t)fmin(us, 1e12));
    return e;
}

/* Equal engines, two and four, with even and with changing shares of the
 * requests: they are equal. */
static void test_equal(void)
{
    uint32_t seeds = cases_of(SEEDS);
    struct world w;
    bool changed;

    for (unsigned noise = 0; noise < NOISES; noise++) {
        double samples = 0, called = 0;

        for (uint32_t seed = 0; seed < 4 * seeds; seed++) {
            begin(&w, seed, noise, seed % 2 ? 2 : 4, seed / 2 % 2);
            for (unsigned i = 0; i < SAMPLES * w.n; i++) {
                unsigned e = turn(&w, &changed);

                samples++;
                called += changed && w.a[e].unlike;
                if (changed && w.a[e].unlike && false_max[noise] == 0)
                    printf("%s, seed %u: engine %u after %u\n", names[noise],
                           seed, e, i);
            }
        }
        CU_ASSERT(called <= ceil(samples * false_max[noise] / 1e7));
    }
}

/* One of four takes 1.4 times as long: that is told of it alone, and forgotten
 * when it is over. */
static void test_slower(void)
{
    uint32_t seeds = cases_of(SEEDS);
    struct world w;

    for (unsigned noise = QUIET; noise <= MACHINE; noise++)
        for (uint32_t seed = 0; seed < seeds; seed++) {
            unsigned n[2] = {0, 0};

            begin(&w, seed, noise, 4, false);
            for (unsigned part = 0; part < 2; part++) {
                w.factor = part ? 1 : 1.4;
                for (unsigned i = 0; i < SAMPLES * 4; i++) {
                    bool changed;
                    unsigned e = turn(&w, &changed);

                    n[part] += e == 0;
                    CU_ASSERT_FALSE(changed && e != 0);
                    if (changed)
                        break;
                }
                CU_ASSERT_EQUAL(w.a[0].unlike, part == 0);
            }
            CU_ASSERT(n[0] <= (noise == QUIET ? TOLD_QUIET : TOLD_MAX));
            CU_ASSERT(n[1] <= (noise == QUIET ? BACK_QUIET : BACK_MAX));
            if (n[0] > TOLD_MAX || n[1] > BACK_MAX)
                printf("%s, seed %u: told after %u, back after %u\n",
                       names[noise], seed, n[0], n[1]);
        }
}

/* n samples of engine e, in turn with as many of engine 1. */
static unsigned samples_of(struct world *w, double factor, unsigned n)
{
    unsigned changes = 0;

    for (unsigned i = 0; i < n; i++) {
        changes +=
            alike_see(&w->a[0], &w->model, 500, (int64_t)(45000 * factor));
        changes += alike_see(&w->a[1], &w->model, 500, 45000);
    }
    return changes;
}

/* From which difference on, and how soon: blocks of ALIKE_BLOCK. */
static void test_margins(void)
{
    const struct {
        double factor;
        unsigned blocks; /* 0: never */
    } cases[] = {{1.15, 0}, {0.87, 0}, {1.3, 10}, {0.75, 10},
                 {2.5, 5},  {100, 2},  {0.01, 2}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        unsigned blocks = cases[i].blocks;
        struct world w = {0};

        CU_ASSERT_EQUAL(samples_of(&w, cases[i].factor,
                                   (blocks ? blocks : 30) * ALIKE_BLOCK - 1),
                        0);
        if (blocks == 0)
            continue;
        CU_ASSERT_EQUAL(samples_of(&w, cases[i].factor, 2), 1);
        CU_ASSERT_EQUAL(w.a[0].unlike + w.a[1].unlike, 1);
    }
}

/* Times that differ by less than ALIKE_US are equal; and nobody is told from
 * engines that have no work. */
static void test_not_told(void)
{
    struct world w = {0};

    for (unsigned i = 0; i < SAMPLES; i++) {
        CU_ASSERT_FALSE(alike_see(&w.a[0], &w.model, 0, 900));
        CU_ASSERT_FALSE(alike_see(&w.a[1], &w.model, 0, 300));
    }
    w = (struct world){0};
    for (unsigned i = 0; i < ALIKE_BLOCK; i++)
        CU_ASSERT_FALSE(alike_see(&w.a[1], &w.model, 500, 45000));
    for (unsigned i = 0; i < SAMPLES; i++)
        CU_ASSERT_FALSE(alike_see(&w.a[0], &w.model, 500, 90000));
}

/* One that gets no work any more is not believed to be slower for ever; its
 * next block tells. */
static void test_forgotten(void)
{
    for (int still = 0; still < 2; still++) {
        struct world w = {0};

        CU_ASSERT_EQUAL(samples_of(&w, 2.5, 5 * ALIKE_BLOCK), 1);
        CU_ASSERT_TRUE(w.a[0].unlike);
        for (unsigned i = 0; i < ALIKE_STALE - 1; i++) {
            CU_ASSERT_FALSE(alike_forget(&w.a[0], &w.model));
            CU_ASSERT_FALSE(alike_see(&w.a[1], &w.model, 500, 45000));
        }
        CU_ASSERT_TRUE(alike_forget(&w.a[0], &w.model));
        CU_ASSERT_FALSE(w.a[0].unlike);
        CU_ASSERT_FALSE(alike_forget(&w.a[0], &w.model));
        (void)samples_of(&w, still ? 2.5 : 1, ALIKE_BLOCK);
        CU_ASSERT_EQUAL(w.a[0].unlike, still);
        CU_ASSERT_FALSE(w.a[1].unlike);
    }
}

/* The last one that is alike leaves: the others have nobody to differ from. */
static void test_last(void)
{
    struct world w = {0};
    unsigned n = 0;

    CU_ASSERT_EQUAL(samples_of(&w, 2.5, 6 * ALIKE_BLOCK), 1);
    CU_ASSERT_TRUE(w.a[0].unlike);
    CU_ASSERT_EQUAL(w.model.n_alike, 1);
    alike_leave(&w.a[1], &w.model);
    CU_ASSERT_EQUAL(w.model.n_alike, 0);
    while (n < SAMPLES && !alike_see(&w.a[0], &w.model, 500, 100000))
        n++;
    CU_ASSERT(n <= ALIKE_BACK * ALIKE_BLOCK);
    CU_ASSERT_EQUAL(w.model.n_alike, 1);
    alike_leave(&w.a[0], &w.model);
    CU_ASSERT_EQUAL(w.model.n_alike, 0);
}

static const struct suite_test tests[] = {
    {"equal engines are equal", test_equal},
    {"one is slower, and equal again", test_slower},
    {"from which difference on", test_margins},
    {"what cannot be told", test_not_told},
    {"what is forgotten", test_forgotten},
    {"the last one leaves", test_last},
};
SUITE("alike", tests)
