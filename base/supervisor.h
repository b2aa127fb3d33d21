/*
 * What started the program, where that is systemd or speaks as it does: it may
 * hand over sockets that listen already, so that no client is refused while the
 * program is exchanged (sd_listen_fds(3)), and it is told how the program is
 * (sd_notify(3)). Without it all of this does nothing.
 */
#ifndef BASE_SUPERVISOR_H
#define BASE_SUPERVISOR_H

#include <stdint.h>

/* supervisor_socket(name): the socket that was handed over by that name
 * (FileDescriptorName=), or, for "http", the only one; -1: none. Once for each:
 * the caller takes it. */
int supervisor_socket(const char *name);

/* supervisor_say(state): "READY=1", "STOPPING=1", "WATCHDOG=1", "STATUS=..."; a
 * message that does not arrive is lost. */
void supervisor_say(const char *state);

/* supervisor_reloads(): says that a reload begins, at this time of the
 * monotonic clock. "READY=1" ends it. */
void supervisor_reloads(void);

/* supervisor_watchdog_us(): how long it waits for a "WATCHDOG=1" before it
 * takes the program to hang; 0: for ever. */
int64_t supervisor_watchdog_us(void);

#endif
