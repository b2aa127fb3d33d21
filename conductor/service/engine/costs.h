/*
 * The cost models of single instances, beside that of their model. Instances
 * whose files hold the same share one.
 */
#ifndef CONDUCTOR_SERVICE_ENGINE_COSTS_H
#define CONDUCTOR_SERVICE_ENGINE_COSTS_H

#include "conductor/config/config.h"
#include "conductor/core/pool/instance.h"

struct service;

/* Takes the cost model in the file `path` for one user more. Returns it, valid
 * until costs_drop(), or NULL with a reason in err: out of memory, or what is
 * wrong with the file. Reads the file. */
[[nodiscard]] const struct cost_model *
costs_take(struct service *s, const char *path, char err[CONFIG_ERROR_MAX]);

/* One of its users is gone. NULL is a no-op. */
void costs_drop(struct service *s, const struct cost_model *cost);

/* The name, without its folder, of the file that the instance at a slot of the
 * pool has its costs from; "": from none. What is not printable becomes a ?. */
void costs_name(const struct service *s, uint32_t slot,
                char name[POOL_NAME_BYTES]);

/* What the work of an instance costs; of none any more: what the model's does.
 */
const struct cost_model *costs_of(const struct service *s, uint32_t id);

/* Takes the files of worker_costs, and gives a worker that joins its own.
 * Returns 0, or -EINVAL with a reason in err. */
[[nodiscard]] int costs_load_workers(struct service *s,
                                     char err[CONFIG_ERROR_MAX]);
void costs_set_worker(struct service *s, uint32_t id, const char *name);

/* Frees all. */
void costs_fini(struct service *s);

#endif
