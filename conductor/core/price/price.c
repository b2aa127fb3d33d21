/* Admission by price. See price.h. */
#include "conductor/core/price/price.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/price/asked.h"

#define SHARE_MIN 0.05 /* least share of the instances' time */
#define SHARE_SLOPE 3.0
#define LASTS_WINDOWS 10.0 /* an overload that lasts longer is no burst */
#define AIM_LEAST 0.35     /* of the SLO, unless rho is less */

struct entry {
    int64_t at_us;
    int64_t slo_us;
    double x, work_us;
};

/* Numbers in ascending order, each with its weight. */
struct sorted {
    double at[PRICE_WINDOW_MAX], with[PRICE_WINDOW_MAX];
    size_t n;
};

/* Arrivals and admissions of a class of lengths, fading over a window. */
struct class
{
    double arrived, admitted;
    int64_t at_us;
};

struct price {
    struct price_config config;
    struct asked asked;
    struct entry entries[PRICE_WINDOW_MAX]; /* a ring, oldest at `first` */
    size_t first, n;
    struct sorted xs, slos; /* of the entries, weighted by their work */
    struct class classes[PRICE_CLASSES];
    double limit;
    double tied_share; /* share of arrivals exactly at the limit to admit */
    double tied;       /* sum of these shares since one arrival was admitted */
    double queue_us, slo_us, room_us; /* at the last limit: mean queue, SLO, and
                                         time of all instances in the span */
    double aim; /* at the last limit: mean queue aimed at, over the SLO */
    int64_t renewed_us;
    int64_t all_fit_us;    /* when a limit last admitted all requests */
    int64_t lost_until_us; /* the ring lost arrivals up to then */
};

static const int64_t class_tokens[PRICE_CLASSES - 1] = {4096, 16384, 32768,
                                                        65536};

const struct price_config price_config_default = {
    .rho = 0.7,
    .eases = true,
    .max_blocks = 1 << 20,
    .window_us = 60000000,
    .renew_us = 500000,
    .seed = 1,
};

struct price *price_new(const struct price_config *config)
{
    struct price *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->config = *config;
    p->limit = INFINITY;
    p->aim = config->rho;
    p->renewed_us = INT64_MIN / 2;
    p->lost_until_us = INT64_MIN / 2;
    if (asked_init(&p->asked, config->max_blocks, config->seed) < 0) {
        free(p);
        return NULL;
    }
    return p;
}

void price_free(struct price *price)
{
    if (!price)
        return;
    asked_fini(&price->asked);
    free(price);
}

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The time of those tokens of a piece [from, to) that lie in the part [begin,
 * end) of the work, computed behind `begin` cached tokens. */
static double part_us(const struct cost_model *cost, int64_t from, int64_t to,
                      int64_t begin, int64_t end)
{
    from = greater(from, begin);
    to = lesser(to, end);
    if (from >= to)
        return 0.0;
    return (double)cost_model_chunk_us(cost, to - from, from - begin, begin);
}

double price_ask(struct price *price, const struct price_work *work,
                 const struct cost_model *cost)
{
    size_t step = work->block_tokens < PRICE_PIECE_TOKENS
                      ? PRICE_PIECE_TOKENS / work->block_tokens
                      : 1;
    int64_t piece = (int64_t)step * work->block_tokens;
    double again[ASKED_EXPECT_MAX + 1], all_us = 0.0, priced_us = 0.0;
    size_t last = step; /* index behind the piece's last block */

    asked_expect(&price->asked, again);
    for (size_t i = step; i <= work->n_keys; i += step)
        asked_fetch(&price->asked, work->keys[i - 1]);
    for (int64_t at = 0; at < work->n_tokens; at += piece, last += step) {
        double us = part_us(cost, at, at + piece, work->from, work->split) +
                    part_us(cost, at, at + piece, work->cached, work->n_tokens);
        double shared = 1.0;

        if (last <= work->n_keys) {
            uint32_t count = asked_count(&price->asked, work->keys[last - 1]);

            shared += again[lesser(count, ASKED_EXPECT_MAX)];
        }
        all_us += us;
        priced_us += us / shared;
    }
    return all_us > 0.0 ? work->us * priced_us / all_us : work->us;
}

/* Index of the first number that is not below x. */
static size_t place_of(const struct sorted *s, double x)
{
    size_t low = 0, high = s->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (s->at[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Index of the first number above x. */
static size_t place_behind(const struct sorted *s, double x)
{
    return place_of(s, nextafter(x, INFINITY));
}

/* Moves the entries from `at` on to `to`. */
static void shift(struct sorted *s, size_t at, size_t to)
{
    memmove(s->at + to, s->at + at, (s->n - at) * sizeof(*s->at));
    memmove(s->with + to, s->with + at, (s->n - at) * sizeof(*s->with));
    s->n += to - at;
}

static void sorted_put(struct sorted *s, double x, double with)
{
    size_t at = place_of(s, x);

    shift(s, at, at + 1);
    s->at[at] = x;
    s->with[at] = with;
}

static void sorted_take(struct sorted *s, double x, double with)
{
    size_t at = place_of(s, x);

    while (s->with[at] < with || s->with[at] > with)
        at++;
    shift(s, at + 1, at);
}

static void drop_oldest(struct price *p)
{
    const struct entry *e = &p->entries[p->first];

    sorted_take(&p->xs, e->x, e->work_us);
    sorted_take(&p->slos, (double)e->slo_us, e->work_us + 1.0);
    p->first = (p->first + 1) % PRICE_WINDOW_MAX;
    p->n--;
}

static void enter(struct price *p, const struct price_arrival *a)
{
    while (p->n > 0 &&
           p->entries[p->first].at_us <= a->now_us - p->config.window_us)
        drop_oldest(p);
    if (p->n == PRICE_WINDOW_MAX) {
        p->lost_until_us = p->entries[p->first].at_us;
        drop_oldest(p);
    }
    p->entries[(p->first + p->n++) % PRICE_WINDOW_MAX] =
        (struct entry){a->now_us, a->slo_ttft_us, a->x, a->work_us};
    sorted_put(&p->xs, a->x, a->work_us);
    sorted_put(&p->slos, (double)a->slo_ttft_us, a->work_us + 1.0);
}

bool price_due(const struct price *price, int64_t now_us)
{
    return now_us - price->renewed_us >= price->config.renew_us;
}

/* The time that the kept arrivals cover: the window, or less if the ring lost
 * some. Time before the first arrival counts: instances were idle. */
static double span_us(const struct price *p, int64_t now_us)
{
    int64_t lost_us = now_us - p->lost_until_us;

    return (double)lesser(p->config.window_us, greater(lost_us, 1));
}

/* The median SLO, weighted by work plus 1 us for each request. */
static double middle_slo_us(const struct sorted *slos)
{
    double all = 0.0, up_to;
    size_t i = 0;

    for (size_t k = 0; k < slos->n; k++)
        all += slos->with[k];
    for (up_to = slos->with[0]; i + 1 < slos->n && up_to <= all / 2.0;)
        up_to += slos->with[++i];
    return slos->at[i];
}

/* The mean queue to aim at, as a share of the SLO. */
static double aim_of(const struct price *p, int64_t now_us)
{
    double lasted = (double)(now_us - p->all_fit_us) /
                    (LASTS_WINDOWS * (double)p->config.window_us);

    if (!p->config.eases || isinf(p->limit) || lasted <= 1.0)
        return p->config.rho;
    return fmax(p->config.rho / lasted, fmin(p->config.rho, AIM_LEAST));
}

/*
 * Returns the share to admit of the arrivals whose x is the one before place
 * `end`: as many as fit by their mean work and one more, so at least one.
 */
static double tied_share(const struct sorted *xs, size_t end, double left_us)
{
    double tied_us = 0.0, n;
    size_t first, behind;

    if (left_us >= 0.0)
        return 1.0;
    first = place_of(xs, xs->at[end - 1]);
    behind = place_behind(xs, xs->at[end - 1]);
    n = (double)(behind - first);
    for (size_t i = first; i < behind; i++) {
        tied_us += xs->with[i];
        left_us += i < end ? xs->with[i] : 0.0;
    }
    if (tied_us <= 0.0)
        return 1.0;
    return fmin(fmax(floor(left_us * n / tied_us), 0.0) + 1.0, n) / n;
}

static void renew(struct price *p, const struct price_load *load,
                  int64_t now_us)
{
    double n = load->n_instances;
    double slo_us = middle_slo_us(&p->slos);
    double rho = n > 0.0 ? load->backlog_us / n / slo_us : 0.0;
    double aim = aim_of(p, now_us);
    double share = fmax(SHARE_MIN, 1.0 + SHARE_SLOPE * (aim - rho));
    double left_us = share * load->speed * span_us(p, now_us);
    size_t i = 0;

    p->queue_us = rho * slo_us;
    p->slo_us = slo_us;
    p->aim = aim;
    p->room_us = load->speed * span_us(p, now_us);

    for (; i < p->n && left_us >= 0.0; i++)
        left_us -= p->xs.with[i];
    p->limit = left_us >= 0.0 ? INFINITY : p->xs.at[i - 1];
    p->tied_share = tied_share(&p->xs, i, left_us);
    if (left_us >= 0.0 || p->all_fit_us == 0) /* or nothing is known before */
        p->all_fit_us = now_us;
    p->renewed_us = now_us;
}

static struct class *class_of(struct price *p, const struct price_arrival *a)
{
    struct class *c = p->classes;
    double faded;

    while (c < p->classes + PRICE_CLASSES - 1 &&
           a->n_tokens >= class_tokens[c - p->classes])
        c++;
    faded = exp((double)(c->at_us - a->now_us) / (double)p->config.window_us);
    c->arrived *= faded;
    c->admitted *= faded;
    c->at_us = a->now_us;
    return c;
}

/* Whether x is within the limit. Of arrivals exactly at it, such as prompts of
 * one length, as many are as fit. */
static bool within(struct price *p, double x)
{
    if (x < p->limit || x > p->limit)
        return x < p->limit;
    p->tied += p->tied_share;
    if (p->tied < 1.0)
        return false;
    p->tied -= 1.0;
    return true;
}

bool price_arrived(struct price *price, const struct price_arrival *arrival,
                   const struct price_load *load, double *limit)
{
    struct class *c = class_of(price, arrival);
    bool admitted;

    enter(price, arrival);
    if (price_due(price, arrival->now_us))
        renew(price, load, arrival->now_us);
    *limit = price->limit;
    c->arrived += 1.0;
    admitted =
        within(price, arrival->x) ||
        (arrival->feasible && c->admitted < price->config.floor * c->arrived);
    if (admitted && arrival->feasible)
        c->admitted += 1.0;
    return admitted;
}

int64_t price_late_us(const struct price *price, double x, int64_t *queue_us)
{
    size_t upto = place_behind(&price->xs, x); /* all but itself */
    double smaller_us = 0.0, share, rho;

    *queue_us = (int64_t)price->queue_us;
    for (size_t i = 0; i + 1 < upto; i++)
        smaller_us += price->xs.with[i];
    share = price->room_us > 0.0 ? smaller_us / price->room_us : 0.0;
    if (share <= SHARE_MIN)
        return 0;
    rho = price->aim - (share - 1.0) / SHARE_SLOPE;
    if (rho < 0.0)
        return -1;
    return greater((int64_t)(price->queue_us - rho * price->slo_us), 0);
}

double price_aim(const struct price *price)
{
    return price->aim;
}

int64_t price_renewed_in_us(const struct price *price, int64_t now_us)
{
    return greater(price->renewed_us + price->config.renew_us - now_us, 1);
}
