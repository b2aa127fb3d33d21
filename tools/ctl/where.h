/* Which conductor an operator asks. */
#ifndef TOOLS_CTL_WHERE_H
#define TOOLS_CTL_WHERE_H

#include <stddef.h>

#include "tools/replay/live/server.h"

#define CTL_CONFIG "/etc/conductor/conductor.json"
#define CTL_ADDRESS "127.0.0.1:8080"
#define CTL_FROM_BYTES 200

/* ctl_where(given, variable, file, server, from, why, size): fills *server:
 * with the address `given` on the command line; NULL: with the environment's
 * `variable`; NULL or "": with admin_listen, or else listen, of the
 * configuration `file`; without that file: with CTL_ADDRESS. `from` says which
 * of them it was. Returns 0, with in `why` "", or, if the file is there and
 * cannot be used, why it is CTL_ADDRESS; or -EINVAL with what is wrong with an
 * address. */
[[nodiscard]] int ctl_where(const char *given, const char *variable,
                            const char *file, struct replay_server *server,
                            char from[CTL_FROM_BYTES], char *why, size_t size);

#endif
