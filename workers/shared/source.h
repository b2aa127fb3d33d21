/* The shared store as a source of the loader. */
#ifndef WORKERS_SHARED_SOURCE_H
#define WORKERS_SHARED_SOURCE_H

#include "workers/load/loader.h"
#include "workers/shared/tier.h"

/* Returns the loader's source for the shared store, added if missing. Borrows
 * `loader` and `tier` for its life; free the tier before the loader. NULL = the
 * loader has no room for it. */
[[nodiscard]] struct loader_source *shared_source(struct loader *loader,
                                                  struct shared_tier *tier);

#endif
