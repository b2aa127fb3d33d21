/* See alike.h. */
#include "predictor/alike.h"

#include <math.h>

#define MEAN_WEIGHT 0.05

static unsigned class_of(int64_t tokens)
{
    unsigned octave = 0, class;

    while (tokens >> octave > 3)
        octave++;
    class = 2 * octave + (unsigned)(tokens >> octave);
    return class < ALIKE_CLASSES ? class : ALIKE_CLASSES - 1;
}

static void begin_block(struct alike *a, const struct alike_model *m)
{
    a->sum = 0;
    a->n = 0;
    a->model_sum = m->sum;
    a->model_n = m->n;
}

static void set_unlike(struct alike *a, struct alike_model *m, bool unlike,
                       uint32_t run)
{
    if (unlike)
        m->n_alike--;
    else
        m->n_alike++;
    a->unlike = unlike;
    a->run = run;
}

void alike_leave(struct alike *a, struct alike_model *m)
{
    if (a->seen_at && !a->unlike)
        m->n_alike--;
    *a = (struct alike){0};
}

/* Returns how much a block with this d counts. */
static uint32_t counts(double d)
{
    d = fabs(d);
    return d > log(4) ? 5 : d > log(2) ? 2 : d > log(1.2) ? 1 : 0;
}

/* Judges a block. Returns whether a->unlike changed. */
static bool judge(struct alike *a, struct alike_model *m, double d)
{
    int side = counts(d) == 0 ? 0 : d > 0 ? 1 : -1;

    if (a->unlike) {
        a->run = d * a->side > log(1.1) ? 0 : a->run + 1;
        if (a->run < ALIKE_BACK)
            return false;
        set_unlike(a, m, false, 0);
        return true;
    }
    a->run = (side == a->side ? a->run : 0) + counts(d);
    a->side = side;
    if (a->run < ALIKE_RUN)
        return false;
    a->run = 0;
    if (m->n_alike < 2)
        return false;
    set_unlike(a, m, true, 0);
    return true;
}

/* Updates the class's mean. Returns r. */
static double learn(struct alike_model *m, int64_t tokens, int64_t us,
                    bool is_alike)
{
    unsigned class = class_of(tokens);
    double *mean = &m->mean[class];
    double t = log((double)us), r;

    if (m->n_mean[class] == 0)
        *mean = t;
    r = fabs((double)us - exp(*mean)) > ALIKE_US ? t - *mean : 0;
    if (is_alike)
        *mean += (t - *mean) * fmax(MEAN_WEIGHT, 1.0 / ++m->n_mean[class]);
    return fmax(-ALIKE_CUT, fmin(ALIKE_CUT, r));
}

bool alike_see(struct alike *a, struct alike_model *m, int64_t tokens,
               int64_t us)
{
    double r = learn(m, tokens, us, !a->unlike), others;
    bool alone = m->n_alike == 0, changed;
    uint64_t n_others;

    if (!a->seen_at)
        m->n_alike++;
    if (a->n == 0)
        begin_block(a, m);
    a->seen_at = ++m->seen;
    a->sum += r;
    a->n++;
    others = m->sum - a->model_sum;
    n_others = m->n - a->model_n;
    if (!a->unlike) { /* exclude its own from the others' */
        a->model_sum += r;
        a->model_n++;
        m->sum += r;
        m->n++;
    }
    if (a->n < ALIKE_BLOCK || (n_others < ALIKE_BLOCK / 2 && !alone))
        return false;
    changed = judge(
        a, m, alone ? 0 : a->sum / (double)a->n - others / (double)n_others);
    a->n = 0;
    return changed;
}

bool alike_forget(struct alike *a, struct alike_model *m)
{
    if (!a->unlike || m->seen - a->seen_at < ALIKE_STALE)
        return false;
    set_unlike(a, m, false, ALIKE_RUN - 1);
    a->n = 0;
    return true;
}
