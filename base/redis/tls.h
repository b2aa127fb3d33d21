/* TLS to Redis, by libhiredis_ssl (1.0 and newer), if built with it. */
#ifndef BASE_REDIS_TLS_H
#define BASE_REDIS_TLS_H

#include <stddef.h>

struct redisContext; /* of <hiredis/hiredis.h> */
struct ssl_st;
struct tls;

/* redis_tls_begin(c, tls, host, why, size): starts TLS on c; the server's
 * certificate must hold `host`. A blocking context shakes hands now, an
 * asynchronous one while it is read and written. Returns the TLS state, owned
 * by c; or NULL with why, and the caller frees c. */
[[nodiscard]] struct ssl_st *redis_tls_begin(struct redisContext *c,
                                             struct tls *tls, const char *host,
                                             char *why, size_t size);

#endif
