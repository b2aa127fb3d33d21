/* The daemon: sets up, runs and ends all parts of a conductor. */
#ifndef CONDUCTOR_DAEMON_H
#define CONDUCTOR_DAEMON_H

#include "conductor/config/config.h"

/* Checks that the daemon could run with a configuration and its files, without
 * opening a port. Returns 0, or -EINVAL with the reason in err. */
[[nodiscard]] int daemon_check(const struct config *config,
                               char err[CONFIG_ERROR_MAX]);

/* Reads the configuration again into *out. Returns 0, or a negative errno with
 * the reason in err; call config_fini() either way. */
typedef int daemon_read(void *arg, struct config *out,
                        char err[CONFIG_ERROR_MAX]);

/*
 * Runs the daemon until a signal stops it.
 *   config      borrowed; updated by reloads
 *   read        called with read_arg on SIGHUP and POST /admin/reload
 *   ports_path  file for the bound ports, as JSON; NULL = none
 *   err         the fault in the configuration; "" = another fault, which was
 *               logged
 * Returns 0 after a stop, or a negative errno.
 */
[[nodiscard]] int daemon_run(struct config *config, daemon_read *read,
                             void *read_arg, const char *ports_path,
                             char err[CONFIG_ERROR_MAX]);

#endif
