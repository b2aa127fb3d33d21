/* A worker: one engine, one KV store, one step loop, and the connections that
 * give them work. worker.c wires them; requests.c has the requests, report.c
 * the reports to the conductors. */
#ifndef WORKERS_SERVICE_WORKER_H
#define WORKERS_SERVICE_WORKER_H

#include "workers/engine/engine.h"
#include "workers/options.h"

struct cost_model;
struct loop;
struct secret;
struct worker;

/* Makes a worker on `engine` (borrowed, as are `loop`, `options`, `secret`,
 * which may be NULL, and `cost`, a cost model of that engine or NULL):
 * allocates the store, listens for peers, starts connecting to the conductor.
 * Returns it owned, or NULL with a message in err[err_bytes]. */
[[nodiscard]] struct worker *
worker_new(struct loop *loop, const struct worker_options *options,
           const struct secret *secret, struct engine *engine,
           const struct cost_model *cost, char *err, size_t err_bytes);

/* Has the worker exit the loop of its loop when its requests have ended, or
 * after --drain-ms; a second call: at once. */
void worker_leave(struct worker *w);

/* Drops all requests, closes everything, frees. NULL is a no-op. */
void worker_free(struct worker *w);

/* Returns 0, or 1 if the worker left because every conductor refused it or its
 * engine was lost. */
int worker_exit_status(const struct worker *w);

#endif
