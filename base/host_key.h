/* Who counts as one host. */
#ifndef BASE_HOST_KEY_H
#define BASE_HOST_KEY_H

#include <stdint.h>

/* host_key(host): a number that is the same for all that count as one host: a
 * numeric address, of IPv6 a /64, as a host chooses the rest itself. FNV-1a. */
uint64_t host_key(const char *host);

/* host_key_of(fd): likewise, of a socket's other side; that of "" where it is
 * gone. */
uint64_t host_key_of(int fd);

#endif
