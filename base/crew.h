/*
 * Threads that run blocking jobs for an event loop, and hand them back.
 *
 *   crew_add() --> waiting -- run(), on a thread --> over --> crew_over()
 *                                                      `----- over()
 *
 * Jobs start in order of arrival, urgent ones first. Any thread may call all
 * functions but new and free.
 *
 * On a loop in virtual time there are no threads: a job's run() is a call of
 * the loop, and comes some time after the job began, which the loop's random
 * numbers say.
 */
#ifndef BASE_CREW_H
#define BASE_CREW_H

#include <stdbool.h>
#include <sys/queue.h>

#define CREW_MAX 4u
/* Longest time of a job in virtual time. */
#define CREW_VIRTUAL_US 1000

struct crew;
struct loop;

/* A part of the caller's job struct: the caller must not touch it until
 * crew_over() returns it. */
struct crew_job {
    STAILQ_ENTRY(crew_job) link;
};

/* Both are called on the crew's threads. */
struct crew_ops {
    void (*run)(void *arg, struct crew_job *job);
    /* Tells the loop that a job is over. */
    void (*over)(void *arg);
};

/* Starts n threads, 1 to CREW_MAX, or as many as the system allows. loop: whose
 * time and random numbers it takes if it has no threads; NULL = threads.
 * Borrows loop and ops; arg goes to both. Returns 0 and *out, owned, or a
 * negative errno if no thread could be started. */
[[nodiscard]] int crew_new(struct loop *loop, unsigned n,
                           const struct crew_ops *ops, void *arg,
                           struct crew **out);

/* Ends the threads after their running jobs. finish: waiting jobs run first;
 * else they are over without running. */
void crew_stop(struct crew *c, bool finish);

/* Frees a crew, after running the waiting jobs, if any. Finished jobs are left
 * to the caller. NULL is a no-op. */
void crew_free(struct crew *c);

/* crew_add(c, job, urgent): queues a job for the next free thread; urgent jobs
 * go before the others. The queue is unbounded: callers bound it. */
void crew_add(struct crew *c, struct crew_job *job, bool urgent);

/* Returns the job finished first, or NULL. wait: blocks until one is; in
 * virtual time, runs one of the begun jobs if none is. */
struct crew_job *crew_over(struct crew *c, bool wait);

#endif
