/*
 * TLS 1.2 and newer for clients. The server's certificate must lead to a
 * trusted authority and hold the requested host's name, unless `insecure`.
 * base/certificate.h has the server's side.
 */
#ifndef BASE_TLS_H
#define BASE_TLS_H

#include <stdbool.h>
#include <stddef.h>

struct ssl_ctx_st;
struct ssl_st;
struct tls;

/* Restricts a client or server to TLS 1.2 and newer, and TLS 1.2 to suites with
 * authenticated encryption (no CBC) and forward secrecy. Returns false if these
 * cannot be set. */
[[nodiscard]] bool tls_bound(struct ssl_ctx_st *context);

/* Trusts the authorities in the PEM file ca_file, or, with "", the system's;
 * any server if insecure. Returns it owned, or NULL with a message. Reads
 * files. */
[[nodiscard]] struct tls *tls_new(const char *ca_file, bool insecure, char *err,
                                  size_t size);

/* Returns whether `tls` was made with these arguments. */
bool tls_is(const struct tls *tls, const char *ca_file, bool insecure);

/* Adds an owner. Each owner calls tls_free(); NULL is a no-op there. */
struct tls *tls_ref(struct tls *tls);
void tls_free(struct tls *tls);

/* Makes the TLS state of a connection that is to open. Returns it owned, or
 * NULL: out of memory, or no certificate can hold the name.
 *   host  name or numeric address that the certificate must hold; NULL = any
 *         certificate of the authorities */
[[nodiscard]] struct ssl_st *tls_ssl(struct tls *tls, const char *host);

/* Explains a failed connection in text. error: OpenSSL's error, or 0. Returns
 * false, with text untouched, if TLS is not the cause. */
bool tls_explain(const struct ssl_st *ssl, unsigned long error, char *text,
                 size_t size);

#endif
