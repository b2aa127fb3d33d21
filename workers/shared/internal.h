/* Shared by commands.c, read.c and put.c; internal to this folder. */
#ifndef WORKERS_SHARED_INTERNAL_H
#define WORKERS_SHARED_INTERNAL_H

#include <hiredis/hiredis.h>

#include "workers/shared/commands.h"

#define SHARED_NUMBER_MAX 24 /* a decimal number, with its NUL */

/* Most bytes of layers in one command or answer, unless one layer has
 * more. */
#define SHARED_PART_BYTES (1u << 20)

/* Queues a command of n words. */
void shared_ask(struct shared_store *s, int n, const char *const *words);

/* Turns an answer into a result: 0, -ENOTCONN (reply is NULL), -ENOSPC (store
 * out of memory), -EBADMSG (the key has another type) or -EPROTO; the store's
 * message is in s->why. */
int shared_refused(struct shared_store *s, const redisReply *reply);

/* Takes the next answer; *value (may be NULL) is its number, -1 for nil, else
 * 0. Returns as shared_refused(). */
int shared_take(struct shared_store *s, long long *value);

/* Takes n answers. Returns the first error. */
int shared_take_all(struct shared_store *s, uint32_t n);

/* Writes the store's time minus less_s seconds, in microseconds. */
void shared_now(const struct shared_store *s, int64_t less_s,
                char out[SHARED_NUMBER_MAX]);

/* Returns the layers in one part of at most SHARED_PART_BYTES, at least 1. */
uint32_t shared_part_layers(const struct shared_store *s);

/* Removes a block and its index entry, and takes the answers. */
int shared_remove(struct shared_store *s, const struct shared_known *known);

#endif
