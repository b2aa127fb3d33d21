/* How fast queues fall while requests keep coming. */
#include <math.h>

#include "conductor/core/schedule/internal.h"

#define PACE_US 60000000.0 /* the work of about a minute */
#define SURE 2.0           /* standard deviations */
#define OFTEN 2.3 /* -log of how often queues are longer: in 1 of 10 cases */
#define BEGIN_US 10000000.0 /* the least time to average over */
#define TOLD_MAX_US 300000000.0

static double faded(const struct schedule_pace *p, int64_t now_us)
{
    return exp((double)(p->at_us - now_us) / p->tau_us);
}

void schedule_pace_init(struct schedule_pace *p, int64_t slower)
{
    p->slower = slower > 0 ? (double)slower : 1.0;
    p->tau_us = PACE_US * p->slower;
}

void schedule_pace_add(struct schedule_pace *p, int64_t work_us, int64_t now_us)
{
    double keep = faded(p, now_us), us = (double)work_us;

    if (p->square <= 0.0)
        p->begun_us = now_us;
    p->work_us = p->work_us * keep + us;
    p->square = p->square * keep + us * us;
    p->at_us = now_us;
}

/* Returns the number of prefill instances, eligible or not. */
static uint32_t n_prefills(const struct scheduler *s)
{
    const struct schedule_request any = {.only = POOL_NO_INSTANCE};
    uint32_t n = 0;

    for (uint32_t slot = 0; slot < pool_slots(s->pool); slot++)
        n += schedule_takes_work(&any, pool_at(s->pool, slot), ROLE_PREFILL);
    return n;
}

/*
 * n instances compute n seconds of work a second, and get `work` on average
 * with a variance of `square`: a diffusion with the drift -d. After T it has
 * fallen by at least d T - SURE sqrt(square T); T is sought for n late_us.
 * In the long run it exceeds w with the probability exp(-2 d w / square).
 */
int64_t schedule_pace_in_us(const struct scheduler *s, int64_t queue_us,
                            int64_t late_us, int64_t now_us)
{
    const struct schedule_pace *p = &s->pace;
    double passed_us =
        fmax((double)(now_us - p->begun_us), BEGIN_US * p->slower);
    double known_us = p->tau_us * (1.0 - exp(-passed_us / p->tau_us));
    double keep = faded(p, now_us), n = n_prefills(s);
    double d = n - p->work_us * keep / known_us;
    double square = p->square * keep / known_us;
    double spread = SURE * sqrt(square), root, us;

    if (late_us <= 0 || square <= 0.0)
        return late_us;
    if (d <= 0.0 || 2.0 * d * n * (double)(queue_us - late_us) < OFTEN * square)
        return -1;
    root = (spread + sqrt(spread * spread + 4.0 * d * n * (double)late_us)) /
           (2.0 * d);
    us = root * root;
    return us <= TOLD_MAX_US * p->slower ? (int64_t)us : -1;
}
