/* Chunked bodies (RFC 9112, section 7.1). */
#include <errno.h>

#include "conductor/http/parse.h"

enum {
    CHUNK_SIZE,      /* in the line with a chunk's size */
    CHUNK_SPACE,     /* white space behind the size */
    CHUNK_EXTENSION, /* behind the semicolon */
    CHUNK_DATA,
    CHUNK_DATA_END,      /* CR LF behind the data */
    CHUNK_TRAILER,       /* in the name of a trailer line */
    CHUNK_TRAILER_VALUE, /* behind a trailer line's colon */
    CHUNK_DONE
};

#define MAX_CHUNK_LINE_BYTES 4096
#define MAX_CHUNK_BYTES ((uint64_t)1 << 40)

/* The end of a line with a size, or of a trailer line, which needs a colon. */
static int end_line(struct http_chunked *d)
{
    bool empty = d->line == 0;

    d->line = 0;
    switch (d->state) {
    case CHUNK_TRAILER:
        d->state = CHUNK_DONE;
        return empty ? 0 : -EBADMSG;
    case CHUNK_TRAILER_VALUE:
        d->state = CHUNK_TRAILER;
        return ++d->n_trailers > HTTP_MAX_HEADERS ? -EBADMSG : 0;
    default:
        d->state = d->left ? CHUNK_DATA : CHUNK_TRAILER;
        return empty ? -EBADMSG : 0;
    }
}

/* Handles a byte of the line with a chunk's size, before any semicolon. After
 * white space only a semicolon may follow: lenient parsers differ there. */
static int size_byte(struct http_chunked *d, char c)
{
    int digit = d->state == CHUNK_SIZE ? http_hex(c) : -1;

    if (digit >= 0) {
        d->left = d->left << 4 | (uint64_t)digit;
        return d->left > MAX_CHUNK_BYTES ? -EBADMSG : 0;
    }
    if (d->line == 1 || (c != ';' && c != ' ' && c != '\t'))
        return -EBADMSG;
    d->state = c == ';' ? CHUNK_EXTENSION : CHUNK_SPACE;
    return 0;
}

/* Handles a byte of a line, except its end. */
static int line_byte(struct http_chunked *d, char c)
{
    unsigned char byte = (unsigned char)c;

    if (++d->line > MAX_CHUNK_LINE_BYTES)
        return -EBADMSG;
    switch (d->state) {
    case CHUNK_SIZE:
    case CHUNK_SPACE:
        return size_byte(d, c);
    case CHUNK_TRAILER:
        if (c == ':' && d->line > 1)
            d->state = CHUNK_TRAILER_VALUE;
        else if (!http_is_token(byte))
            return -EBADMSG;
        return 0;
    default:
        return http_is_text(byte) ? 0 : -EBADMSG;
    }
}

/* Handles one byte outside the data. Only CR LF ends a line. */
static int frame_byte(struct http_chunked *d, char c)
{
    if (d->cr != (c == '\n')) /* a bare CR or a bare LF */
        return -EBADMSG;
    d->cr = c == '\r';
    if (d->cr)
        return 0;
    if (d->state == CHUNK_DATA_END) {
        d->state = CHUNK_SIZE;
        return c == '\n' ? 0 : -EBADMSG;
    }
    return c == '\n' ? end_line(d) : line_byte(d, c);
}

int http_chunked_next(struct http_chunked *d, const char *bytes, size_t n,
                      size_t *used, struct http_piece *piece)
{
    size_t at = 0;
    int rc;

    *piece = (struct http_piece){0};
    while (at < n && d->state != CHUNK_DONE) {
        if (d->state == CHUNK_DATA) {
            size_t take = n - at < d->left ? n - at : (size_t)d->left;

            *piece = (struct http_piece){bytes + at, take};
            d->left -= take;
            if (d->left == 0)
                d->state = CHUNK_DATA_END;
            at += take;
            break;
        }
        rc = frame_byte(d, bytes[at]);
        if (rc)
            return rc;
        at++;
    }
    *used = at;
    return d->state == CHUNK_DONE;
}
