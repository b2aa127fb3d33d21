/* TLS to Redis, by the part of hiredis that speaks it (libhiredis_ssl, from 1.0
 * on), where the program was built with that. */
#ifndef BASE_REDIS_TLS_H
#define BASE_REDIS_TLS_H

#include <stddef.h>

struct redisContext; /* of <hiredis/hiredis.h> */
struct ssl_st;
struct tls;

/* redis_tls_begin(c, tls, host, why, size): what c sends and reads is TLS from
 * now on; its server must have a certificate for `host`. A context that waits
 * (without an async one) shakes hands now; another one later, as it is read and
 * written. Returns what it speaks, which c owns, or NULL with why, and c is to
 * be freed. */
[[nodiscard]] struct ssl_st *redis_tls_begin(struct redisContext *c,
                                             struct tls *tls, const char *host,
                                             char *why, size_t size);

#endif
