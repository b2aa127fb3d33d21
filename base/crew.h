/*
 * Threads that run blocking jobs for an event loop, and hand them back.
 *
 *   crew_add() --> waiting -- run(), on a thread --> over --> crew_over()
 *                                                      `----- the bell rings
 *
 * Jobs start in order of arrival, urgent ones first. Any thread may call all
 * functions but new and free.
 */
#ifndef BASE_CREW_H
#define BASE_CREW_H

#include <stdbool.h>
#include <sys/queue.h>

#define CREW_MAX 4u

struct crew;

/* A part of the caller's job struct: the caller must not touch it until
 * crew_over() returns it. */
struct crew_job {
    STAILQ_ENTRY(crew_job) link;
};

/* crew_new(n, bell, run, arg, out): starts n threads, 1 to CREW_MAX, or as
 * many as the system allows. `bell` is an eventfd, borrowed, written when a job
 * is over. `run` is called with arg. Returns 0 and *out, owned, or a negative
 * errno if no thread could be started. */
[[nodiscard]] int crew_new(unsigned n, int bell,
                           void (*run)(void *arg, struct crew_job *job),
                           void *arg, struct crew **out);

/* Ends the threads after their running jobs. finish: waiting jobs run first;
 * else they are over without running. */
void crew_stop(struct crew *c, bool finish);

/* Frees a crew, after running the waiting jobs, if any. Finished jobs are left
 * to the caller. NULL is a no-op. */
void crew_free(struct crew *c);

/* crew_add(c, job, urgent): queues a job for the next free thread; urgent jobs
 * go before the others. The queue is unbounded: callers bound it. */
void crew_add(struct crew *c, struct crew_job *job, bool urgent);

/* Returns the job finished first, or NULL. wait: blocks until one is. */
struct crew_job *crew_over(struct crew *c, bool wait);

#endif
