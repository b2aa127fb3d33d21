/* The Cake experiment: the time to the first token of a prompt whose KV is
 * behind a slow link, by computing, by loading and by both, against the merge
 * without loss of the first two. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/cake_run.h"

#define MAX_REPEATS 15

struct cell {
    uint32_t tokens;
    double util_pct; /* of the token budget that the request gets */
    double gbps;
};

/* The most telling ones first: time may end before the list does. */
static const struct cell gpu_cells[] = {
    {16384, 100, 32},  {16384, 12.5, 32}, {4096, 100, 7},     {16384, 100, 100},
    {8192, 50, 25},    {4096, 12.5, 100}, {16384, 50, 56},    {4096, 50, 25},
    {8192, 100, 56},   {8192, 12.5, 56},  {16384, 12.5, 100}, {16384, 100, 25},
    {4096, 12.5, 7},   {8192, 100, 7},    {4096, 100, 32},    {16384, 50, 25},
    {16384, 12.5, 25}, {8192, 50, 7},     {16384, 100, 7},    {16384, 12.5, 7},
};

/* A trial's, on half of --max-tokens and on all: a link about as slow as one
 * core. */
static void trial_cells(uint32_t most, struct cell out[4])
{
    const struct cell cells[4] = {{most, 100, 0.25},
                                  {most, 12.5, 0.25},
                                  {most / 2, 50, 0.1},
                                  {most, 50, 1}};

    memcpy(out, cells, sizeof(cells));
}

/* What is measured once for several cells. */
struct known {
    const struct cell *cell;
    struct cake_computed *computed;
    struct cake_loaded *loaded;
};

#define MAX_CELLS (sizeof(gpu_cells) / sizeof(gpu_cells[0]))

struct experiment {
    struct bench *b;
    struct cake cake;
    uint32_t *prompt;
    struct known known[MAX_CELLS];
};

/* Of results whose first member is their time. */
static int by_us(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* How often something of about `us` microseconds may be repeated: a tenth of
 * the time that is left, at least once. */
static uint32_t repeats(const struct bench *b, double us)
{
    double room = bench_left_s(b) * 1e5 / (us + 1);
    uint32_t most =
        b->options.repeats < MAX_REPEATS ? b->options.repeats : MAX_REPEATS;

    return room >= most ? most : room < 1 ? 1 : (uint32_t)room;
}

/* Computes the prompt of this cell unless an earlier one did: every step's
 * median. */
static int compute(struct experiment *x, size_t at)
{
    struct known *k = &x->known[at];
    struct cake_computed *out = calloc(1, sizeof(*out));

    double(*step_us)[MAX_REPEATS] = calloc(CAKE_MAX_STEPS, sizeof(*step_us));
    double all_us[MAX_REPEATS];
    uint32_t n = 0;
    /* The first one is a warm-up, and tells how long it takes. */
    int rc = out && step_us ? cake_compute(&x->cake, out) : -ENOMEM;
    uint32_t want = rc == 0 ? repeats(x->b, out->us) : 0;

    for (; rc == 0 && n < want; n++) {
        rc = cake_compute(&x->cake, out);
        all_us[n] = out->us;
        for (uint32_t i = 0; i < out->n_steps; i++)
            step_us[i][n] = out->step_us[i];
    }
    if (rc == 0) {
        out->us = bench_median(all_us, n);
        for (uint32_t i = 0; i < out->n_steps; i++)
            out->step_us[i] = bench_median(step_us[i], n);
    }
    free(step_us);
    k->computed = out;
    return rc;
}

/* A link's delay hardly differs from one time to the next. */
static int load(struct experiment *x, size_t at)
{
    struct known *k = &x->known[at];
    uint32_t want = 1;
    int rc = 0;

    k->loaded = calloc(MAX_REPEATS, sizeof(*k->loaded));
    if (!k->loaded)
        return -ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < want; i++) {
        rc = cake_load(&x->cake, &k->loaded[i]);
        if (i == 0)
            want = repeats(x->b, k->loaded[0].us);
    }
    qsort(k->loaded, want, sizeof(*k->loaded), by_us);
    k->loaded[0] = k->loaded[want / 2];
    return rc;
}

static int both(struct experiment *x, double about_us, struct cake_both *out,
                uint32_t *n)
{
    struct cake_both tries[MAX_REPEATS];
    int rc = 0;

    *n = repeats(x->b, about_us);
    for (uint32_t i = 0; rc == 0 && i < *n; i++)
        rc = cake_both(&x->cake, &tries[i]);
    if (rc != 0)
        return rc;
    qsort(tries, *n, sizeof(tries[0]), by_us);
    *out = tries[*n / 2];
    return 0;
}

static void report(struct experiment *x, const struct known *k,
                   const struct cake_both *both, uint32_t n)
{
    struct sheet *s = &x->b->sheet;
    double ideal_us = cake_ideal_us(&x->cake, k->computed, k->loaded);
    double best_us =
        k->computed->us < k->loaded->us ? k->computed->us : k->loaded->us;
    bool equal =
        both->token == k->computed->token && both->token == k->loaded->token;

    sheet_number(s, "tokens", k->cell->tokens, 0);
    sheet_number(s, "util_pct", k->cell->util_pct, 1);
    sheet_number(s, "gbps", k->cell->gbps, 2);
    sheet_number(s, "compute_ms", k->computed->us * 1e-3, 2);
    sheet_number(s, "load_ms", k->loaded->us * 1e-3, 2);
    sheet_number(s, "both_ms", both->us * 1e-3, 2);
    sheet_number(s, "ideal_ms", ideal_us * 1e-3, 2);
    sheet_number(s, "to_ideal", both->us / ideal_us, 4);
    sheet_number(s, "to_best", both->us / best_us, 4);
    sheet_number(s, "computed_pct",
                 100.0 * both->split_block / cake_blocks(&x->cake), 1);
    sheet_text(s, "same_answer", equal ? "yes" : "no");
    sheet_number(s, "repeats", n, 0);
    bench_end_row(x->b);
}

/* Whether the cell fits the time that is left; what is not known yet is taken
 * for nothing. */
static bool fits(const struct experiment *x, const struct known *k)
{
    double load_s = cake_blocks(&x->cake) * (double)x->b->layout->block_bytes /
                    x->cake.bytes_per_s;
    double left_s = bench_left_s(x->b);

    return left_s > (k->loaded ? 0 : load_s) +
                        (k->computed ? k->computed->us * 1e-6 : 0) &&
           left_s > 0;
}

static int run_cell(struct experiment *x, size_t at)
{
    struct known *k = &x->known[at];
    const struct cell *c = k->cell;
    struct cake_both result;
    uint32_t n;
    int rc = 0;

    x->cake.n_tokens = c->tokens;
    x->cake.budget = (uint32_t)(CAKE_STEP_TOKENS * c->util_pct / 100);
    x->cake.bytes_per_s = c->gbps * 1e9 / 8;
    for (size_t i = 0; i < at; i++) {
        const struct known *o = &x->known[i];

        if (o->cell->tokens != c->tokens)
            continue;
        if (o->computed && o->cell->util_pct == c->util_pct)
            k->computed = o->computed;
        /* The suffix has steps of the budget as well. */
        if (o->loaded && o->cell->gbps == c->gbps &&
            o->cell->util_pct == c->util_pct)
            k->loaded = o->loaded;
    }
    if (!fits(x, k)) {
        x->b->sheet.left_out++;
        return 0;
    }
    bench_say(x->b, "%u tokens, %g %%, %g Gbit/s", c->tokens, c->util_pct,
              c->gbps);
    if (!k->computed)
        rc = compute(x, at);
    if (rc != 0)
        return rc;
    cake_learn(&x->cake, k->computed);
    if (!k->loaded)
        rc = load(x, at);
    if (rc == 0)
        rc = both(x,
                  k->computed->us < k->loaded->us ? k->computed->us
                                                  : k->loaded->us,
                  &result, &n);
    if (rc == 0)
        report(x, k, &result, n);
    return rc;
}

static int run(struct experiment *x, const struct cell *cells, size_t n,
               uint32_t most)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        x->known[i].cell = &cells[i];
        if (cells[i].tokens > most)
            x->b->sheet.left_out++;
        else
            rc = run_cell(x, i);
    }
    for (size_t i = 0; i < n; i++) {
        const struct known *k = &x->known[i];

        for (size_t j = i + 1; j < n; j++) {
            if (x->known[j].computed == k->computed)
                x->known[j].computed = NULL;
            if (x->known[j].loaded == k->loaded)
                x->known[j].loaded = NULL;
        }
        free(k->computed);
        free(k->loaded);
    }
    return rc;
}

int main(int argc, char **argv)
{
    static struct bench b;
    static struct experiment x;

    int rc = bench_open(&b, "bench_cake",
                        "Prompts whose KV is behind a slow link: computed, "
                        "loaded, and both at once\nuntil they meet, against "
                        "the merge without loss of the measured times.\n",
                        argc, argv);
    if (rc != 0)
        return EXIT_FAILURE;
    struct cell trial[4];
    uint32_t most = b.options.max_tokens ? b.options.max_tokens
                    : b.card->gpu        ? CAKE_MAX_TOKENS
                                         : 1024;
    most = most < CAKE_MAX_TOKENS ? most : CAKE_MAX_TOKENS;
    x.b = x.cake.b = &b;
    rc = bench_engine(&b, NULL, CAKE_BLOCK_TOKENS, CAKE_STEP_TOKENS);
    if (rc == 0) {
        uint64_t room = (b.options.kv_mib << 20) / b.layout->block_bytes;

        if (room < most / CAKE_BLOCK_TOKENS)
            most = (uint32_t)room * CAKE_BLOCK_TOKENS;
        sheet_fact_number(&b.sheet, "layers", b.layout->layers, 0);
        x.prompt = bench_prompt(&b, most);
        rc = x.prompt ? bench_kv_init(&b, &x.cake.kv, most) : -ENOMEM;
        /* Rather the shorter prompts than none. */
        while (rc == -ENOMEM && x.prompt && most > 4096) {
            most /= 2;
            rc = bench_kv_init(&b, &x.cake.kv, most);
        }
        x.cake.prompt = x.prompt;
    }
    if (rc == 0 && b.card->gpu)
        rc = run(&x, gpu_cells, MAX_CELLS, most);
    if (rc == 0 && !b.card->gpu) {
        trial_cells(most, trial);
        rc = run(&x, trial, 4, most);
    }
    if (x.cake.kv.blocks)
        bench_kv_fini(&b, &x.cake.kv);
    free(x.prompt);
    return bench_close(&b, rc);
}
