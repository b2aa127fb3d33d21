/*
 * Times are counted in buckets, five to a factor of two from 1 ms on: a
 * quantile is the middle of its bucket, at most 8 % off. Means are exact.
 *
 *   points[i % n] of a ring covers [i, i + 1) * point_us if its `index` is i;
 *   else it is older than the ring is long, and counts as empty
 */
#include "conductor/service/history/history.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/json/text_buf.h"

#define BUCKETS 90
#define BUCKETS_PER_DOUBLING 5.0
#define FIRST_US 1000.0

enum kind { REAL, PREDICTED, KINDS };

struct point {
    int64_t index;
    uint64_t ended[HISTORY_ENDS];
    uint64_t promises_kept, promises_late;
    uint64_t prompt_tokens, reused_tokens, guessed_tokens;
    uint64_t ttft_us; /* the sum of the real ones */
    uint32_t times[KINDS][BUCKETS];
};

/* The points of a span, and where they begin among all. */
struct ring {
    int64_t point_us;
    unsigned n, first;
};

static const struct ring rings[HISTORY_SPANS] = {
    [HISTORY_5M] = {INT64_C(5000000), 60, 0},
    [HISTORY_1H] = {HISTORY_POINT_US, HISTORY_POINTS, 60},
    [HISTORY_24H] = {INT64_C(240000000), 360, 60 + HISTORY_POINTS},
};

#define POINTS (60 + HISTORY_POINTS + 360)

struct history {
    struct point points[POINTS];
};

struct history *history_new(void)
{
    struct history *h = calloc(1, sizeof(*h));

    for (int i = 0; h && i < POINTS; i++)
        h->points[i].index = -1;
    return h;
}

void history_free(struct history *history)
{
    free(history);
}

static struct point *point_now(struct history *h, unsigned span, int64_t now_us)
{
    const struct ring *ring = &rings[span];
    int64_t index = now_us / ring->point_us;
    struct point *p = &h->points[ring->first + index % ring->n];

    if (p->index != index) {
        memset(p, 0, sizeof(*p));
        p->index = index;
    }
    return p;
}

static void count_time(uint32_t *times, int64_t us)
{
    double at = us > 0 ? BUCKETS_PER_DOUBLING * log2((double)us / FIRST_US) : 0;

    times[at <= 0.0 ? 0 : at >= BUCKETS - 1 ? BUCKETS - 1 : (int)at + 1]++;
}

void history_first_token(struct history *history, int64_t predicted_us,
                         int64_t ttft_us, int64_t now_us)
{
    for (unsigned span = 0; history && span < HISTORY_SPANS; span++) {
        struct point *p = point_now(history, span, now_us);

        count_time(p->times[REAL], ttft_us);
        p->ttft_us += ttft_us > 0 ? (uint64_t)ttft_us : 0;
        if (predicted_us > 0)
            count_time(p->times[PREDICTED], predicted_us);
    }
}

void history_promise(struct history *history, bool kept, int64_t now_us)
{
    for (unsigned span = 0; history && span < HISTORY_SPANS; span++) {
        struct point *p = point_now(history, span, now_us);

        p->promises_kept += kept;
        p->promises_late += !kept;
    }
}

void history_ended(struct history *history, enum history_end end,
                   int64_t now_us)
{
    for (unsigned span = 0; history && span < HISTORY_SPANS; span++) {
        struct point *p = point_now(history, span, now_us);

        p->ended[end]++;
    }
}

void history_prompt(struct history *history, uint64_t tokens, uint64_t reused,
                    uint64_t guessed, int64_t now_us)
{
    for (unsigned span = 0; history && span < HISTORY_SPANS; span++) {
        struct point *p = point_now(history, span, now_us);

        p->prompt_tokens += tokens;
        p->reused_tokens += reused;
        p->guessed_tokens += guessed;
    }
}

/* Returns the point of an index, or an empty one. */
static const struct point *point_at(const struct history *h,
                                    const struct ring *ring, int64_t index)
{
    static const struct point none;
    const struct point *p =
        &h->points[ring->first + (index + ring->n) % ring->n];

    return p->index == index && index >= 0 ? p : &none;
}

static uint64_t times_of(const struct point *p, enum kind kind)
{
    uint64_t n = 0;

    for (int b = 0; b < BUCKETS; b++)
        n += p->times[kind][b];
    return n;
}

/* Returns the middle of the quantile's bucket in ms; NaN = no times. q 0 = the
 * mean, of real times alone. */
static double quantile_ms(const struct point *p, enum kind kind, double q)
{
    uint64_t n = times_of(p, kind), sum = 0;
    int i = 0;

    if (n == 0)
        return NAN;
    if (q <= 0)
        return (double)p->ttft_us / 1e3 / (double)n;
    while ((sum += p->times[kind][i]) < (uint64_t)ceil(q * (double)n))
        i++;
    return FIRST_US / 1e3 * exp2((i - 0.5) / BUCKETS_PER_DOUBLING);
}

static int put_ms(struct text_buf *out, double ms)
{
    return isnan(ms) ? text_buf_printf(out, "null")
                     : text_buf_printf(out, "%.4g", ms);
}

#define COUNT(name, member)                  \
    {                                        \
        name, offsetof(struct point, member) \
    }

static const struct {
    const char *name;
    size_t offset;
} counts[] = {COUNT("in_time", ended[HISTORY_IN_TIME]),
              COUNT("late", ended[HISTORY_LATE]),
              COUNT("rejected", ended[HISTORY_REJECTED]),
              COUNT("failed", ended[HISTORY_FAILED]),
              COUNT("promises_kept", promises_kept),
              COUNT("promises_late", promises_late),
              COUNT("prompt_tokens", prompt_tokens),
              COUNT("reused_tokens", reused_tokens),
              COUNT("guessed_tokens", guessed_tokens)};

static const struct {
    const char *name;
    enum kind kind;
    double q;
} quantiles[] = {{"ttft_mean_ms", REAL, 0},
                 {"ttft_p50_ms", REAL, 0.5},
                 {"ttft_p90_ms", REAL, 0.9},
                 {"ttft_p99_ms", REAL, 0.99},
                 {"predicted_p50_ms", PREDICTED, 0.5}};

#define N(table) (sizeof(table) / sizeof((table)[0]))

static uint64_t count_at(const struct point *p, size_t c)
{
    uint64_t n;

    memcpy(&n, (const char *)p + counts[c].offset, sizeof(n));
    return n;
}

int history_write(const struct history *history, enum history_span span,
                  int64_t now_us, struct text_buf *out)
{
    const struct ring *ring = &rings[span];
    int64_t last = now_us / ring->point_us, first = last - ring->n + 1;
    int bad =
        text_buf_printf(out, "\"step_s\":%d,\"last_s\":%.1f",
                        (int)(ring->point_us / 1000000),
                        (double)(now_us - last * ring->point_us) / 1e6) < 0;

    for (size_t c = 0; c < N(counts); c++) {
        bad |= text_buf_printf(out, ",\"%s\":", counts[c].name) < 0;
        for (int64_t i = first; i <= last; i++)
            bad |= text_buf_printf(out, "%s%" PRIu64, i == first ? "[" : ",",
                                   count_at(point_at(history, ring, i), c)) < 0;
        bad |= text_buf_printf(out, "]") < 0;
    }
    for (size_t c = 0; c < N(quantiles); c++) {
        bad |= text_buf_printf(out, ",\"%s\":", quantiles[c].name) < 0;
        for (int64_t i = first; i <= last; i++) {
            bad |= text_buf_printf(out, i == first ? "[" : ",") < 0;
            bad |=
                put_ms(out, quantile_ms(point_at(history, ring, i),
                                        quantiles[c].kind, quantiles[c].q)) < 0;
        }
        bad |= text_buf_printf(out, "]") < 0;
    }
    return bad ? -ENOMEM : 0;
}

static void add(struct point *sum, const struct point *p)
{
    for (int i = 0; i < HISTORY_ENDS; i++)
        sum->ended[i] += p->ended[i];
    sum->promises_kept += p->promises_kept;
    sum->promises_late += p->promises_late;
    sum->prompt_tokens += p->prompt_tokens;
    sum->reused_tokens += p->reused_tokens;
    sum->guessed_tokens += p->guessed_tokens;
    sum->ttft_us += p->ttft_us;
    for (int kind = 0; kind < KINDS; kind++)
        for (int b = 0; b < BUCKETS; b++)
            sum->times[kind][b] += p->times[kind][b];
}

int history_write_last(const struct history *history, unsigned n,
                       int64_t now_us, struct text_buf *out)
{
    const struct ring *ring = &rings[HISTORY_1H];
    int64_t last = now_us / ring->point_us;
    int64_t first_us = (last - (int64_t)n + 1) * ring->point_us;
    struct point sum = {0};

    for (int64_t i = last - (int64_t)n + 1; i <= last; i++)
        add(&sum, point_at(history, ring, i));
    int bad = text_buf_printf(out, "\"seconds\":%.1f",
                              (double)(now_us - first_us) / 1e6) < 0;
    for (size_t c = 0; c < N(counts); c++)
        bad |= text_buf_printf(out, ",\"%s\":%" PRIu64, counts[c].name,
                               count_at(&sum, c)) < 0;
    for (size_t c = 0; c < N(quantiles); c++) {
        bad |= text_buf_printf(out, ",\"%s\":", quantiles[c].name) < 0;
        bad |= put_ms(out,
                      quantile_ms(&sum, quantiles[c].kind, quantiles[c].q)) < 0;
    }
    return bad ? -ENOMEM : 0;
}
