/* One thread, two queues to it and one back. */
#include "workers/transfer/errands.h"

#include <pthread.h>
#include <stdlib.h>

#include "workers/transfer/engine/bell.h"

TAILQ_HEAD(errand_list, errand);

struct errands {
    struct bell *bell;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t more;
    struct errand_list urgent, todo, done;
    bool leaving;
};

static struct errand *take(struct errand_list *list)
{
    struct errand *e = TAILQ_FIRST(list);

    if (e)
        TAILQ_REMOVE(list, e, link);
    return e;
}

static void *run(void *arg)
{
    struct errands *e = arg;

    pthread_mutex_lock(&e->lock);
    while (!e->leaving) {
        struct errand *next = take(&e->urgent);

        if (!next)
            next = take(&e->todo);
        if (!next) {
            pthread_cond_wait(&e->more, &e->lock);
            continue;
        }
        pthread_mutex_unlock(&e->lock);
        next->run(next);
        pthread_mutex_lock(&e->lock);
        TAILQ_INSERT_TAIL(&e->done, next, link);
        bell_ring(e->bell);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static void on_bell(void *arg)
{
    struct errand_list done = TAILQ_HEAD_INITIALIZER(done);
    struct errands *e = arg;
    struct errand *next;

    pthread_mutex_lock(&e->lock);
    TAILQ_CONCAT(&done, &e->done, link);
    pthread_mutex_unlock(&e->lock);
    while ((next = take(&done)))
        next->done(next);
}

struct errands *errands_new(struct event_base *base)
{
    struct errands *e = calloc(1, sizeof(*e));

    if (!e)
        return NULL;
    TAILQ_INIT(&e->urgent);
    TAILQ_INIT(&e->todo);
    TAILQ_INIT(&e->done);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->more, NULL);
    e->bell = bell_new(base, on_bell, e);
    e->started = e->bell && pthread_create(&e->thread, NULL, run, e) == 0;
    if (!e->started) {
        errands_free(e);
        return NULL;
    }
    return e;
}

void errands_free(struct errands *e)
{
    if (!e)
        return;
    if (e->started) {
        pthread_mutex_lock(&e->lock);
        e->leaving = true;
        pthread_cond_signal(&e->more);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
        TAILQ_CONCAT(&e->done, &e->urgent, link);
        TAILQ_CONCAT(&e->done, &e->todo, link);
        on_bell(e);
    }
    bell_free(e->bell);
    pthread_cond_destroy(&e->more);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

void errands_add(struct errands *e, struct errand *errand, bool urgent)
{
    pthread_mutex_lock(&e->lock);
    TAILQ_INSERT_TAIL(urgent ? &e->urgent : &e->todo, errand, link);
    pthread_cond_signal(&e->more);
    pthread_mutex_unlock(&e->lock);
}
