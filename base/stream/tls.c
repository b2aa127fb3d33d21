/* TLS on a stream's socket. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/stream/internal.h"

/* Returns the result of a failed call. Only TLS's close is an end of input; the
 * socket's end alone is an error, as anybody on the path can cause it. */
static int why(struct stream *s, int rc)
{
    int kind = SSL_get_error(s->ssl, rc), error = errno;

    switch (kind) {
    case SSL_ERROR_WANT_READ:
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        s->wants_room = true;
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        return error ? -error : -ECONNRESET;
    default:
        s->fault = ERR_peek_error();
        ERR_clear_error();
        return ERR_GET_REASON(s->fault) == SSL_R_UNEXPECTED_EOF_WHILE_READING
                   ? -ECONNRESET
                   : -EPROTO;
    }
}

ssize_t stream_tls_read(struct stream *s, void *to, size_t n)
{
    size_t got;

    ERR_clear_error();
    int rc = SSL_read_ex(s->ssl, to, n, &got);
    return rc > 0 ? (ssize_t)got : why(s, rc);
}

ssize_t stream_tls_write(struct stream *s, const void *from, size_t n)
{
    size_t sent;

    ERR_clear_error();
    int rc = SSL_write_ex(s->ssl, from, n, &sent);
    if (rc > 0)
        return (ssize_t)sent;
    rc = why(s, rc);
    return rc ? rc : -EPIPE;
}

int stream_tls_open(struct stream *s)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(s->ssl);
    if (rc != 1) {
        rc = why(s, rc);
        return rc ? rc : -ECONNRESET;
    }
    s->opening = false;
    return 0;
}

bool stream_tls_pending(const struct stream *s)
{
    return s->ssl && !s->opening && SSL_has_pending(s->ssl);
}

bool stream_tls_met_http(const struct stream *s)
{
    return s->opening && ERR_GET_REASON(s->fault) == SSL_R_HTTP_REQUEST;
}

void stream_tls_shut(struct stream *s)
{
    ERR_clear_error();
    (void)SSL_shutdown(s->ssl);
    ERR_clear_error();
}
