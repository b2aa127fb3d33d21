/* Cost models of single instances, which differ from the cost model of their
 * model. Instances whose files have equal contents share one. */
#ifndef CONDUCTOR_SERVICE_ENGINE_COSTS_H
#define CONDUCTOR_SERVICE_ENGINE_COSTS_H

#include "conductor/config/config.h"
#include "conductor/core/pool/instance.h"

struct service;

/* Reads the cost model in the file `path`. Returns it, valid until this caller
 * calls costs_drop(), or NULL with a reason in err: out of memory, or an error
 * in the file. */
[[nodiscard]] const struct cost_model *
costs_take(struct service *s, const char *path, char err[CONFIG_ERROR_MAX]);

/* Releases a cost model of costs_take(). NULL is a no-op. */
void costs_drop(struct service *s, const struct cost_model *cost);

/* Writes the name, without its folder, of the cost model file of the instance
 * at a slot of the pool; "" if it has none of its own. Bytes that are not
 * printable become ?. */
void costs_name(const struct service *s, uint32_t slot,
                char name[POOL_NAME_BYTES]);

/* Returns the cost model of an instance, or its model's, if it has none of its
 * own or is gone. */
const struct cost_model *costs_of(const struct service *s, uint32_t id);

/* Reads the files of worker_costs, and gives each worker its own as it joins.
 * Returns 0, or -EINVAL with a reason in err. */
[[nodiscard]] int costs_load_workers(struct service *s,
                                     char err[CONFIG_ERROR_MAX]);
void costs_set_worker(struct service *s, uint32_t id, const char *name);

/* Replaces the model's own cost model, and predicts again what instances
 * without one of their own have accepted. */
void costs_replace(struct service *s, const struct cost_model *cost);

/* Frees all cost models. */
void costs_fini(struct service *s);

#endif
