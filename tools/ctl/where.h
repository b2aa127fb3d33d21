/* Finds the conductor that conductorctl asks. */
#ifndef TOOLS_CTL_WHERE_H
#define TOOLS_CTL_WHERE_H

#include <stddef.h>

#include "tools/replay/live/server.h"

#define CTL_CONFIG "/etc/conductor/conductor.json"
#define CTL_ADDRESS "127.0.0.1:8080"
#define CTL_FROM_BYTES 200

/* Fills *server from the first of these that is there:
 * - `given`, from the command line; NULL = not given
 * - `variable`, from the environment; NULL or "" = not set
 * - admin_listen, or else listen, of the configuration `file`
 * - CTL_ADDRESS
 * `from` names the source. Returns 0 with `why` "", or with the reason if the
 * file is there but unusable, so that CTL_ADDRESS is used; or -EINVAL with the
 * error of an address in `why`. */
[[nodiscard]] int ctl_where(const char *given, const char *variable,
                            const char *file, struct replay_server *server,
                            char from[CTL_FROM_BYTES], char *why, size_t size);

#endif
