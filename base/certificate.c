/* See certificate.h. */
#include "base/certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

#define FILE_BYTES_MAX (1u << 20)

/* Of a key that has a passphrase: there is nobody to ask. */
static int no_passphrase(char *, int, int, void *)
{
    return 0;
}

/* A file's bytes, owned; NULL: *why. */
static BIO *read_file(const char *path, const char **why)
{
    char *text = NULL;
    size_t n = 0;
    int rc = file_read(path, FILE_BYTES_MAX, &text, &n);
    BIO *bio = rc ? NULL : BIO_new(BIO_s_mem());

    if (rc)
        *why = file_why(rc);
    else if (!bio || BIO_write(bio, text, (int)n) != (int)n)
        *why = "it is empty";
    if (*why) {
        BIO_free(bio);
        bio = NULL;
    }
    if (text)
        OPENSSL_cleanse(text, n);
    free(text);
    return bio;
}

/* The server's own certificate stands first, then those that vouch for it. */
static const char *take_certificates(SSL_CTX *context, const char *path)
{
    const char *why = NULL;
    BIO *bio = read_file(path, &why);
    X509 *own, *next;

    if (!bio)
        return why;
    own = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
    if (!own)
        why = "no certificate in it, as PEM has them";
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
        why = "no private key in it, as PEM has them without a passphrase";
    else if (SSL_CTX_use_PrivateKey(context, key) != 1)
        why = "not the key of the certificate";
    EVP_PKEY_free(key);
    BIO_free(bio);
    return why;
}

/* Of what a client offers (ALPN) HTTP/1.1 is taken. */
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

/* Sessions are kept by clients alone, whose number has no bound here. */
static bool set_up(SSL_CTX *context)
{
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_alpn_select_cb(context, choose, NULL);
    return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1;
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

int certificate_show(SSL_CTX *certificate, SSL **ssl)
{
    *ssl = certificate ? SSL_new(certificate) : NULL;
    if (*ssl)
        SSL_set_accept_state(*ssl);
    return certificate && !*ssl ? -1 : 0;
}
