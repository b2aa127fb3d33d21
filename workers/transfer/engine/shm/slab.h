/* Memory that other processes of this machine can map, but not write. */
#ifndef WORKERS_TRANSFER_ENGINE_SHM_SLAB_H
#define WORKERS_TRANSFER_ENGINE_SHM_SLAB_H

#include <stddef.h>

/* Allocate memory backed by a memfd, with all pages present. No other process
 * can map it for writing or change its length. Returns it, aligned to a page,
 * and the file in *fd; free both with shm_slab_free(). NULL on failure. */
[[nodiscard]] void *shm_slab_new(size_t bytes, int *fd);

/* Free the memory and close `fd`. NULL is a no-op. */
void shm_slab_free(void *memory, size_t bytes, int fd);

#endif
