/* Options about transports. */
#ifndef WORKERS_TRANSFER_TRANSPORTS_H
#define WORKERS_TRANSFER_TRANSPORTS_H

#include <stdbool.h>

/* Number of data connections of tcp to a peer. */
#define TRANSFER_STREAMS_MAX 8u
#define TRANSFER_STREAMS_DEFAULT 2u

/* Returns 0 if `list` is valid for transfer_config.transports, else -EINVAL. */
[[nodiscard]] int transports_check(const char *list);

/* Returns whether `list` has the transport `name`. */
bool transports_name(const char *list, const char *name);

#endif
