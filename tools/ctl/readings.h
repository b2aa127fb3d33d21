/* Reads a conductor for `conductorctl diagnose`. */
#ifndef TOOLS_CTL_READINGS_H
#define TOOLS_CTL_READINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/ctl/ctl.h"

/* A line of /metrics; the texts are parts of samples.text. */
struct sample {
    const char *name;
    const char *labels; /* between the braces; "" = none */
    double value;
};

struct samples {
    char *whole;        /* as it came, owned */
    char *text;         /* owned; the samples point into it */
    struct sample *all; /* (n) owned */
    size_t n;
};

struct readings {
    json_t *health, *ready, *instances, *overview, *history; /* owned */
    json_t *decisions;          /* owned; NULL = it may not be read */
    struct samples before, now; /* read `over_s` apart */
    double over_s;
    double clock_ahead_s; /* the conductor's clock less ours; NAN = not told */
};

/* Cuts the text of /metrics, which it takes, into samples. Returns 0, or 1 when
 * out of memory. A line that is none is left out. */
[[nodiscard]] int samples_cut(char *text, struct samples *out);
void samples_free(struct samples *samples);

/* Returns the sum of the samples of this name whose labels contain `part`
 * (NULL = all); 0 if there are none. O(samples). */
double samples_sum(const struct samples *samples, const char *name,
                   const char *part);

/* Returns the first sample of a name behind `after` (NULL = of all), or NULL.
 * O(samples). */
const struct sample *samples_next(const struct samples *samples,
                                  const char *name, const struct sample *after);

/* Copies the value of a label, cut to `size` and without escapes and control
 * characters; "" if there is no such label. Returns the text. */
const char *sample_label(const struct sample *sample, const char *label,
                         char *text, size_t size);

/* Returns a sample as {"name", "labels", "value"}, owned, or NULL when out of
 * memory. A whole number is an integer; NaN and infinity, which JSON lacks, are
 * null. */
json_t *sample_json(const struct sample *sample);

/* Returns how much the sum of a counter has risen between the two readings. */
double readings_rise(const struct readings *r, const char *name,
                     const char *part);

/* Returns the share of a histogram's values between the two readings that were
 * above a bound, as its label `le` has it; NAN if there were fewer than
 * `least`. */
double readings_above(const struct readings *r, const char *name,
                      const char *le, double least);

/* Reads everything. Returns 0 with *r, which the caller frees; or 1 after
 * printing the error, as for an address that is not a conductor's. Takes
 * over_s. */
[[nodiscard]] int readings_take(struct ctl *ctl, double over_s,
                                struct readings *r);
void readings_free(struct readings *r);

#endif
