/* See tier.h. */
#include "workers/shared/tier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/loop/loop.h"

#define CHECK_US 2000000 /* between checks of an open line */
#define PAUSE_MIN_US 1000000
#define PAUSE_MAX_US 30000000

/* A line that was up for this long starts again with the shortest pause. */
#define STEADY_US 30000000

struct check {
    struct shared_job job;
    bool under_way;
    uint64_t id;
};

struct way {
    struct errands *errands;
    struct shared_store store; /* used by the thread */
    bool up;
    int64_t next_us; /* time of the next check */
    int64_t pause_us;
    int64_t up_us; /* since when the line is up */
    struct check check;
};

struct listing {
    struct shared_job job;
    bool under_way;
    bool again;
    uint64_t cursor;
    uint32_t n;
    struct shared_known blocks[SHARED_LIST_MAX];
};

struct shared_tier {
    struct shared_tier_config config;
    const struct shared_tier_ops *ops;
    void *arg;
    struct way ways[SHARED_WAYS];
    uint64_t id;     /* contents id; 0 = never up */
    int64_t away_us; /* since when the tier is away */
    bool leaving;
    struct listing listing;
    struct shared_tier_stats stats;
};

bool shared_tier_is_up(const struct shared_tier *t)
{
    return t->ways[SHARED_READS].up && t->ways[SHARED_WRITES].up;
}

uint64_t shared_tier_id(const struct shared_tier *t)
{
    return shared_tier_is_up(t) ? t->id : 0;
}

const struct shared_tier_config *shared_tier_config(const struct shared_tier *t)
{
    return &t->config;
}

struct shared_tier_stats *shared_tier_stats(struct shared_tier *t)
{
    return &t->stats;
}

void shared_tier_stored(struct shared_tier *t,
                        const struct shared_known *blocks, uint32_t n)
{
    if (!t->leaving && n > 0)
        t->ops->stored(t->arg, blocks, n);
}

void shared_tier_gone(struct shared_tier *t, const uint64_t *keys, uint32_t n)
{
    if (!t->leaving && n > 0)
        t->ops->gone(t->arg, keys, n);
}

/* --- jobs --------------------------------------------------------------- */

static struct shared_job *job_of(struct errand *e)
{
    return (struct shared_job *)(void *)((char *)e -
                                         offsetof(struct shared_job, errand));
}

static void run(struct errand *e)
{
    struct shared_job *j = job_of(e);
    struct shared_store *s = &j->tier->ways[j->way].store;

    snprintf(s->why, sizeof(s->why), "one of its answers is malformed");
    if (!j->checks && !shared_line_is_open(s->line))
        return;
    j->rc = j->run(j, s);
    snprintf(j->why, sizeof(j->why), "%s",
             j->rc == -ENOTCONN ? shared_line_why(s->line) : s->why);
}

/* Handles a closed line: plans the next try, and reports the tier away. */
static void lost(struct shared_tier *t, struct way *w, const char *why)
{
    int64_t now_us = loop_now_us(t->config.loop);
    bool was_up = shared_tier_is_up(t);

    if (w->up && now_us - w->up_us >= STEADY_US)
        w->pause_us = PAUSE_MIN_US;
    w->up = false;
    w->next_us = now_us + w->pause_us;
    w->pause_us =
        w->pause_us * 2 < PAUSE_MAX_US ? w->pause_us * 2 : PAUSE_MAX_US;
    if (!was_up && t->away_us > 0)
        return;
    log_warn("shared store %s is down: %s; its blocks are computed instead",
             t->config.shown, why);
    t->away_us = now_us;
    t->stats.away += was_up;
    if (was_up)
        t->ops->turned(t->arg);
}

static void on_done(struct errand *e)
{
    struct shared_job *j = job_of(e);
    struct way *w = &j->tier->ways[j->way];

    if (j->rc == -ENOTCONN && *j->why && (w->up || j->checks) &&
        !j->tier->leaving)
        lost(j->tier, w, j->why);
    j->done(j);
}

static void add(struct shared_tier *t, enum shared_way way,
                struct shared_job *job, bool urgent)
{
    job->tier = t;
    job->way = way;
    job->rc = -ENOTCONN;
    job->why[0] = '\0';
    job->errand.run = run;
    job->errand.done = on_done;
    errands_add(t->ways[way].errands, &job->errand, urgent);
}

void shared_tier_do(struct shared_tier *t, enum shared_way way,
                    struct shared_job *job)
{
    add(t, way, job, false);
}

/* --- up and away -------------------------------------------------------- */

static struct check *check_of(struct shared_job *j)
{
    return (struct check *)(void *)((char *)j - offsetof(struct check, job));
}

static int check_run(struct shared_job *j, struct shared_store *s)
{
    return shared_check(s, j->way == SHARED_WRITES, &check_of(j)->id);
}

static void came_up(struct shared_tier *t)
{
    double s = (double)(loop_now_us(t->config.loop) - t->away_us) / 1e6;

    if (t->away_us > 0)
        log_info("shared store %s is up again, after %.1f s", t->config.shown,
                 s);
    else
        log_info("shared store %s: at most %llu blocks of %.0f KiB",
                 t->config.shown, (unsigned long long)t->config.max_blocks,
                 (double)t->config.shape.block_bytes / 1024.0);
    t->away_us = 0;
}

static void check_done(struct shared_job *j)
{
    struct check *c = check_of(j);
    struct shared_tier *t = j->tier;
    struct way *w = &t->ways[j->way];
    bool was_up = shared_tier_is_up(t);

    c->under_way = false;
    if (j->rc < 0 || t->leaving)
        return;
    w->next_us = loop_now_us(t->config.loop) + CHECK_US;
    if (!w->up)
        w->up_us = loop_now_us(t->config.loop);
    w->up = true;
    bool other = c->id != 0 && c->id != t->id;
    if (other)
        t->id = c->id;
    if (!was_up && shared_tier_is_up(t))
        came_up(t);
    if (shared_tier_is_up(t) && (other || !was_up))
        t->ops->turned(t->arg);
}

void shared_tier_tick(struct shared_tier *t)
{
    int64_t now_us = loop_now_us(t->config.loop);

    for (unsigned i = 0; i < SHARED_WAYS; i++) {
        struct way *w = &t->ways[i];

        if (w->check.under_way || now_us < w->next_us)
            continue;
        w->check.under_way = true;
        add(t, (enum shared_way)i, &w->check.job, true);
    }
}

/* --- listing ------------------------------------------------------------ */

static int list_run(struct shared_job *j, struct shared_store *s)
{
    struct listing *l = &j->tier->listing;

    return shared_list(s, &l->cursor, l->blocks, &l->n);
}

static void list_done(struct shared_job *j)
{
    struct shared_tier *t = j->tier;
    struct listing *l = &t->listing;

    l->under_way = false;
    if (t->leaving)
        return;
    if (j->rc == 0)
        shared_tier_stored(t, l->blocks, l->n);
    else if (j->rc != -ENOTCONN)
        log_warn("shared store %s: its blocks cannot be listed: %s",
                 t->config.shown, j->why);
    if (l->again) {
        shared_tier_list(t);
    } else if (j->rc == 0 && l->cursor != 0) {
        l->under_way = true;
        add(t, SHARED_WRITES, &l->job, false);
    }
}

void shared_tier_list(struct shared_tier *t)
{
    struct listing *l = &t->listing;

    l->again = l->under_way;
    if (l->under_way || !shared_tier_is_up(t))
        return;
    l->cursor = 0;
    l->under_way = true;
    add(t, SHARED_WRITES, &l->job, false);
}

/* --- making and freeing ------------------------------------------------- */

static int start(struct shared_tier *t, struct way *w)
{
    const struct shared_tier_config *c = &t->config;

    w->pause_us = PAUSE_MIN_US;
    w->store = (struct shared_store){
        .line = shared_line_new(c->url, c->tls, c->timeout_us,
                                shared_answer_bytes(&c->shape)),
        .shape = c->shape,
        .max_blocks = c->max_blocks,
        .ttl_s = c->ttl_s,
    };
    w->check.job.run = check_run;
    w->check.job.done = check_done;
    w->check.job.checks = true;
    w->errands = errands_new(c->loop);
    return w->store.line && w->errands ? 0 : -ENOMEM;
}

struct shared_tier *shared_tier_new(const struct shared_tier_config *config,
                                    const struct shared_tier_ops *ops,
                                    void *arg)
{
    struct shared_tier *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->config = *config;
    t->ops = ops;
    t->arg = arg;
    t->listing.job.run = list_run;
    t->listing.job.done = list_done;
    if (start(t, &t->ways[SHARED_READS]) == 0 &&
        start(t, &t->ways[SHARED_WRITES]) == 0)
        return t;
    shared_tier_free(t);
    return NULL;
}

void shared_tier_free(struct shared_tier *t)
{
    if (!t)
        return;
    t->leaving = true;
    for (unsigned i = 0; i < SHARED_WAYS; i++)
        t->ways[i].up = false;
    for (unsigned i = 0; i < SHARED_WAYS; i++)
        errands_free(t->ways[i].errands);
    for (unsigned i = 0; i < SHARED_WAYS; i++)
        shared_line_free(t->ways[i].store.line);
    free(t);
}
