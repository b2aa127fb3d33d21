/* Chunked bodies. */
#include <errno.h>

#include "conductor/http/parse.h"

enum {
    CHUNK_SIZE, /* in the line with a chunk's size */
    CHUNK_EXTENSION,
    CHUNK_DATA,
    CHUNK_DATA_END, /* CR LF behind the data */
    CHUNK_TRAILER,  /* lines after the last chunk */
    CHUNK_DONE
};

#define MAX_CHUNK_LINE_BYTES 4096
#define MAX_CHUNK_BYTES ((uint64_t)1 << 40)

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The end of a line with a size, or of a trailer line. */
static void end_line(struct http_chunked *d, bool empty)
{
    if (d->state == CHUNK_TRAILER)
        d->state = empty ? CHUNK_DONE : CHUNK_TRAILER;
    else
        d->state = d->left ? CHUNK_DATA : CHUNK_TRAILER;
    d->line = 0;
}

/* One byte outside the data. Lines end in CR LF, nothing else. */
static int frame_byte(struct http_chunked *d, char c)
{
    int digit = hex_digit(c);

    if (d->cr != (c == '\n')) /* a bare CR or a bare LF */
        return -EBADMSG;
    d->cr = c == '\r';
    if (d->cr)
        return 0;
    if (d->state == CHUNK_DATA_END) {
        d->state = CHUNK_SIZE;
        return c == '\n' ? 0 : -EBADMSG;
    }
    if (c == '\n') {
        if (d->state == CHUNK_SIZE && d->line == 0)
            return -EBADMSG;
        end_line(d, d->line == 0);
        return 0;
    }
    if (++d->line > MAX_CHUNK_LINE_BYTES)
        return -EBADMSG;
    if (d->state != CHUNK_SIZE)
        return 0;
    if (digit < 0) {
        if (d->line == 1 || (c != ';' && c != ' ' && c != '\t'))
            return -EBADMSG;
        d->state = CHUNK_EXTENSION;
        return 0;
    }
    d->left = d->left << 4 | (uint64_t)digit;
    return d->left > MAX_CHUNK_BYTES ? -EBADMSG : 0;
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
