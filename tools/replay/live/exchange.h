/*
 * One blocking request to a server with its whole answer: for questions before
 * a replay, and for conductorctl.
 */
#ifndef TOOLS_REPLAY_LIVE_EXCHANGE_H
#define TOOLS_REPLAY_LIVE_EXCHANGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/replay/live/server.h"

struct loop;

#define EXCHANGE_MAX_BYTES (64 << 20) /* of an answer's body */

struct exchange_answer {
    int status;
    char *body; /* (n), owned, NUL-terminated */
    size_t n;
    int64_t date_s; /* its Date header, Unix time; 0 = none */
};

/*
 * GETs or POSTs `path`, behind the server's prefix, and runs the loop until the
 * answer is there.
 *   body  JSON to POST; "" = POST without a body; NULL = GET
 * Returns 0 with *answer, whatever its status, or -EIO with a message in
 * `error` (`size` bytes). Blocks for at most timeout_us, plus a few seconds to
 * find out why there was no answer.
 */
[[nodiscard]] int exchange(struct loop *loop,
                           const struct replay_server *server, const char *body,
                           const char *path, int64_t timeout_us,
                           struct exchange_answer *answer, char *error,
                           size_t size);

/* GETs JSON as exchange() does; anything but a 200 with JSON is -EIO, too.
 * *json is the caller's. */
[[nodiscard]] int exchange_json(struct loop *loop,
                                const struct replay_server *server,
                                const char *path, int64_t timeout_us,
                                json_t **json, char *error, size_t size);

#endif
