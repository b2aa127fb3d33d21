/* See certificate.h. */
#include "base/certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/file.h"
#include "base/tls.h"

#define FILE_BYTES_MAX (1u << 20)

/* Refuses a key with a passphrase: a daemon has no one to enter it. */
static int no_passphrase(char *, int, int, void *)
{
    return 0;
}

/* Reads a file. Returns it owned, or NULL with *why. */
static BIO *read_file(const char *path, const char **why)
{
    char *text = NULL;
    size_t n = 0;
    int rc = file_read(path, FILE_BYTES_MAX, &text, &n);
    BIO *bio = rc ? NULL : BIO_new(BIO_s_mem());

    if (rc)
        *why = file_why(rc);
    else if (n == 0)
        *why = "it is empty";
    else if (!bio || BIO_write(bio, text, (int)n) != (int)n)
        *why = "out of memory";
    if (*why) {
        BIO_free(bio);
        bio = NULL;
    }
    if (text)
        OPENSSL_cleanse(text, n);
    free(text);
    return bio;
}

/* Takes the server's own certificate, which is first, then its authorities'. */
static const char *take_certificates(SSL_CTX *context, const char *path)
{
    const char *why = NULL;
    BIO *bio = read_file(path, &why);
    X509 *own, *next;

    if (!bio)
        return why;
    own = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
    if (!own)
        why = "no certificate in PEM format in it";
    else if (SSL_CTX_use_certificate(context, own) != 1)
        why =
            "its certificate cannot be used: is its key of 2048 bits or more?";
    while (!why && (next = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL)))
        if (SSL_CTX_add0_chain_cert(context, next) != 1) {
            X509_free(next);
            why = "its chain of certificates cannot be used";
        }
    X509_free(own);
    BIO_free(bio);
    return why;
}

static const char *take_key(SSL_CTX *context, const char *path)
{
    const char *why = NULL;
    BIO *bio = read_file(path, &why);
    EVP_PKEY *key;

    if (!bio)
        return why;
    key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    if (!key)
        why = "no private key in PEM format without a passphrase in it";
    else if (SSL_CTX_use_PrivateKey(context, key) != 1)
        why = "not the key of the certificate";
    EVP_PKEY_free(key);
    BIO_free(bio);
    return why;
}

/* ALPN: chooses HTTP/1.1. */
static int choose(SSL *, const unsigned char **out, unsigned char *n,
                  const unsigned char *in, unsigned n_in, void *)
{
    static const unsigned char own[] = "\x08http/1.1";

    return SSL_select_next_proto((unsigned char **)(uintptr_t)out, n, own,
                                 sizeof(own) - 1, in,
                                 n_in) == OPENSSL_NPN_NEGOTIATED
               ? SSL_TLSEXT_ERR_OK
               : SSL_TLSEXT_ERR_NOACK;
}

/* No session cache: the number of clients is unbounded. */
static bool set_up(SSL_CTX *context)
{
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_alpn_select_cb(context, choose, NULL);
    return tls_bound(context);
}

SSL_CTX *certificate_load(const struct certificate_files *files, char *err,
                          size_t size)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    const char *option = files->certificate_option, *path = files->certificate;
    const char *why = "out of memory";

    if (context && set_up(context))
        why = take_certificates(context, path);
    if (!why) {
        option = files->key_option;
        path = files->key;
        why = take_key(context, path);
    }
    ERR_clear_error();
    if (!why)
        return context;
    SSL_CTX_free(context);
    return error_null(err, size, "%s: \"%.200s\": %s", option, path, why);
}

/* Returns seconds since 1970; 0 for an invalid time. */
static int64_t seconds_of(const ASN1_TIME *t)
{
    ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
    int days = 0, seconds = 0;

    if (!epoch || ASN1_TIME_diff(&days, &seconds, epoch, t) != 1)
        days = seconds = 0;
    ASN1_TIME_free(epoch);
    return (int64_t)days * 86400 + seconds;
}

struct certificate_span certificate_span(const SSL_CTX *certificate)
{
    const X509 *x = SSL_CTX_get0_certificate(certificate);
    struct certificate_span span = {seconds_of(X509_get0_notBefore(x)),
                                    seconds_of(X509_get0_notAfter(x))};
    struct stack_st_X509 *chain = NULL;

    (void)SSL_CTX_get0_chain_certs((SSL_CTX *)(uintptr_t)certificate, &chain);
    for (int i = 0; i < sk_X509_num(chain); i++) {
        x = sk_X509_value(chain, i);
        int64_t from_s = seconds_of(X509_get0_notBefore(x));
        int64_t until_s = seconds_of(X509_get0_notAfter(x));

        if (span.from_s < from_s)
            span.from_s = from_s;
        if (span.until_s > until_s)
            span.until_s = until_s;
    }
    return span;
}

static int64_t warning_s(const struct certificate_span *span)
{
    int64_t third_s = (span->until_s - span->from_s) / 3;

    return third_s < CERTIFICATE_WARNING_S ? third_s : CERTIFICATE_WARNING_S;
}

bool certificate_span_warning(const struct certificate_span *span,
                              int64_t now_s, char *text, size_t size)
{
    const char *what = "expires on",
               *remedy = "put a new one there before then";
    time_t at = (time_t)span->until_s;
    char date[64] = "?";
    struct tm tm;

    if (now_s >= span->until_s) {
        what = "expired on";
        remedy = "put a valid one there";
    } else if (now_s < span->from_s) {
        what = "is not valid before";
        remedy = "put a valid one there, or set the clock";
        at = (time_t)span->from_s;
    } else if (span->until_s - now_s > warning_s(span)) {
        return false;
    }
    if (gmtime_r(&at, &tm))
        strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S UTC", &tm);
    snprintf(text, size, "%s %s: %s", what, date, remedy);
    return true;
}

int certificate_show(SSL_CTX *certificate, SSL **ssl)
{
    *ssl = certificate ? SSL_new(certificate) : NULL;
    if (*ssl)
        SSL_set_accept_state(*ssl);
    return certificate && !*ssl ? -1 : 0;
}
