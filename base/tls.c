/* See tls.h. */
#include "base/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

#define CA_FILE_BYTES_MAX (4u << 20)

struct tls {
    SSL_CTX *context;
    char *ca_file; /* owned */
    bool insecure;
    unsigned owners;
};

bool tls_bound(SSL_CTX *context)
{
    /* Suites of TLS 1.2: AEAD and an ephemeral key. All TLS 1.3 suites have
     * both, so OpenSSL's list for it stays. */
    static const char suites[] = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:"
                                 "DHE+CHACHA20:!aNULL:!PSK";

    return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_cipher_list(context, suites) == 1;
}

/* Takes the certificates and revocation lists of a file. Returns NULL, or why
 * it cannot. */
static const char *take_authorities(SSL_CTX *context, const char *path)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    char *text = NULL;
    size_t size = 0;
    int n = 0;
    int rc = file_read(path, CA_FILE_BYTES_MAX, &text, &size);

    if (rc != 0)
        return file_why(rc);
    BIO *bio = BIO_new_mem_buf(text, (int)size);
    STACK_OF(X509_INFO) *all =
        bio ? PEM_X509_INFO_read_bio(bio, NULL, NULL, NULL) : NULL;
    for (int i = 0; i < sk_X509_INFO_num(all); i++) {
        const X509_INFO *info = sk_X509_INFO_value(all, i);

        if (info->x509)
            n += X509_STORE_add_cert(store, info->x509);
        if (info->crl)
            n += X509_STORE_add_crl(store, info->crl);
    }
    sk_X509_INFO_pop_free(all, X509_INFO_free);
    BIO_free(bio);
    free(text);
    return n > 0 ? NULL : "no CA certificates in it";
}

/* Sets up the context. Returns NULL, or why it cannot. */
static const char *set_up(const struct tls *tls)
{
    SSL_CTX *c = tls->context;

    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE |
                            SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_verify(c, tls->insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER,
                       NULL);
    if (!tls_bound(c))
        return "no TLS 1.2";
    if (tls->insecure)
        return NULL;
    if (*tls->ca_file)
        return take_authorities(c, tls->ca_file);
    return SSL_CTX_set_default_verify_paths(c) == 1
               ? NULL
               : "the machine's CA certificates cannot be read";
}

struct tls *tls_new(const char *ca_file, bool insecure, char *err, size_t size)
{
    struct tls *tls = calloc(1, sizeof(*tls));
    const char *why = "out of memory";

    if (!tls)
        return error_null(err, size, "%s", why);
    tls->owners = 1;
    tls->insecure = insecure;
    tls->ca_file = strdup(ca_file);
    tls->context = SSL_CTX_new(TLS_client_method());
    if (tls->ca_file && tls->context)
        why = set_up(tls);
    ERR_clear_error();
    if (!why)
        return tls;
    tls_free(tls);
    return error_null(err, size, "%s", why);
}

bool tls_is(const struct tls *tls, const char *ca_file, bool insecure)
{
    return tls && tls->insecure == insecure &&
           strcmp(tls->ca_file, ca_file) == 0;
}

struct tls *tls_ref(struct tls *tls)
{
    tls->owners++;
    return tls;
}

void tls_free(struct tls *tls)
{
    if (!tls || --tls->owners > 0)
        return;
    SSL_CTX_free(tls->context);
    free(tls->ca_file);
    free(tls);
}

/* Sets the host required in the certificate; a name is also sent as SNI. */
static bool expect(SSL *ssl, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];

    if (inet_pton(AF_INET, host, address) == 1 ||
        inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 &&
           SSL_set_tlsext_host_name(ssl, host) == 1;
}

SSL *tls_ssl(struct tls *tls, const char *host)
{
    SSL *ssl = SSL_new(tls->context);

    if (!ssl || (host && !expect(ssl, host))) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_connect_state(ssl);
    return ssl;
}

bool tls_explain(const SSL *ssl, unsigned long error, char *text, size_t size)
{
    long verdict = ssl ? SSL_get_verify_result(ssl) : X509_V_OK;
    const char *reason = ERR_reason_error_string(error);

    if (!ssl || (!error && verdict == X509_V_OK))
        return false;
    if (verdict != X509_V_OK && SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE)
        snprintf(text, size, "TLS: its certificate: %s",
                 X509_verify_cert_error_string(verdict));
    else if (ERR_GET_REASON(error) == SSL_R_WRONG_VERSION_NUMBER ||
             ERR_GET_REASON(error) == SSL_R_HTTP_REQUEST)
        snprintf(text, size, "TLS: the other side does not speak it");
    else
        snprintf(text, size, "TLS: %s", reason ? reason : "it failed");
    return true;
}
