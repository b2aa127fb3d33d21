/* A blocking connection to the shared store (hiredis without a loop). Each wait
 * (to connect, to send, for the next bytes) has the same time-out: a stalled
 * operation ends, a slow one may take long. Used by one thread at a time. */
#ifndef WORKERS_SHARED_LINE_H
#define WORKERS_SHARED_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/redis/url.h"

struct redisReply; /* of <hiredis/hiredis.h> */
struct shared_line;

/* Makes a closed line. Borrows `url`, whose addresses are tried in turn, and
 * `tls`, the authorities for a URL with TLS, for its life. An answer longer
 * than most_bytes closes the line. Returns it owned, or NULL: out of
 * memory. */
struct tls;
[[nodiscard]] struct shared_line *shared_line_new(const struct redis_url *url,
                                                  struct tls *tls,
                                                  int64_t timeout_us,
                                                  size_t most_bytes);

/* Closes and frees it. NULL is a no-op. */
void shared_line_free(struct shared_line *l);

/* Connects, logs in and selects the database; no-op if open. Returns 0, or
 * -ENOTCONN: shared_line_why(). Blocks. */
[[nodiscard]] int shared_line_open(struct shared_line *l);

bool shared_line_is_open(const struct shared_line *l);

/* Closes it; `why` (copied) is the reason. No-op if closed. */
void shared_line_close(struct shared_line *l, const char *why);

/* Closes the line, because this server refuses. The next try begins with the
 * address behind this one. */
void shared_line_leave(struct shared_line *l, const char *why);

/* Returns why the line was last closed, for logs; contains no password. */
const char *shared_line_why(const struct shared_line *l);

/* Queues a command of argc words, copied; lens NULL = NUL-terminated.
 * shared_line_send() or shared_line_get() sends it and shows failures. */
void shared_line_add(struct shared_line *l, int argc, const char **argv,
                     const size_t *lens);

/* Sends the queued commands. Blocks. */
void shared_line_send(struct shared_line *l);

/* Returns the answer to the oldest unanswered command, owned
 * (shared_reply_free()); it may be an error of the store. NULL = the line is
 * closed now. Blocks. */
struct redisReply *shared_line_get(struct shared_line *l);

/* NULL is a no-op. */
void shared_reply_free(struct redisReply *reply);

#endif
