/* A connection to the shared store that its thread waits on: hiredis without a
 * loop. Each wait, for a connection, for room to send or for the next bytes,
 * has the same time-out, so what makes no progress ends, and what does may take
 * long. Used by one thread at a time. */
#ifndef WORKERS_SHARED_LINE_H
#define WORKERS_SHARED_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/redis/url.h"

struct redisReply; /* of <hiredis/hiredis.h> */
struct shared_line;

/* Make one that is closed. `url` is borrowed for its life, as is `tls`, whom a
 * URL with TLS trusts; its addresses are tried in turn. No answer is taken
 * that is longer than most_bytes. Returns it owned, or NULL: out of memory. */
struct tls;
[[nodiscard]] struct shared_line *shared_line_new(const struct redis_url *url,
                                                  struct tls *tls,
                                                  int64_t timeout_us,
                                                  size_t most_bytes);

/* Close and free it. NULL is a no-op. */
void shared_line_free(struct shared_line *l);

/* Connect, log in, choose the database. 0, or -ENOTCONN: shared_line_why(). A
 * no-op if it is open. Blocks. */
[[nodiscard]] int shared_line_open(struct shared_line *l);

bool shared_line_is_open(const struct shared_line *l);

/* Close it; `why` (copied) is the reason, and the first one stays. */
void shared_line_close(struct shared_line *l, const char *why);

/* Close it, and begin with another address the next time: this server is not
 * the one to ask. */
void shared_line_leave(struct shared_line *l, const char *why);

/* Why it was closed last, in words and without a password. */
const char *shared_line_why(const struct shared_line *l);

/* Queue a command of argc words, copied; lens NULL: they end with NUL. It is
 * sent by shared_line_send() or, at the latest, by shared_line_get(). A failure
 * shows there. */
void shared_line_add(struct shared_line *l, int argc, const char **argv,
                     const size_t *lens);

/* Send what is queued. Blocks. */
void shared_line_send(struct shared_line *l);

/* The answer to the oldest command without one, owned by the caller: to be
 * given to shared_reply_free(). It may be an error of the store. NULL: the
 * line is closed now. Blocks. */
struct redisReply *shared_line_get(struct shared_line *l);

/* NULL is a no-op. */
void shared_reply_free(struct redisReply *reply);

#endif
