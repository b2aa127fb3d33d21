/*
 * Times are counted in buckets, five to a factor of two from 1 ms on: a
 * quantile is the middle of its bucket, at most 8 % off.
 *
 *   points[i % HISTORY_POINTS] covers [i, i + 1) * HISTORY_POINT_US if its
 *   `index` is i; else it is an hour or more old, and counts as empty
 */
#include "conductor/service/history/history.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
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
    uint64_t prompt_tokens, reused_tokens, guessed_tokens;
    uint32_t times[KINDS][BUCKETS];
};

struct history {
    struct point points[HISTORY_POINTS];
};

struct history *history_new(void)
{
    struct history *h = calloc(1, sizeof(*h));

    for (int i = 0; h && i < HISTORY_POINTS; i++)
        h->points[i].index = -1;
    return h;
}

void history_free(struct history *history)
{
    free(history);
}

static struct point *point_now(struct history *h, int64_t now_us)
{
    int64_t index = now_us / HISTORY_POINT_US;
    struct point *p = &h->points[index % HISTORY_POINTS];

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
    if (!history)
        return;
    struct point *p = point_now(history, now_us);

    count_time(p->times[REAL], ttft_us);
    if (predicted_us > 0)
        count_time(p->times[PREDICTED], predicted_us);
}

void history_ended(struct history *history, enum history_end end,
                   int64_t now_us)
{
    if (history)
        point_now(history, now_us)->ended[end]++;
}

void history_prompt(struct history *history, uint64_t tokens, uint64_t reused,
                    uint64_t guessed, int64_t now_us)
{
    if (!history)
        return;
    struct point *p = point_now(history, now_us);

    p->prompt_tokens += tokens;
    p->reused_tokens += reused;
    p->guessed_tokens += guessed;
}

/* Returns the point of an index, or an empty one. */
static const struct point *point_at(const struct history *h, int64_t index)
{
    static const struct point none;
    const struct point *p =
        &h->points[(index + HISTORY_POINTS) % HISTORY_POINTS];

    return p->index == index && index >= 0 ? p : &none;
}

/* Returns the middle of the quantile's bucket in ms; NaN = no times. */
static double quantile_ms(const struct point *p, enum kind kind, double q)
{
    uint64_t n = 0, sum = 0;
    int i = 0;

    for (int b = 0; b < BUCKETS; b++)
        n += p->times[kind][b];
    if (n == 0)
        return NAN;
    while ((sum += p->times[kind][i]) < (uint64_t)ceil(q * (double)n))
        i++;
    return FIRST_US / 1e3 * exp2((i - 0.5) / BUCKETS_PER_DOUBLING);
}

static int put_ms(struct text_buf *out, double ms)
{
    return isnan(ms) ? text_buf_printf(out, "null")
                     : text_buf_printf(out, "%.4g", ms);
}

static const struct {
    const char *name;
    enum history_end end;
} counts[] = {{"in_time", HISTORY_IN_TIME},
              {"late", HISTORY_LATE},
              {"rejected", HISTORY_REJECTED},
              {"failed", HISTORY_FAILED}};

static const struct {
    const char *name;
    enum kind kind;
    double q;
} quantiles[] = {{"ttft_p50_ms", REAL, 0.5},
                 {"ttft_p90_ms", REAL, 0.9},
                 {"predicted_p50_ms", PREDICTED, 0.5}};

#define N(table) (sizeof(table) / sizeof((table)[0]))

int history_write(const struct history *history, unsigned n, int64_t now_us,
                  struct text_buf *out)
{
    int64_t last = now_us / HISTORY_POINT_US, first = last - (int64_t)n + 1;
    int bad = text_buf_printf(out, "\"step_s\":%d",
                              (int)(HISTORY_POINT_US / 1000000)) < 0;

    for (size_t c = 0; c < N(counts); c++) {
        bad |= text_buf_printf(out, ",\"%s\":", counts[c].name) < 0;
        for (int64_t i = first; i <= last; i++)
            bad |=
                text_buf_printf(out, "%s%" PRIu64, i == first ? "[" : ",",
                                point_at(history, i)->ended[counts[c].end]) < 0;
        bad |= text_buf_printf(out, "]") < 0;
    }
    for (size_t c = 0; c < N(quantiles); c++) {
        bad |= text_buf_printf(out, ",\"%s\":", quantiles[c].name) < 0;
        for (int64_t i = first; i <= last; i++) {
            bad |= text_buf_printf(out, i == first ? "[" : ",") < 0;
            bad |=
                put_ms(out, quantile_ms(point_at(history, i), quantiles[c].kind,
                                        quantiles[c].q)) < 0;
        }
        bad |= text_buf_printf(out, "]") < 0;
    }
    return bad ? -ENOMEM : 0;
}

static void add(struct point *sum, const struct point *p)
{
    for (int i = 0; i < HISTORY_ENDS; i++)
        sum->ended[i] += p->ended[i];
    sum->prompt_tokens += p->prompt_tokens;
    sum->reused_tokens += p->reused_tokens;
    sum->guessed_tokens += p->guessed_tokens;
    for (int kind = 0; kind < KINDS; kind++)
        for (int b = 0; b < BUCKETS; b++)
            sum->times[kind][b] += p->times[kind][b];
}

int history_write_last(const struct history *history, unsigned n,
                       int64_t now_us, struct text_buf *out)
{
    int64_t last = now_us / HISTORY_POINT_US;
    int64_t first_us = (last - (int64_t)n + 1) * HISTORY_POINT_US;
    struct point sum = {0};

    for (int64_t i = last - (int64_t)n + 1; i <= last; i++)
        add(&sum, point_at(history, i));
    int bad = text_buf_printf(out, "\"seconds\":%.1f",
                              (double)(now_us - first_us) / 1e6) < 0;
    for (size_t c = 0; c < N(counts); c++)
        bad |= text_buf_printf(out, ",\"%s\":%" PRIu64, counts[c].name,
                               sum.ended[counts[c].end]) < 0;
    bad |= text_buf_printf(
               out,
               ",\"prompt_tokens\":%" PRIu64 ",\"reused_tokens\":%" PRIu64
               ",\"guessed_tokens\":%" PRIu64,
               sum.prompt_tokens, sum.reused_tokens, sum.guessed_tokens) < 0;
    for (size_t c = 0; c < N(quantiles); c++) {
        bad |= text_buf_printf(out, ",\"%s\":", quantiles[c].name) < 0;
        bad |= put_ms(out,
                      quantile_ms(&sum, quantiles[c].kind, quantiles[c].q)) < 0;
    }
    return bad ? -ENOMEM : 0;
}
