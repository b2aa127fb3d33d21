/* The rate at which a source sends. */
#include "workers/load/rate.h"

#include <stdbool.h>

static int64_t window_us(const struct load_rate *r)
{
    int64_t open_us = r->end_us > r->since_us ? r->end_us - r->since_us : 0;

    return r->kept_us + open_us;
}

static bool is_sample(const struct load_rate *r)
{
    return r->window_bytes > 0 && window_us(r) > 0 &&
           (window_us(r) >= r->config->least_us ||
            r->window_bytes >= r->config->least_bytes);
}

/* Computes the smoothed sums with the present windows as one more sample. */
static void sums(const struct load_rate *r, double *us, double *bytes)
{
    const struct load_rate_config *c = r->config;
    double new_us = (double)window_us(r);
    double most_us = r->bytes > 0 ? c->most_slower * r->us / r->bytes *
                                        (double)r->window_bytes
                                  : 0;

    if (most_us > 0 && new_us > most_us)
        new_us = most_us;
    double keep = 1 / (1 + new_us / (double)c->memory_us);
    *us = keep * r->us + new_us;
    *bytes = keep * r->bytes + (double)r->window_bytes;
}

static void take_in(struct load_rate *r)
{
    if (is_sample(r)) {
        sums(r, &r->us, &r->bytes);
        r->window_bytes = 0;
        r->kept_us = 0;
    } else {
        r->kept_us = window_us(r);
    }
    r->since_us = r->end_us;
}

void load_rate_begin(struct load_rate *r, int64_t now_us)
{
    if (r->end_us > r->since_us)
        take_in(r);
    if (r->n_open == 0)
        r->since_us = r->end_us = now_us;
    r->n_open++;
}

void load_rate_end(struct load_rate *r, int64_t now_us, uint64_t bytes)
{
    r->n_open--;
    if (bytes == 0)
        return;
    r->window_bytes += bytes;
    r->end_us = now_us;
}

double load_rate_us_per_byte(const struct load_rate *r)
{
    double us = r->us + (double)window_us(r);
    double bytes = r->bytes + (double)r->window_bytes;

    return bytes > 0 ? us / bytes : 0;
}

double load_rate_bytes_per_s(const struct load_rate *r)
{
    double us = r->us;
    double bytes = r->bytes;

    if (is_sample(r))
        sums(r, &us, &bytes);
    return us > 0 ? bytes / us * 1e6 : 0;
}
