/*
 * Threads that do what would keep a loop waiting, and hand it back.
 *
 *   crew_add() --> waiting -- run(), on a thread --> over --> crew_over()
 *                                                      `----- the bell rings
 *
 * Jobs are begun in the order in which they came, urgent ones in front of the
 * others. All functions may be called on any thread, but new and free.
 */
#ifndef BASE_CREW_H
#define BASE_CREW_H

#include <stdbool.h>
#include <sys/queue.h>

#define CREW_MAX 4u

struct crew;

/* A part of what is to be done; the caller's, and left alone until it comes out
 * of crew_over(). */
struct crew_job {
    STAILQ_ENTRY(crew_job) link;
};

/* crew_new(n, bell, run, arg, out): starts n threads, 1 to CREW_MAX, or as many
 * as the system gives. `bell` is an eventfd, borrowed, which is written to when
 * a job is over. `run` is called with arg. Returns 0 and *out, owned, or a
 * negative errno: it gives none. */
[[nodiscard]] int crew_new(unsigned n, int bell,
                           void (*run)(void *arg, struct crew_job *job),
                           void *arg, struct crew **out);

/* End the threads, behind the jobs that they have begun. finish: those that
 * wait are done before; else they are over without. */
void crew_stop(struct crew *c, bool finish);

/* Free it; behind crew_stop(), or when nothing waits. What is over is not
 * looked at. NULL is a no-op. */
void crew_free(struct crew *c);

/* crew_add(c, job, urgent): gives it to the next free thread, if urgent before
 * those that wait and are not. Takes any number: who adds has the bound. */
void crew_add(struct crew *c, struct crew_job *job, bool urgent);

/* The job that was over first, or NULL. wait: until one is. */
struct crew_job *crew_over(struct crew *c, bool wait);

#endif
