/* TLS when memory runs out: each allocation of OpenSSL fails in turn, and what
 * was made until then is given back. */
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "base/tls.h"
#include "tests/unit/suite.h"

#define POINTS_MAX 20000 /* more allocations than one try has */

/* The number of allocations that succeed before one fails; negative: none
 * fails. */
static long before_failure = -1;
static long live; /* blocks that were not given back */

static bool fails(void)
{
    return before_failure >= 0 && before_failure-- == 0;
}

static void *take(void *p)
{
    live += !!p;
    return p;
}

static void *allocate(size_t n, const char *, int)
{
    return n == 0 || fails() ? NULL : take(malloc(n));
}

static void give(void *p, const char *, int)
{
    live -= !!p;
    free(p);
}

static void *again(void *old, size_t n, const char *file, int line)
{
    void *p;

    if (n == 0) {
        give(old, file, line);
        return NULL;
    }
    if (fails())
        return NULL;
    p = realloc(old, n);
    live += p && !old;
    return p;
}

/* Whether all of it could be made, of which the allocation at `point` fails;
 * *reached: there was one. */
static bool try_at(const char *host, long point, bool *reached)
{
    char err[200] = "";
    SSL *ssl = NULL;

    before_failure = point;
    struct tls *tls = tls_new("", true, err, sizeof(err));

    if (tls)
        ssl = tls_ssl(tls, host);
    *reached = before_failure < 0 && point >= 0;
    before_failure = -1;
    CU_ASSERT_EQUAL(!*err, !!tls);
    if (ssl) /* nobody has it do handshakes again and again */
        CU_ASSERT_TRUE(SSL_get_options(ssl) & SSL_OP_NO_RENEGOTIATION);
    bool made = ssl;
    SSL_free(ssl);
    tls_free(tls);
    ERR_clear_error();
    return made;
}

/* What a whole try leaves in caches of OpenSSL is made before. */
static void check_host(const char *host)
{
    bool reached = true;
    long n_failed = 0;

    CU_ASSERT_TRUE(try_at(host, -1, &reached));
    CU_ASSERT_TRUE(try_at(host, -1, &reached));
    long point = 0, before = live;

    for (reached = true; reached && point < POINTS_MAX; point++)
        n_failed += !try_at(host, point, &reached);
    CU_ASSERT_FALSE(reached);
    CU_ASSERT_TRUE(n_failed > 10);
    CU_ASSERT_TRUE(try_at(host, -1, &reached));
    if (live > before + 16)
        printf("%ld blocks more behind %ld points\n", live - before, point);
    CU_ASSERT_TRUE(live <= before + 16); /* caches that grew, and no more */
}

static void test_no_memory_for_a_name(void)
{
    check_host("engine.test");
}

static void test_no_memory_for_an_address(void)
{
    check_host("127.0.0.1");
}

/* What a client offers an engine, or a store. */
static void test_suites(void)
{
    char err[200];
    struct tls *tls = tls_new("", true, err, sizeof(err));
    SSL *ssl = tls ? tls_ssl(tls, NULL) : NULL;
    int n_old = 0, n_new = 0;
    struct stack_st_SSL_CIPHER *all = ssl ? SSL_get_ciphers(ssl) : NULL;

    for (int i = 0; i < sk_SSL_CIPHER_num(all); i++) {
        const SSL_CIPHER *suite = sk_SSL_CIPHER_value(all, i);

        CU_ASSERT_TRUE(SSL_CIPHER_is_aead(suite));
        CU_ASSERT_NOT_EQUAL(SSL_CIPHER_get_kx_nid(suite), NID_kx_rsa);
        if (strcmp(SSL_CIPHER_get_version(suite), "TLSv1.3") == 0)
            n_new++;
        else
            n_old++;
    }
    CU_ASSERT(n_old > 0 && n_new > 0);
    SSL_free(ssl);
    tls_free(tls);
}

static const struct suite_test tests[] = {
    {"suites", test_suites},
    {"no memory, a name", test_no_memory_for_a_name},
    {"no memory, an address", test_no_memory_for_an_address},
};

int main(void)
{
    int set = CRYPTO_set_mem_functions(allocate, again, give);

    return SUITE_RUN("tls", tests) || !set ? EXIT_FAILURE : EXIT_SUCCESS;
}
