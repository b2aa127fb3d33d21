/* What the files that ask the shared store have in common. Nobody else includes
 * this. */
#ifndef WORKERS_SHARED_INTERNAL_H
#define WORKERS_SHARED_INTERNAL_H

#include <hiredis/hiredis.h>

#include "workers/shared/commands.h"

#define SHARED_NUMBER_MAX 24 /* a number in words, with its NUL */

/* Bytes that go in one command, or answer one: some of a block's layers. */
#define SHARED_PART_BYTES (1u << 20)

/* Queue a command of n words. */
void shared_ask(struct shared_store *s, int n, const char *const *words);

/* What an answer says about the command: 0, -ENOTCONN (NULL), -ENOSPC (out of
 * memory), -EBADMSG (what is under that name is of another type) or -EPROTO,
 * with the words in s->why. */
int shared_refused(struct shared_store *s, const redisReply *reply);

/* Take the next answer; *value (may be NULL): its number, -1 for nil, else 0.
 * As shared_refused(). */
int shared_take(struct shared_store *s, long long *value);

/* Take n answers. The first that was refused counts. */
int shared_take_all(struct shared_store *s, uint32_t n);

/* The store's time in microseconds, less so many seconds. */
void shared_now(const struct shared_store *s, int64_t less_s,
                char out[SHARED_NUMBER_MAX]);

/* Layers that go in one part. */
uint32_t shared_part_layers(const struct shared_store *s);

/* Remove a block, whose answers are not waited for by the caller: they are
 * taken. */
int shared_remove(struct shared_store *s, const struct shared_known *known);

#endif
