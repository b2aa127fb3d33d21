/* Reads the answer of an exchange: head, and body without the framing. */
#include <errno.h>
#include <string.h>

#include "base/socket.h"
#include "conductor/link/upstream/exchange/internal.h"

/* Returns whether the callback cancelled the exchange; if so, frees it. */
static bool was_cancelled(struct exchange *x)
{
    x->in_call = false;
    if (x->ops)
        return false;
    upstream_drop(x);
    return true;
}

/* Hands over n bytes. Returns false: the exchange is gone. */
static bool hand_over(struct exchange *x, const char *bytes, size_t n)
{
    if (n == 0)
        return true;
    x->in_call = true;
    x->ops->bytes(x->arg, bytes, n);
    return !was_cancelled(x);
}

/* Copies the first bytes of a body at [at .. end) without framing. Returns how
 * many; *all: the body ends with them. */
static size_t peek(const struct exchange *x, const char *at, const char *end,
                   char out[WHOSE_BYTES_MAX], bool *all)
{
    struct http_chunked chunked = {0};
    struct http_piece piece = {at, (size_t)(end - at)};
    size_t got = 0, used;
    int rc = 0;

    if (x->part == PART_SIZED && x->left < piece.n)
        piece.n = x->left;
    *all = x->part == PART_DONE || (x->part == PART_TO_END && x->over) ||
           (x->part == PART_SIZED && piece.n == x->left);
    while (got < WHOSE_BYTES_MAX && at < end && rc == 0) {
        used = (size_t)(end - at);
        if (x->part == PART_CHUNKED)
            rc = http_chunked_next(&chunked, at, (size_t)(end - at), &used,
                                   &piece);
        if (rc < 0 || used == 0)
            break;
        if (piece.n > WHOSE_BYTES_MAX - got)
            piece.n = WHOSE_BYTES_MAX - got;
        if (piece.n) /* else `at` may be NULL */
            memcpy(out + got, piece.at, piece.n);
        got += piece.n;
        at += used;
    }
    *all = *all || rc != 0;
    return got;
}

/* Decides whose answer this is, by its head and its body so far at [at .. end);
 * `full`: no more bytes are awaited. An answer on a new connection is accepted;
 * so is an error that names no request, if it is 429 or 5xx, or if the request
 * may not be sent again. */
static enum whose whose(struct exchange *x, const struct http_head *head,
                        const char *at, const char *end, bool full)
{
    char begin[WHOSE_BYTES_MAX];
    bool all = true;
    size_t got = head->status < 300 ? peek(x, at, end, begin, &all) : 0;
    enum whose found = whose_answer(head, begin, got, all || full, x->id);

    if (found == WHOSE_MORE)
        return found;
    if (head->status < 300 && (!x->reused || found == WHOSE_OWN))
        x->upstream->anonymous = found != WHOSE_OWN;
    x->keep = x->keep && found == WHOSE_OWN;
    return !x->reused || (found == WHOSE_NOBODYS && head->status >= 300 &&
                          (!x->request.repeats || head->status == 429 ||
                           head->status >= 500))
               ? WHOSE_OWN
               : found;
}

/* Sends the request again, or fails it: the answer does not name it. */
static void refuse(struct exchange *x)
{
    if (!x->request.repeats)
        upstream_fail(x, UPSTREAM_INVALID, "its answer is to another request");
    else if (!upstream_send_again(x))
        upstream_fail(x, UPSTREAM_BROKEN, "out of memory");
}

/* How the body ends (RFC 9112, 6.3). */
static void frame_body(struct exchange *x, const struct http_head *head)
{
    x->keep = head->keep_alive;
    x->chunked = (struct http_chunked){0};
    x->left = 0;
    if (head->status == 204 || head->status == 304 ||
        strcmp(x->request.method, "HEAD") == 0) {
        x->part = PART_DONE;
    } else if (head->chunked) {
        x->part = PART_CHUNKED;
    } else if (head->content_length >= 0) {
        x->left = (uint64_t)head->content_length;
        x->part = x->left ? PART_SIZED : PART_DONE;
    } else {
        x->part = PART_TO_END;
        x->keep = false;
    }
}

/* Reads heads up to the final answer's. Returns 1: it was handed over; 0: more
 * bytes are needed, and then a held head is read again; -1: the exchange is
 * gone. */
static int read_head(struct exchange *x)
{
    size_t most = x->upstream->options.max_head_bytes;

    for (;;) {
        size_t have;
        const char *run = stream_input(x->stream, &have);
        size_t look = have < most ? have : most;
        struct http_fault fault;
        struct http_head head;
        enum whose found;
        long n;

        if (have == 0)
            return 0;
        n = http_parse_answer(run, look, &head, &fault);
        if (n < 0 || (n == 0 && have >= most)) {
            upstream_fail(x, UPSTREAM_INVALID,
                          n < 0 ? fault.message
                                : "the answer's head is too large");
            return -1;
        }
        if (n == 0)
            return 0;
        if (head.status >= 200) {
            frame_body(x, &head);
            found = x->use ? whose(x, &head, run + n, run + look, look == most)
                           : WHOSE_OWN;
            if (found == WHOSE_MORE ||
                (x->request.holds_head && head.status == 200 &&
                 x->part != PART_DONE && have == (size_t)n)) {
                x->part = PART_HEAD;
                return 0;
            }
            if (found != WHOSE_OWN) {
                refuse(x);
                return -1;
            }
            x->in_call = true;
            x->ops->answer(x->arg, &head);
            if (was_cancelled(x))
                return -1;
            stream_use(x->stream, (size_t)n);
            return 1;
        }
        if (head.status == 101) {
            upstream_fail(x, UPSTREAM_INVALID, "the engine switches protocols");
            return -1;
        }
        stream_use(x->stream, (size_t)n);
    }
}

/* Hands over the next piece of the body in run[0 .. n). Returns the bytes used;
 * 0: the exchange is gone. */
static size_t read_piece(struct exchange *x, const char *run, size_t n)
{
    struct http_piece piece = {run, n};
    size_t used = n;
    int rc;

    if (x->part == PART_SIZED) {
        piece.n = used = n < x->left ? n : (size_t)x->left;
        x->left -= used;
        if (x->left == 0)
            x->part = PART_DONE;
    } else if (x->part == PART_CHUNKED) {
        rc = http_chunked_next(&x->chunked, run, n, &used, &piece);
        if (rc < 0) {
            upstream_fail(x, UPSTREAM_INVALID, "the chunked body is malformed");
            return 0;
        }
        if (rc > 0)
            x->part = PART_DONE;
    }
    return hand_over(x, piece.at, piece.n) ? used : 0;
}

/* Reads the bytes of the body so far. Returns false: the exchange is gone. */
static bool read_body(struct exchange *x)
{
    const char *run;
    size_t n;

    while (x->part != PART_DONE && (run = stream_input(x->stream, &n)) &&
           n > 0) {
        size_t used = read_piece(x, run, n);

        if (used == 0)
            return false;
        stream_use(x->stream, used);
    }
    return true;
}

/* Reads the bytes of the answer so far. Returns false: the exchange is gone, or
 * its request was sent again. */
static bool read_answer(struct exchange *x)
{
    int rc = x->part == PART_HEAD ? read_head(x) : 1;

    return rc == 0 || (rc > 0 && read_body(x));
}

void upstream_on_read(void *arg)
{
    struct exchange *x = arg;

    if (!x->ops) { /* kept: these bytes belong to no request */
        upstream_drop_kept(x);
        return;
    }
    x->any = x->any || stream_unused(x->stream) > 0;
    if (!read_answer(x))
        return;
    if (x->part == PART_DONE)
        upstream_end(x);
    else /* with Nagle's algorithm an engine delays the rest until an ACK */
        socket_acknowledge(x->upstream->loop, stream_fd(x->stream));
}

void upstream_on_ended(void *arg, int error)
{
    struct exchange *x = arg;

    if (!x->ops) {
        upstream_drop_kept(x);
        return;
    }
    x->over = error == 0;
    /* A head may have waited for a body that ends with the connection. */
    if (x->over && x->part == PART_HEAD && !read_answer(x))
        return;
    if (x->over && x->part == PART_TO_END) {
        upstream_end(x);
        return;
    }
    if (x->reused && !x->any) { /* closed before the engine read the request */
        if (!upstream_send_again(x))
            upstream_fail(x, UPSTREAM_BROKEN, "out of memory");
        return;
    }
    if (x->any)
        upstream_fail(x, UPSTREAM_BROKEN, "the connection broke off");
    else if (error == 0)
        upstream_fail(x, UPSTREAM_BROKEN,
                      "it closed the connection without an answer");
    else
        upstream_fail_connect(x, -error);
}
