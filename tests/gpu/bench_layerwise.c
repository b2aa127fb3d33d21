/* How many layers of load stay exposed when a prefix is loaded layer by layer
 * while the layers that are there compute the suffix: the time to the first
 * token less that of the suffix with everything in place, over the load of one
 * layer. One layer cannot be hidden; more should be, as long as a layer loads
 * in less time than it computes.
 *
 *   host   the prefix is in host blocks; the step itself brings it to the
 *          device
 *   link   the layers reach the host one after the other, each in 0.8 times
 *          the time that a layer computes, and the device from there */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "tests/gpu/bench_rig.h"

#define MAX_REPEATS 32
#define LINK_SHARE 0.8

struct layerwise {
    struct bench *b;
    struct bench_kv kv;
    uint32_t *prompt;
    uint32_t prefix;
    uint32_t suffix;
    /* The link: layer l is there at start_us + (l + 1) layer_us. */
    double start_us;
    double layer_us;
};

static int wait_for_layer(void *arg, size_t segment, uint32_t layer)
{
    const struct layerwise *w = arg;
    double left_us = w->start_us + (layer + 1) * w->layer_us - bench_now_us();

    (void)segment;
    if (left_us > 0) {
        const struct timespec ts = {(time_t)(left_us * 1e-6),
                                    (long)fmod(left_us * 1e3, 1e9)};

        nanosleep(&ts, NULL);
    }
    return 0;
}

static const struct engine_step_ops link_ops = {.layer_wait = wait_for_layer};

/* The suffix, microseconds or a negative errno. `forget`: the prefix is only on
 * the host at first. */
static double suffix_us(struct layerwise *w, bool forget, bool link)
{
    struct engine_segment s = {
        .tokens = w->prompt + w->prefix,
        .n_tokens = w->suffix,
        .position = w->prefix,
        .cached_tokens = w->prefix,
        .want_token = true,
        .blocks = w->kv.blocks,
    };

    if (forget)
        bench_kv_forget(w->b, &w->kv, 0, bench_blocks(w->b, w->prefix));
    w->start_us = bench_now_us();
    int rc = engine_step(w->b->engine, &s, 1, link ? &link_ops : NULL, w, NULL);
    return rc == 0 ? bench_now_us() - w->start_us : rc;
}

/* The prefix alone, microseconds or a negative errno. */
static double load_us(struct layerwise *w)
{
    struct engine *e = w->b->engine;
    uint32_t blocks = bench_blocks(w->b, w->prefix);
    uint64_t ticket = 0;

    bench_kv_forget(w->b, &w->kv, 0, blocks);
    double start_us = bench_now_us();
    int rc = engine_kv_upload(e, w->kv.blocks, blocks, 0, w->b->layout->layers,
                              &ticket);
    if (rc == 0)
        rc = engine_kv_upload_done(e, ticket, true);
    return rc >= 0 ? bench_now_us() - start_us : rc;
}

/* Median of the three, after a warm-up of each. */
struct times {
    double suffix_us[MAX_REPEATS + 1];
    double load_us[MAX_REPEATS + 1];
    double both_us[MAX_REPEATS + 1];
};

static int time_all(struct layerwise *w, struct times *t, bool link, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        t->load_us[i] = load_us(w);
        if (t->load_us[i] < 0)
            return (int)t->load_us[i];
        t->suffix_us[i] = suffix_us(w, false, false);
        if (t->suffix_us[i] < 0)
            return (int)t->suffix_us[i];
    }
    if (link)
        w->layer_us = LINK_SHARE * bench_median(t->suffix_us + 1, n - 1) /
                      w->b->layout->layers;
    /* A layer's load is a hundredth of the suffix: what is compared is measured
     * side by side, as warm as each other. */
    for (uint32_t i = 0; i < n; i++) {
        t->both_us[i] = suffix_us(w, true, link);
        if (t->both_us[i] < 0)
            return (int)t->both_us[i];
        t->suffix_us[i] = suffix_us(w, false, false);
        if (t->suffix_us[i] < 0)
            return (int)t->suffix_us[i];
    }
    return 0;
}

static int measure(struct layerwise *w, bool link)
{
    struct bench *b = w->b;
    double layers = b->layout->layers;
    uint32_t n = b->options.repeats < MAX_REPEATS ? b->options.repeats + 1
                                                  : MAX_REPEATS + 1;
    struct times t;

    bench_say(b, "%s: %u cached, %u computed", link ? "link" : "host",
              w->prefix, w->suffix);
    int rc = time_all(w, &t, link, n);
    if (rc != 0)
        return rc;
    double suffix = bench_median(t.suffix_us + 1, n - 1);
    double both = bench_median(t.both_us + 1, n - 1);
    /* From the link to the host, and from the host to the device: one layer
     * takes both, and of many the slower way counts. */
    double hop = bench_median(t.load_us + 1, n - 1) / layers;
    double layer = hop + (link ? w->layer_us : 0);
    double each = link ? fmax(hop, w->layer_us) : hop;
    double compute = suffix / layers;
    double ideal = fmax(layer + suffix, layer + (layers - 1) * each + compute);
    sheet_text(&b->sheet, "from", link ? "link" : "host");
    sheet_number(&b->sheet, "cached", w->prefix, 0);
    sheet_number(&b->sheet, "computed", w->suffix, 0);
    sheet_number(&b->sheet, "suffix_ms", suffix * 1e-3, 3);
    sheet_number(&b->sheet, "load_layer_ms", layer * 1e-3, 4);
    sheet_number(&b->sheet, "compute_layer_ms", compute * 1e-3, 4);
    sheet_number(&b->sheet, "layerwise_ms", both * 1e-3, 3);
    sheet_number(&b->sheet, "exposed_layers", (both - suffix) / layer, 3);
    sheet_number(&b->sheet, "ideal_layers", (ideal - suffix) / layer, 3);
    /* Else the link alone takes longer than the suffix. */
    sheet_text(&b->sheet, "can_hide", each <= compute ? "yes" : "no");
    sheet_number(&b->sheet, "repeats", n - 1, 0);
    bench_end_row(b);
    return 0;
}

/* Computes the prefix, so that the host blocks hold it. */
static int fill(struct layerwise *w, uint32_t tokens)
{
    uint32_t most = w->b->layout->step_tokens;

    for (uint32_t at = 0; at < tokens; at += most) {
        double us =
            bench_step_us(w->b, w->prompt, &w->kv, at,
                          at + most < tokens ? at + most : tokens, 0, NULL);

        if (us < 0)
            return (int)us;
    }
    return 0;
}

static int run(struct layerwise *w, uint32_t most)
{
    /* Shares of the longest: the suffix is a quarter, an eighth of it. */
    static const uint32_t cells[][2] = {{2, 8}, {4, 8}, {1, 8}, {4, 16}};
    int rc = fill(w, most);

    for (size_t i = 0; rc == 0 && i < sizeof(cells) / sizeof(cells[0]); i++) {
        w->prefix = most / cells[i][0];
        w->suffix = most / cells[i][1];
        for (int link = 0; rc == 0 && link < 2; link++)
            if (bench_left_s(w->b) < 0)
                w->b->sheet.left_out++;
            /* An engine in host memory has nothing to bring anywhere. */
            else if (link || w->b->card->copies)
                rc = measure(w, link);
    }
    return rc;
}

int main(int argc, char **argv)
{
    static struct bench b;
    static struct layerwise w;

    int rc = bench_open(&b, "bench_layerwise",
                        "Layerwise loading: layers of load that the suffix's "
                        "computing does not hide.\n",
                        argc, argv);
    if (rc != 0)
        return EXIT_FAILURE;
    uint32_t most = b.options.max_tokens ? b.options.max_tokens : 16384;
    most = most < 256 ? 256 : most / 256 * 256;
    w.b = &b;
    rc = bench_engine(&b, NULL, most < 4096 ? 16 : 256, most / 8);
    if (rc == 0) {
        sheet_fact_number(&b.sheet, "layers", b.layout->layers, 0);
        w.prompt = bench_prompt(&b, most + most / 8);
        rc = w.prompt ? bench_kv_init(&b, &w.kv, most + most / 8) : -ENOMEM;
    }
    if (rc == 0)
        rc = run(&w, most);
    if (w.kv.blocks)
        bench_kv_fini(&b, &w.kv);
    free(w.prompt);
    return bench_close(&b, rc);
}
