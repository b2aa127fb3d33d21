/* The rails of a path: chooses one for the next slice, measures their rates,
 * and pauses rails that failed. */

#include "workers/transfer/engine/rdma/spread_internal.h"

/* A rate is measured over at least this many slices. */
#define MEASURE_SLICES 16u

bool spread_has_unsent(const struct spread *s)
{
    return s->n_again > 0 || !TAILQ_EMPTY(&s->ready);
}

void spread_rail_set(struct spread *s, uint32_t rail, double bytes_per_s,
                     uint32_t rail_class)
{
    s->rails[rail].bytes_per_s = bytes_per_s;
    s->rails[rail].rail_class = rail_class;
}

/* Returns the lowest class with a rail that is UP; UINT32_MAX = none. */
static uint32_t class_in_use(const struct spread *s)
{
    uint32_t lowest = UINT32_MAX;

    for (uint32_t i = 0; i < s->n_rails; i++) {
        const struct rail *r = &s->rails[i];

        if (r->state == SPREAD_UP && r->rail_class < lowest)
            lowest = r->rail_class;
    }
    return lowest;
}

uint32_t spread_pick(const struct spread *s)
{
    uint32_t in_use = class_in_use(s), best = SPREAD_NONE;
    double best_s = 0;

    for (uint32_t i = 0; i < s->n_rails; i++) {
        const struct rail *r = &s->rails[i];

        if (r->state != SPREAD_UP || r->rail_class != in_use)
            continue;
        double s_then =
            (double)(r->n_bytes + s->config.slice_bytes) / r->bytes_per_s;
        if (best == SPREAD_NONE || s_then < best_s) {
            best = i;
            best_s = s_then;
        }
    }
    if (best == SPREAD_NONE || s->rails[best].n_slices == s->config.credits)
        return SPREAD_NONE;
    return best;
}

static void measure_from(struct rail *r, int64_t now_us)
{
    r->since_us = now_us;
    r->since_bytes = 0;
}

void spread_rail_begin(struct spread *s, struct spread_slice *slice,
                       int64_t now_us)
{
    struct rail *r = &s->rails[slice->rail];

    if (r->n_slices++ == 0 || r->since_us < 0)
        measure_from(r, now_us);
    r->n_bytes += slice->bytes;
}

/* Updates the rate with what was moved while the rail always had work: the mean
 * of the old and the measured rate, or the latter alone if the old rate is the
 * card's nominal one. */
static void measure(const struct spread *s, struct rail *r, uint32_t bytes,
                    int64_t now_us)
{
    if (r->since_us < 0)
        return;
    r->since_bytes += bytes;
    if (r->since_bytes < (uint64_t)MEASURE_SLICES * s->config.slice_bytes ||
        now_us <= r->since_us)
        return;
    double rate = (double)r->since_bytes * 1e6 / (double)(now_us - r->since_us);
    r->bytes_per_s = r->measured ? (r->bytes_per_s + rate) / 2 : rate;
    r->measured = true;
    measure_from(r, now_us);
}

void spread_rail_end(struct spread *s, struct spread_slice *slice,
                     int64_t now_us)
{
    struct rail *r = &s->rails[slice->rail];

    r->n_slices--;
    r->n_bytes -= slice->bytes;
    slice->rail = SPREAD_NONE;
    if (now_us != INT64_MIN)
        measure(s, r, slice->bytes, now_us);
    else
        r->since_us = -1;
}

void spread_unmeasured(struct spread *s)
{
    for (uint32_t i = 0; i < s->n_rails; i++)
        s->rails[i].since_us = -1;
}

uint32_t spread_try(struct spread *s, bool wanted, int64_t now_us)
{
    uint32_t in_use = class_in_use(s);

    if (!wanted && !spread_has_unsent(s))
        return SPREAD_NONE;
    for (uint32_t i = 0; i < s->n_rails; i++) {
        struct rail *r = &s->rails[i];

        if (r->state != SPREAD_AWAY || r->n_slices > 0 ||
            r->retry_us > now_us || r->rail_class > in_use)
            continue;
        r->state = SPREAD_TRYING;
        return i;
    }
    return SPREAD_NONE;
}

void spread_rail_up(struct spread *s, uint32_t rail, int64_t now_us)
{
    struct rail *r = &s->rails[rail];

    r->state = SPREAD_UP;
    r->wait_us = 0;
    measure_from(r, now_us);
}

void spread_rail_failed(struct spread *s, uint32_t rail, int64_t now_us)
{
    struct rail *r = &s->rails[rail];

    if (r->state == SPREAD_AWAY)
        return;
    r->state = SPREAD_AWAY;
    if (r->wait_us == 0)
        r->wait_us = s->config.retry_first_us;
    else if (r->wait_us > s->config.retry_longest_us / 2)
        r->wait_us = s->config.retry_longest_us;
    else
        r->wait_us *= 2;
    r->retry_us = now_us + r->wait_us;
}

void spread_rail_renew(struct spread *s, uint32_t rail, int64_t at_us)
{
    struct rail *r = &s->rails[rail];

    if (r->state != SPREAD_AWAY)
        return;
    r->wait_us = 0;
    r->retry_us = at_us;
}

void spread_rail_drop(struct spread *s, uint32_t rail)
{
    s->rails[rail].state = SPREAD_AWAY;
    spread_rail_renew(s, rail, INT64_MIN);
}

enum spread_rail_state spread_rail_state(const struct spread *s, uint32_t rail)
{
    return s->rails[rail].state;
}

int64_t spread_due_us(const struct spread *s)
{
    int64_t due = INT64_MAX;

    if (s->n_ops == 0)
        return due;
    due = s->progress_us + s->config.stall_us;
    if (!spread_has_unsent(s))
        return due;
    uint32_t in_use = class_in_use(s);
    for (uint32_t i = 0; i < s->n_rails; i++) {
        const struct rail *r = &s->rails[i];

        if (r->state == SPREAD_AWAY && r->n_slices == 0 &&
            r->rail_class <= in_use && r->retry_us < due)
            due = r->retry_us;
    }
    return due;
}
