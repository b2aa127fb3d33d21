/* One lock; two queues to the threads, and one back. In virtual time, "hands"
 * take the threads' place, and nothing else runs meanwhile. */
#include "base/crew.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/loop/loop.h"

STAILQ_HEAD(crew_jobs, crew_job);

/* A thread in virtual time. */
struct hand {
    struct crew *crew;
    struct loop_timer timer; /* ends the job */
    struct crew_job *job;    /* NULL = idle */
};

struct crew {
    const struct crew_ops *ops;
    void *arg;
    struct loop *virtual; /* NULL = threads */
    unsigned n;           /* threads, or hands */
    pthread_t threads[CREW_MAX];
    struct hand hands[CREW_MAX];
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t more;  /* a job waits, or leaving */
    pthread_cond_t ended; /* a job is over */
    struct crew_jobs urgent, waiting, over;
    bool leaving;
};

static struct crew_job *take(struct crew_jobs *jobs)
{
    struct crew_job *job = STAILQ_FIRST(jobs);

    if (job)
        STAILQ_REMOVE_HEAD(jobs, link);
    return job;
}

static struct crew_job *take_waiting(struct crew *c)
{
    struct crew_job *job = take(&c->urgent);

    return job ? job : take(&c->waiting);
}

/* Waits for the next job, with the lock; NULL = the thread ends. */
static struct crew_job *next(struct crew *c)
{
    struct crew_job *job;

    while (!(job = take_waiting(c)) && !c->leaving)
        pthread_cond_wait(&c->more, &c->lock);
    return job;
}

static void *work(void *arg)
{
    struct crew *c = arg;
    struct crew_job *job;

    pthread_mutex_lock(&c->lock);
    while ((job = next(c))) {
        pthread_mutex_unlock(&c->lock);
        c->ops->run(c->arg, job);
        pthread_mutex_lock(&c->lock);
        STAILQ_INSERT_TAIL(&c->over, job, link);
        pthread_cond_signal(&c->ended);
        c->ops->over(c->arg);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Ends the job of a hand now. */
static void end(struct hand *h)
{
    struct crew *c = h->crew;
    struct crew_job *job = h->job;

    loop_timer_stop(&h->timer);
    h->job = NULL;
    c->ops->run(c->arg, job);
    STAILQ_INSERT_TAIL(&c->over, job, link);
    c->ops->over(c->arg);
}

/* Lets an idle hand begin the next job, if one waits. */
static void begin(struct hand *h)
{
    struct crew *c = h->crew;

    while ((h->job = take_waiting(c)) &&
           loop_timer_start(&h->timer, 1 + (int64_t)(loop_random(c->virtual) %
                                                     CREW_VIRTUAL_US)))
        end(h); /* out of memory */
}

static void on_hand(void *arg)
{
    struct hand *h = arg;

    end(h);
    if (!h->job)
        begin(h);
}

static struct hand *hand_that(struct crew *c, bool is_busy)
{
    for (unsigned i = 0; i < c->n; i++)
        if (!c->hands[i].job == !is_busy)
            return &c->hands[i];
    return NULL;
}

static void hands_stop(struct crew *c, bool finish)
{
    struct hand *h;

    if (!finish) {
        STAILQ_CONCAT(&c->over, &c->urgent);
        STAILQ_CONCAT(&c->over, &c->waiting);
    }
    while ((h = hand_that(c, true))) {
        end(h);
        if (!h->job)
            begin(h);
    }
    c->n = 0;
}

static void hands_init(struct crew *c, struct loop *loop, unsigned n)
{
    c->virtual = loop;
    while (c->n < n && c->n < CREW_MAX) {
        struct hand *h = &c->hands[c->n++];

        h->crew = c;
        loop_timer_init(loop, &h->timer, on_hand, h);
    }
}

int crew_new(struct loop *loop, unsigned n, const struct crew_ops *ops,
             void *arg, struct crew **out)
{
    struct crew *c = calloc(1, sizeof(*c));
    int rc = 0;

    if (!c)
        return -ENOMEM;
    c->ops = ops;
    c->arg = arg;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    pthread_cond_init(&c->ended, NULL);
    STAILQ_INIT(&c->urgent);
    STAILQ_INIT(&c->waiting);
    STAILQ_INIT(&c->over);
    if (loop && !loop_has_threads(loop))
        hands_init(c, loop, n);
    while (!c->virtual && rc == 0 && c->n < n && c->n < CREW_MAX) {
        rc = pthread_create(&c->threads[c->n], NULL, work, c);
        c->n += rc == 0;
    }
    if (c->n == 0) {
        crew_free(c);
        return -rc;
    }
    *out = c;
    return 0;
}

void crew_stop(struct crew *c, bool finish)
{
    if (c->virtual) {
        hands_stop(c, finish);
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->leaving = true;
    if (!finish) {
        STAILQ_CONCAT(&c->over, &c->urgent);
        STAILQ_CONCAT(&c->over, &c->waiting);
    }
    pthread_cond_broadcast(&c->more);
    pthread_mutex_unlock(&c->lock);
    while (c->n > 0)
        pthread_join(c->threads[--c->n], NULL);
}

void crew_free(struct crew *c)
{
    if (!c)
        return;
    crew_stop(c, true);
    pthread_cond_destroy(&c->more);
    pthread_cond_destroy(&c->ended);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void crew_add(struct crew *c, struct crew_job *job, bool urgent)
{
    pthread_mutex_lock(&c->lock);
    STAILQ_INSERT_TAIL(urgent ? &c->urgent : &c->waiting, job, link);
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
    struct hand *idle = c->virtual ? hand_that(c, false) : NULL;
    if (idle)
        begin(idle);
}

struct crew_job *crew_over(struct crew *c, bool wait)
{
    struct hand *busy = c->virtual ? hand_that(c, true) : NULL;

    if (wait && busy && STAILQ_EMPTY(&c->over)) {
        end(busy);
        if (!busy->job)
            begin(busy);
    }
    wait = wait && !c->virtual;
    pthread_mutex_lock(&c->lock);
    while (wait && STAILQ_EMPTY(&c->over))
        pthread_cond_wait(&c->ended, &c->lock);
    struct crew_job *job = take(&c->over);
    pthread_mutex_unlock(&c->lock);
    return job;
}
