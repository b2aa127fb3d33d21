/*
 * Who a server says that it is: a certificate with those of its authorities,
 * and the key of it. TLS from version 1.2 on, HTTP/1.1 where a client asks what
 * is spoken.
 */
#ifndef BASE_CERTIFICATE_H
#define BASE_CERTIFICATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ssl_ctx_st;

/* Files in PEM, and the names of the options that have them. */
struct certificate_files {
    const char *certificate, *certificate_option;
    const char *key, *key_option;
};

/* certificate_load(files, err, size): reads them, and checks that they belong
 * together. Returns what SSL_new() takes, owned (SSL_CTX_free; connections that
 * were made of it keep it), or NULL with "option: \"file\": why" in err. */
[[nodiscard]] struct ssl_ctx_st *
certificate_load(const struct certificate_files *files, char *err, size_t size);

/* When all certificates of a file are valid: Unix time in seconds. */
struct certificate_span {
    int64_t from_s, until_s;
};

/* certificate_span(certificate): of what certificate_load() returned: from the
 * latest begin to the earliest end. */
struct certificate_span certificate_span(const struct ssl_ctx_st *certificate);

/* certificate_span_warning(span, now_s, text, size): whether an operator should
 * renew it at now_s (Unix time), with "expired on ..", "is not valid before .."
 * or "expires on .." in text, and what to do: CERTIFICATE_WARNING_S before its
 * end, or when a third of its life is left, which is later for those that live
 * shortly. */
#define CERTIFICATE_WARNING_S (14 * 86400)
[[nodiscard]] bool certificate_span_warning(const struct certificate_span *span,
                                            int64_t now_s, char *text,
                                            size_t size);

/* certificate_show(certificate, ssl): what a connection that was accepted
 * speaks, owned: *ssl, or NULL without a certificate. Returns 0; -1: out of
 * memory. */
struct ssl_st;
[[nodiscard]] int certificate_show(struct ssl_ctx_st *certificate,
                                   struct ssl_st **ssl);

#endif
