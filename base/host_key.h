/* Decides which addresses count as one host. */
#ifndef BASE_HOST_KEY_H
#define BASE_HOST_KEY_H

#include <stdint.h>

struct loop;

/* host_key(host): returns a hash (FNV-1a) that is equal for addresses of one
 * host: of a numeric IPv6 address its /64, because a host chooses the rest
 * itself; else of the whole address. */
uint64_t host_key(const char *host);

/* host_key_of(loop, fd): returns host_key() of a socket's other side; of "" if
 * it is gone. */
uint64_t host_key_of(struct loop *loop, int fd);

#endif
