/* Errands: a crew of one thread, and a bell that reports them to the loop. */
#include "workers/transfer/errands.h"

#include <stdlib.h>

#include "base/loop/loop.h"

struct errands {
    struct loop_bell bell;
    struct crew *crew;
};

static struct errand *errand_of(struct crew_job *job)
{
    return (struct errand *)(void *)job; /* its first member */
}

static void run(void *, struct crew_job *job)
{
    errand_of(job)->run(errand_of(job));
}

static void over(void *arg)
{
    loop_ring(&((struct errands *)arg)->bell);
}

static void on_bell(void *arg)
{
    struct errands *e = arg;
    struct crew_job *job;

    while ((job = crew_over(e->crew, false)))
        errand_of(job)->done(errand_of(job));
}

struct errands *errands_new(struct loop *loop)
{
    static const struct crew_ops ops = {run, over};
    struct errands *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    if (loop_bell_init(loop, &e->bell, false, on_bell, e) ||
        crew_new(loop, 1, &ops, e, &e->crew) < 0) {
        errands_free(e);
        return NULL;
    }
    return e;
}

void errands_free(struct errands *e)
{
    if (!e)
        return;
    if (e->crew) {
        crew_stop(e->crew, false);
        on_bell(e);
    }
    crew_free(e->crew);
    loop_bell_fini(&e->bell);
    free(e);
}

void errands_add(struct errands *e, struct errand *errand, bool urgent)
{
    crew_add(e->crew, &errand->job, urgent);
}
