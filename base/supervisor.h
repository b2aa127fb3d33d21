/*
 * The program's supervisor, systemd or one with the same protocol: it may pass
 * listening sockets, so that no client is refused during a restart
 * (sd_listen_fds(3)), and gets the program's state (sd_notify(3)). Without a
 * supervisor all functions are no-ops.
 */
#ifndef BASE_SUPERVISOR_H
#define BASE_SUPERVISOR_H

#include <stdint.h>

/* supervisor_socket(name): returns the socket passed under that name
 * (FileDescriptorName=), or, for "http", a single unnamed one; -1 = none. It
 * does not block. The caller takes it: each is returned once. */
int supervisor_socket(const char *name);

/* supervisor_say(state): sends "READY=1", "STOPPING=1", "WATCHDOG=1" or
 * "STATUS=..."; failures are ignored. */
void supervisor_say(const char *state);

/* supervisor_reloads(): reports that a reload begins now. "READY=1" ends
 * it. */
void supervisor_reloads(void);

/* supervisor_watchdog_us(): how long the supervisor waits for "WATCHDOG=1"
 * before it considers the program hung; 0 = forever. */
int64_t supervisor_watchdog_us(void);

#endif
