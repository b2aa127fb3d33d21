/* One lock; two queues to the threads, and one back. */
#include "base/crew.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

STAILQ_HEAD(crew_jobs, crew_job);

struct crew {
    int bell;
    void (*run)(void *arg, struct crew_job *job);
    void *arg;
    unsigned n;
    pthread_t threads[CREW_MAX];
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

/* Waits for the next job, with the lock; NULL = the thread ends. */
static struct crew_job *next(struct crew *c)
{
    struct crew_job *job;

    while (!(job = take(&c->urgent)) && !(job = take(&c->waiting)) &&
           !c->leaving)
        pthread_cond_wait(&c->more, &c->lock);
    return job;
}

static void *work(void *arg)
{
    struct crew *c = arg;
    struct crew_job *job;
    uint64_t one = 1;

    pthread_mutex_lock(&c->lock);
    while ((job = next(c))) {
        pthread_mutex_unlock(&c->lock);
        c->run(c->arg, job);
        pthread_mutex_lock(&c->lock);
        STAILQ_INSERT_TAIL(&c->over, job, link);
        pthread_cond_signal(&c->ended);
        ssize_t put = write(c->bell, &one, sizeof(one));
        (void)put; /* full: the loop is woken anyway */
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

int crew_new(unsigned n, int bell, void (*run)(void *arg, struct crew_job *job),
             void *arg, struct crew **out)
{
    struct crew *c = calloc(1, sizeof(*c));
    int rc = 0;

    if (!c)
        return -ENOMEM;
    c->bell = bell;
    c->run = run;
    c->arg = arg;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    pthread_cond_init(&c->ended, NULL);
    STAILQ_INIT(&c->urgent);
    STAILQ_INIT(&c->waiting);
    STAILQ_INIT(&c->over);
    while (rc == 0 && c->n < n && c->n < CREW_MAX) {
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
}

struct crew_job *crew_over(struct crew *c, bool wait)
{
    pthread_mutex_lock(&c->lock);
    while (wait && STAILQ_EMPTY(&c->over))
        pthread_cond_wait(&c->ended, &c->lock);
    struct crew_job *job = take(&c->over);
    pthread_mutex_unlock(&c->lock);
    return job;
}
