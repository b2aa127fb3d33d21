/*
 * A server's identity: its certificate, its authorities' certificates, and its
 * key. TLS 1.2 and newer; offers HTTP/1.1 to clients that use ALPN.
 */
#ifndef BASE_CERTIFICATE_H
#define BASE_CERTIFICATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ssl_ctx_st;

/* PEM files, and the names of their options. */
struct certificate_files {
    const char *certificate, *certificate_option;
    const char *key, *key_option;
};

/* certificate_load(files, err, size): reads the files, and checks that they
 * belong together. Returns the context for SSL_new(), owned (SSL_CTX_free; its
 * connections keep a reference), or NULL with "option: \"file\": why" in
 * err. */
[[nodiscard]] struct ssl_ctx_st *
certificate_load(const struct certificate_files *files, char *err, size_t size);

/* The time during which all certificates of a file are valid: Unix time in
 * seconds. */
struct certificate_span {
    int64_t from_s, until_s;
};

/* certificate_span(certificate): returns the span of a context from
 * certificate_load(): from the latest begin to the earliest end. */
struct certificate_span certificate_span(const struct ssl_ctx_st *certificate);

/* certificate_span_warning(span, now_s, text, size): returns whether an
 * operator should renew the certificate at now_s (Unix time), with "expired on
 * ..", "is not valid before .." or "expires on .." and what to do in text. It
 * warns CERTIFICATE_WARNING_S before the end, or with a third of the lifetime
 * left, whichever is later. */
#define CERTIFICATE_WARNING_S (14 * 86400)
[[nodiscard]] bool certificate_span_warning(const struct certificate_span *span,
                                            int64_t now_s, char *text,
                                            size_t size);

/* certificate_show(certificate, ssl): makes the server side of TLS for an
 * accepted connection: *ssl, owned, or NULL if `certificate` is NULL. Returns
 * 0, or -1: out of memory. */
struct ssl_st;
[[nodiscard]] int certificate_show(struct ssl_ctx_st *certificate,
                                   struct ssl_st **ssl);

#endif
