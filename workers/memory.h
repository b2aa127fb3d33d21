/* Checks whether the machine has the memory that a worker needs. */
#ifndef WORKERS_MEMORY_H
#define WORKERS_MEMORY_H

#include "workers/engine/engine.h"
#include "workers/options.h"

/* Returns the bytes of this machine's memory; 0 = unknown. */
uint64_t worker_memory_of_machine(void);

/* Returns how many KV blocks of `layout` the options ask for. */
uint32_t worker_memory_blocks(const struct worker_options *o,
                              const struct engine_kv_layout *layout);

/* Checks KV blocks, weights and step memory together, before any is allocated.
 * `layout` and `needs` come from engine_plan(); --profile needs no KV.
 * machine_bytes 0 = unknown, everything fits. Returns 0; -EINVAL if --kv-mib is
 * less than a block, or -ENOMEM, with a message that names sizes and options in
 * err[err_bytes]. */
[[nodiscard]] int worker_memory_check(const struct worker_options *o,
                                      const struct engine_kv_layout *layout,
                                      const struct engine_needs *needs,
                                      uint64_t machine_bytes, char *err,
                                      size_t err_bytes);

#endif
