/*
 * Whom a client trusts: TLS from version 1.2 on. The other side's certificate
 * must lead to a known authority and hold the name of the host that was asked
 * for, unless that was waived. What a server shows is in base/certificate.h.
 */
#ifndef BASE_TLS_H
#define BASE_TLS_H

#include <stdbool.h>
#include <stddef.h>

struct bufferevent;
struct event_base;
struct ssl_ctx_st;
struct tls;

/* Bounds what a client or a server speaks: TLS 1.2 and newer, and of TLS 1.2
 * only suites that authenticate what they encrypt (no CBC) and whose records
 * nobody can read with the certificate's key alone. Returns false if that
 * cannot be set. */
[[nodiscard]] bool tls_bound(struct ssl_ctx_st *context);

/* What is trusted: the authorities in a file of PEM certificates, or those of
 * the machine if ca_file is ""; anybody, if insecure. Returns it owned, or NULL
 * with a message. Reads files. */
[[nodiscard]] struct tls *tls_new(const char *ca_file, bool insecure, char *err,
                                  size_t size);

/* Whether it was made of these. */
bool tls_is(const struct tls *tls, const char *ca_file, bool insecure);

/* Another owner. Each calls tls_free(), of which NULL is a no-op. */
struct tls *tls_ref(struct tls *tls);
void tls_free(struct tls *tls);

/*
 * A connection that is still to be opened, as of bufferevent_socket_new().
 *   host     whose certificate is expected: a name, or an address in numbers
 *   options  of bufferevents
 * Returns it owned, or NULL.
 */
[[nodiscard]] struct bufferevent *tls_connection(struct tls *tls,
                                                 struct event_base *base,
                                                 const char *host, int options);

/* The same as what a connection speaks, owned; NULL: out of memory.
 *   host  NULL: whoever has a certificate of the authorities */
struct ssl_st;
[[nodiscard]] struct ssl_st *tls_ssl(struct tls *tls, const char *host);

/* Why it failed, with OpenSSL's number for it, or 0. Returns whether TLS has to
 * do with it; else text is untouched. */
bool tls_explain(const struct ssl_st *ssl, unsigned long error, char *text,
                 size_t size);

#endif
