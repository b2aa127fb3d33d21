/* Options about transports. */
#ifndef WORKERS_TRANSFER_TRANSPORTS_H
#define WORKERS_TRANSFER_TRANSPORTS_H

#include <stddef.h>

/* Number of data connections of tcp to a peer. */
#define TRANSFER_STREAMS_MAX 8u

/* Returns 0 if `list` is valid for transfer_config.transports, else -EINVAL. */
[[nodiscard]] int transports_check(const char *list);

/* Allocates the slab for a valid `list`, as shm_slab_new(), if one of its
 * transports needs memory of its own; else returns NULL. */
void *transports_slab_new(const char *list, size_t bytes, int *fd);

#endif
