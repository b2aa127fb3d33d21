/* The daemon: all parts of one conductor, from its configuration to its end. */
#ifndef CONDUCTOR_DAEMON_H
#define CONDUCTOR_DAEMON_H

#include "conductor/config/config.h"

/* Whether the daemon could run with it, as far as files and tables tell: no
 * port is opened. Returns 0, or -EINVAL with what is wrong in err. */
[[nodiscard]] int daemon_check(const struct config *config,
                               char err[CONFIG_ERROR_MAX]);

/* Reads the configuration from where it came, into *out, which config_fini()
 * frees whatever is returned: 0, or a negative errno with the reason in err. */
typedef int daemon_read(void *arg, struct config *out,
                        char err[CONFIG_ERROR_MAX]);

/*
 * Runs until it is told to stop.
 *   config      borrowed; what a reload takes is written to it
 *   read        called with read_arg on SIGHUP and POST /admin/reload
 *   ports_path  file for the ports that were bound, as JSON; NULL: none
 *   err         what is wrong with the configuration; "": nothing is, and
 *               what went wrong was logged
 * Returns 0 when it was stopped, or a negative errno.
 */
[[nodiscard]] int daemon_run(struct config *config, daemon_read *read,
                             void *read_arg, const char *ports_path,
                             char err[CONFIG_ERROR_MAX]);

#endif
