/* Standings of tenants. See share.h. */
#include "conductor/core/share/share.h"

#include <math.h>
#include <string.h>

#define FADE_EVERY_US 1000000
#define PRICE_MOST 3.0
/* From here to SHARE_GREEDY no tenant gives way, since use varies. */
#define POOR 0.75

/* Sums over the tenants that have a share now, for standings. */
struct sums {
    double weight, used_us;
    uint32_t n;
};

void share_init(struct share *share)
{
    memset(share, 0, sizeof(*share));
    share->slowdown = 1;
    for (uint32_t i = 0; i < SHARE_TENANTS; i++)
        share->tenants[i].weight = 1.0;
}

bool share_is_active(const struct share *share, uint32_t place, int64_t now_us)
{
    const struct share_tenant *t = &share->tenants[place];

    return t->seen && (t->waiting > 0 || now_us - t->asked_us <
                                             share->slowdown * SHARE_WINDOW_US);
}

static void fade(struct share *s, int64_t now_us)
{
    double faded;

    if (now_us - s->faded_us < s->slowdown * FADE_EVERY_US)
        return;
    faded = exp((double)(s->faded_us - now_us) /
                (double)(s->slowdown * SHARE_WINDOW_US));
    for (uint32_t i = 0; i < SHARE_TENANTS; i++)
        for (uint32_t k = 0; k < SHARE_WORKS; k++)
            s->tenants[i].used_us[k] *= faded;
    s->faded_us = now_us;
}

/* A tenant's place, or one that can be reused; 0 = none. */
static uint32_t place_of(const struct share *s, uint64_t name, int64_t now_us)
{
    uint32_t free = 0;

    for (uint32_t i = 1; name && i < SHARE_TENANTS; i++) {
        const struct share_tenant *t = &s->tenants[i];

        if (t->name == name)
            return i;
        if (!share_is_active(s, i, now_us) &&
            (free == 0 || (t->seen && s->tenants[free].seen
                               ? t->asked_us < s->tenants[free].asked_us
                               : t->seen < s->tenants[free].seen)))
            free = i;
    }
    return free;
}

/* The earliest priority of at least the last SHARE_PRIORITY_US. */
static int32_t earliest(struct share *s, uint32_t place, int64_t now_us)
{
    struct share_tenant *t = &s->tenants[place];
    int64_t past_us = now_us - t->period_us;
    int64_t period_us = s->slowdown * SHARE_PRIORITY_US;

    if (past_us >= period_us) {
        t->first[1] = past_us < 2 * period_us ? t->first[0] : INT32_MAX;
        t->first[0] = INT32_MAX;
        t->period_us = now_us;
    }
    return t->first[0] < t->first[1] ? t->first[0] : t->first[1];
}

uint32_t share_arrived(struct share *share, uint64_t name, double weight,
                       int32_t priority, int64_t now_us)
{
    uint32_t place = place_of(share, name, now_us);
    struct share_tenant *t = &share->tenants[place];

    fade(share, now_us);
    if (!t->seen || (place > 0 && t->name != name)) {
        share->n_seen += !t->seen;
        *t = (struct share_tenant){.name = place ? name : 0,
                                   .seen = true,
                                   .first = {INT32_MAX, INT32_MAX},
                                   .period_us = now_us};
    }
    t->weight = place && weight > 0.0 ? weight : 1.0;
    t->asked_us = now_us;
    for (uint32_t k = 0; t->waiting == 0 && k < SHARE_WORKS; k++)
        t->turn_us[k] = fmax(t->turn_us[k], share->turn_us[k]);
    earliest(share, place, now_us);
    if (priority < t->first[0])
        t->first[0] = priority;
    share->matters = share->matters || share->n_seen > 1 || priority != 0;
    return place;
}

void share_use(struct share *share, uint32_t place, enum share_work work,
               double us, int64_t now_us)
{
    struct share_tenant *t = &share->tenants[place];

    fade(share, now_us);
    share->turn_us[work] = fmax(share->turn_us[work], t->turn_us[work]);
    t->turn_us[work] += us / t->weight;
    t->used_us[work] += us;
}

void share_correct(struct share *share, uint32_t place, uint64_t name,
                   enum share_work work, double us, int64_t since_us,
                   int64_t now_us)
{
    struct share_tenant *t = &share->tenants[place];
    double lowest = fmin(t->turn_us[work], share->turn_us[work]);
    double left = exp((double)(since_us - now_us) /
                      (double)(share->slowdown * SHARE_WINDOW_US));

    if (place > 0 && t->name != name)
        return;
    fade(share, now_us);
    t->turn_us[work] = fmax(t->turn_us[work] + us / t->weight, lowest);
    t->used_us[work] = fmax(t->used_us[work] + us * left, 0.0);
}

void share_forgive(struct share *share, uint32_t place, double most_us)
{
    double turn_us = share_turn(share, place);

    for (uint32_t i = 0; i < SHARE_TENANTS; i++) {
        struct share_tenant *t = &share->tenants[i];
        double least_us = turn_us - most_us / t->weight;

        if (i == place || t->waiting == 0 || share_turn(share, i) >= least_us)
            continue;
        t->turn_us[t->turn_us[SHARE_DECODE] > t->turn_us[SHARE_PREFILL]
                       ? SHARE_DECODE
                       : SHARE_PREFILL] = least_us;
    }
}

/* Time used, of the kind of work that the tenant used more of. */
static double used_us(const struct share_tenant *t)
{
    return fmax(t->used_us[SHARE_PREFILL], t->used_us[SHARE_DECODE]);
}

static struct sums sum(struct share *s, uint32_t place, int64_t now_us)
{
    struct sums sums = {.n = 0};

    fade(s, now_us);
    for (uint32_t i = 0; i < SHARE_TENANTS; i++) {
        const struct share_tenant *t = &s->tenants[i];

        if (i != place && !share_is_active(s, i, now_us))
            continue;
        sums.weight += t->weight;
        sums.used_us += used_us(t);
        sums.n++;
    }
    return sums;
}

static double standing(const struct share_tenant *t, const struct sums *sums)
{
    if (sums->used_us <= 0.0)
        return 1.0;
    return used_us(t) * sums->weight / (t->weight * sums->used_us);
}

double share_standing(struct share *share, uint32_t place, int64_t now_us)
{
    struct sums sums = sum(share, place, now_us);

    return standing(&share->tenants[place], &sums);
}

/* Whether the tenant also sent earlier priorities. */
static bool is_late(struct share *share, uint32_t place, int32_t priority,
                    int64_t now_us)
{
    return share_orders(share, place) &&
           priority > earliest(share, place, now_us);
}

/* The longest queue that an SLO allows, by the tenant's standing. */
static int64_t within_slo_us(double had, const struct sums *sums,
                             int64_t slo_us)
{
    /* A queue within an SLO soon drains when a second tenant comes. */
    if (sums->n < 2 || had < SHARE_GREEDY)
        return INT64_MAX;
    return had < 2 * SHARE_GREEDY - 1.0 ? slo_us / 4 * 3 : slo_us / 2;
}

/* Whether a tenant that had less is waiting for a short queue. */
static bool keeps_waiting(const struct share *s, uint32_t place, double had,
                          const struct sums *sums)
{
    for (uint32_t i = 0; i < SHARE_TENANTS; i++)
        if (i != place && s->tenants[i].patient > 0 &&
            standing(&s->tenants[i], sums) < had)
            return true;
    return false;
}

int64_t share_queue_us(struct share *share, uint32_t place, int32_t priority,
                       int64_t slo_us, int64_t now_us)
{
    bool late = is_late(share, place, priority, now_us);
    int64_t short_us = share->slowdown * SHARE_QUEUE_US, most_us;
    struct sums sums;
    double had;

    if (!share->matters || (!late && share->n_seen < 2))
        return INT64_MAX;
    if (slo_us <= 0)
        return short_us;
    sums = sum(share, place, now_us);
    had = standing(&share->tenants[place], &sums);
    most_us = late ? slo_us / 2 : within_slo_us(had, &sums, slo_us);
    return most_us > short_us && keeps_waiting(share, place, had, &sums)
               ? short_us
               : most_us;
}

double share_price(struct share *share, uint32_t place, int32_t priority,
                   int64_t now_us)
{
    double had, times;

    if (!share->matters)
        return 1.0;
    had = share_standing(share, place, now_us);
    times = had < POOR           ? 1.0 - 4.0 * (POOR - had)
            : had > SHARE_GREEDY ? 1.0 + 2.0 * (had - SHARE_GREEDY)
                                 : 1.0;
    times = fmin(fmax(times, 0.0), PRICE_MOST);
    return is_late(share, place, priority, now_us) ? 2.0 * times : times;
}
