/* A thread for what takes too long for the loop's: summing. Errands are run in
 * the order in which they come, urgent ones before the others. */
#ifndef WORKERS_TRANSFER_ERRANDS_H
#define WORKERS_TRANSFER_ERRANDS_H

#include <stdbool.h>

#include "base/crew.h"

struct errands;
struct event_base;

/* Part of what it is for; the caller's, and left alone until done(). */
struct errand {
    struct crew_job job;
    void (*run)(struct errand *e);  /* on the thread */
    void (*done)(struct errand *e); /* on the loop's; it may free it */
};

/* Start the thread. `base` is borrowed. Returns it owned, or NULL. */
[[nodiscard]] struct errands *errands_new(struct event_base *base);

/* Stop it. done() is called of all that are left, also of those that were not
 * run. NULL is a no-op. */
void errands_free(struct errands *e);

/* Have it run. On the loop's thread. */
void errands_add(struct errands *e, struct errand *errand, bool urgent);

#endif
