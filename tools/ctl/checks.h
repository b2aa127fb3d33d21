/* The checks of `conductorctl diagnose`: each compares a reading with a limit.
 */
#ifndef TOOLS_CTL_CHECKS_H
#define TOOLS_CTL_CHECKS_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/ctl/readings.h"

/* How a value is printed. */
enum check_unit {
    UNIT_COUNT,
    UNIT_SHARE, /* 1 is the whole */
    UNIT_TIMES,
    UNIT_SECONDS,
    UNIT_DAYS, /* the value is in seconds */
};

struct findings;
struct check;

/* Gives each value that a check looks at to findings_judge(). */
typedef void check_reader(struct findings *f, const struct check *check);

struct check {
    const char *name;    /* in --json */
    const char *title;   /* the fault in a few words */
    const char *page;    /* the heading in docs/operate/on-call.md */
    const char *alert;   /* of conductor.rules.yml; NULL = none */
    const char *measure; /* the quantity */
    double limit;        /* wrong above it; if `below`, below it */
    bool below;
    enum check_unit unit;
    check_reader *read;
    double least; /* fewer requests, failures or broken promises than this say
                     nothing; 0 = no such bound */
};

/* The checks in the order in which they are printed: first what stops requests,
 * then what is away, short or slow, then what clients notice, of which those
 * may be the cause, then what will do harm later. */
extern const struct check checks[];
extern const size_t checks_n;

struct finding {
    const struct check *check;
    char subject[128]; /* such as the instance; "" = the conductor */
    char detail[200];  /* "" = none */
    double value;
};

#define FINDINGS_MAX 64u

struct findings {
    const struct readings *r;
    struct finding all[FINDINGS_MAX];
    size_t n, left_out;
};

/* Runs all checks on r, which must outlive *f. */
void checks_run(const struct readings *r, struct findings *f);

/* Writes a value in its unit; the seconds of UNIT_DAYS become days. Returns the
 * text. */
const char *check_show(const struct check *check, double value, char text[32]);

#endif
