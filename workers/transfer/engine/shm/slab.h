/* Memory that other processes of the machine may be given to read. */
#ifndef WORKERS_TRANSFER_ENGINE_SHM_SLAB_H
#define WORKERS_TRANSFER_ENGINE_SHM_SLAB_H

#include <stddef.h>

/* Memory of a file without a name, touched, aligned to a page. Nobody else can
 * ever map it to write, or change its length. Returns it with the file in *fd,
 * both to be freed by shm_slab_free(); NULL: the kernel refuses. */
[[nodiscard]] void *shm_slab_new(size_t bytes, int *fd);

/* Free it. NULL is a no-op. */
void shm_slab_free(void *memory, size_t bytes, int fd);

#endif
