/* Memory that other processes of this machine can map, but not write. */
#ifndef WORKERS_TRANSFER_ENGINE_SHM_SLAB_H
#define WORKERS_TRANSFER_ENGINE_SHM_SLAB_H

#include <stddef.h>

/* Allocates memory backed by a memfd, with all pages present. No other process
 * can map it for writing or change its length. Returns it, aligned to a page,
 * and the file in *fd; free both with shm_slab_free(). NULL on failure. */
[[nodiscard]] void *shm_slab_new(size_t bytes, int *fd);

/* Frees the memory and closes `fd`. NULL is a no-op. */
void shm_slab_free(void *memory, size_t bytes, int fd);

#endif
