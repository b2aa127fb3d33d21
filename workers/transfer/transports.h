/* What an operator may say about transports. */
#ifndef WORKERS_TRANSFER_TRANSPORTS_H
#define WORKERS_TRANSFER_TRANSPORTS_H

#include <stdbool.h>

/* Data connections of tcp to a peer. */
#define TRANSFER_STREAMS_MAX 8u
#define TRANSFER_STREAMS_DEFAULT 2u

/* Whether `list` is good for transfer_config.transports: 0 or -EINVAL. */
[[nodiscard]] int transports_check(const char *list);

/* Whether it names that one. */
bool transports_name(const char *list, const char *name);

#endif
