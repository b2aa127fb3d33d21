/* A request's body, as it comes. */
#include <errno.h>
#include <string.h>

#include "conductor/front/server/internal.h"

/* Bodies from this size on are read by read_large(). */
#define LARGE_BODY_BYTES 2048
#define READ_MOST_BYTES ((size_t)262144) /* at once */
#define READS_PER_TURN 16

/* Makes room for n more bytes of body. Returns 0; -EDQUOT: over
 * max_body_total_bytes; -ENOBUFS: over max_body_bytes; -ENOMEM. */
static int reserve_body(struct http_conn *conn, size_t n)
{
    const struct http_server *server = conn->server;

    size_t taken = server->stats.body_bytes,
           all = server->options.max_body_total_bytes;

    /* A replaced body may be a little over. Each client may have one body,
     * however much the others have. */
    if (taken > all || n > all - taken ||
        (conn->client->body_bytes + n > server->options.max_body_bytes &&
         !http_share_allows(conn->client->body_bytes, n, taken, all)))
        return -EDQUOT;
    return text_buf_reserve(&conn->body, n);
}

static void add_to_body(struct http_conn *conn, size_t n)
{
    conn->body.len += n;
    http_conn_count_body(conn, conn->body.len);
    http_turn_read(conn, n);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Reads from the socket into the body, at most `want` bytes. Allocates no more
 * than has come so far. Returns 0 or -ENOMEM. */
static int read_large(struct http_conn *conn, size_t want)
{
    for (unsigned i = 0; i < READS_PER_TURN && !http_turn_is_over(conn); i++) {
        size_t most = least(least(conn->body.len, want), READ_MOST_BYTES);
        int rc = most < LARGE_BODY_BYTES ? -EDQUOT : reserve_body(conn, most);
        size_t n;

        if (rc)
            return rc == -EDQUOT ? 0 : rc;
        n = stream_read(conn->stream, conn->body.data + conn->body.len, most);
        if (n == 0)
            return 0;
        add_to_body(conn, n);
        want -= n;
    }
    return 0;
}

/* Reads a body by Content-Length. Returns 1: it is whole; 0; < 0 as
 * reserve_body(). */
static int read_sized(struct http_conn *conn)
{
    size_t length =
        conn->head.content_length > 0 ? (size_t)conn->head.content_length : 0;
    size_t want = length - conn->body.len, have;
    const char *in = stream_input(conn->stream, &have);
    size_t take = least(have, want);
    int rc = take ? reserve_body(conn, take) : 0;

    if (rc)
        return rc;
    if (take) {
        memcpy(conn->body.data + conn->body.len, in, take);
        add_to_body(conn, take);
        stream_use(conn->stream, take);
    }
    rc = read_large(conn, want - take);
    return rc ? rc : conn->body.len == length;
}

/* The same for a chunked body; or returns -EBADMSG. */
static int read_chunked(struct http_conn *conn)
{
    size_t have;
    const char *in;

    while ((in = stream_input(conn->stream, &have)) && have > 0) {
        struct http_piece piece;
        size_t used;
        bool done;
        int rc = http_chunked_next(&conn->chunked, in, have, &used, &piece);

        if (rc < 0)
            return rc;
        done = rc > 0;
        rc = reserve_body(conn, piece.n);
        if (rc)
            return rc;
        text_buf_add(&conn->body, piece.at, piece.n);
        http_conn_count_body(conn, conn->body.len);
        http_turn_read(conn, piece.n);
        stream_use(conn->stream, used);
        if (done)
            return 1;
    }
    return 0;
}

int http_body_read(struct http_conn *conn)
{
    return conn->head.chunked ? read_chunked(conn) : read_sized(conn);
}
