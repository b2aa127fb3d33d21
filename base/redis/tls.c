/* See tls.h. */
#include "base/redis/tls.h"

#include <hiredis/hiredis.h>
#ifdef CONDUCTOR_REDIS_TLS
#include <hiredis/hiredis_ssl.h>
#endif
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>

#include "base/tls.h"

#ifdef CONDUCTOR_REDIS_TLS

struct ssl_st *redis_tls_begin(struct redisContext *c, struct tls *tls,
                               const char *host, char *why, size_t size)
{
    SSL *ssl = tls_ssl(tls, host);

    snprintf(why, size, "out of memory");
    if (!ssl)
        return NULL;
    if (redisInitiateSSL(c, ssl) == REDIS_OK)
        return ssl;
    if (!tls_explain(ssl, ERR_peek_last_error(), why, size))
        snprintf(why, size, "TLS: %s", c->errstr);
    ERR_clear_error();
    SSL_free(ssl);
    return NULL;
}

#else

/* Never called: redis_url_parse() refuses URLs with TLS. */
struct ssl_st *redis_tls_begin(struct redisContext *, struct tls *,
                               const char *, char *why, size_t size)
{
    snprintf(why, size, "this program was built without TLS to Redis");
    return NULL;
}

#endif
