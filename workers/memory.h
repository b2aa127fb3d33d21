/* Whether the machine has the memory that a worker would take. */
#ifndef WORKERS_MEMORY_H
#define WORKERS_MEMORY_H

#include "workers/engine/engine.h"
#include "workers/options.h"

/* Bytes of this machine's memory; 0: it does not say. */
uint64_t worker_memory_of_machine(void);

/* How many KV blocks of `layout` the options ask for. */
uint32_t worker_memory_blocks(const struct worker_options *o,
                              const struct engine_kv_layout *layout);

/* Check KV blocks, weights and the memory of a step together, before any of
 * them is made. `layout` and `needs` are of engine_plan(); with --profile there
 * is no KV. machine_bytes 0: not known, everything fits. Returns 0; -EINVAL if
 * --kv-mib holds no block or a block no frame, or -ENOMEM, with a message that
 * names sizes and options in err[err_bytes]. */
[[nodiscard]] int worker_memory_check(const struct worker_options *o,
                                      const struct engine_kv_layout *layout,
                                      const struct engine_needs *needs,
                                      uint64_t machine_bytes, char *err,
                                      size_t err_bytes);

#endif
