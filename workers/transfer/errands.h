/* A thread for work that takes too long for the loop's thread: checksums. Runs
 * errands in the order in which they were added, urgent ones first. */
#ifndef WORKERS_TRANSFER_ERRANDS_H
#define WORKERS_TRANSFER_ERRANDS_H

#include <stdbool.h>

#include "base/crew.h"

struct errands;
struct loop;

/* One piece of work. Owned by the caller, who must not touch it until done().
 */
struct errand {
    struct crew_job job;
    void (*run)(struct errand *e);  /* on the thread */
    void (*done)(struct errand *e); /* on the loop's thread; may free `e` */
};

/* Starts the thread. `loop` is borrowed. Returns it owned, or NULL. */
[[nodiscard]] struct errands *errands_new(struct loop *loop);

/* Stops the thread. Calls done() of all errands left, even if they did not run.
 * NULL is a no-op. */
void errands_free(struct errands *e);

/* Adds `errand`. On the loop's thread. */
void errands_add(struct errands *e, struct errand *errand, bool urgent);

#endif
