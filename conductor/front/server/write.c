/* Answers: status line, headers, whole bodies and chunked streams. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/loop/loop.h"
#include "base/text.h"
#include "conductor/front/server/internal.h"

#define FULL_BYTES 262144    /* writers of streams wait above this */
#define CHUNK_FRAME_BYTES 24 /* at most: the size, and two line ends */
#define SHORT_BYTES 4096     /* a short answer, or a small part of a stream */
#define HEAD_BYTES 320       /* at most, without the callers' values */

static const char *phrase(int status)
{
    static const struct {
        int status;
        const char *phrase;
    } phrases[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };

    for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]); i++)
        if (phrases[i].status == status)
            return phrases[i].phrase;
    return status < 400 ? "OK" : "Error";
}

void http_on_gone(struct http_conn *conn, void (*gone)(void *arg), void *arg)
{
    conn->gone = gone;
    conn->gone_arg = arg;
}

/* A value's bytes; control characters become '?'. */
static char *put_value(char *to, struct http_slice value)
{
    for (size_t i = 0; i < value.n; i++) {
        unsigned char c = (unsigned char)value.at[i];

        *to++ = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    return to;
}

void http_pass_header(struct http_conn *conn, const struct http_header *header)
{
    struct text_buf *extra = &conn->extra;
    size_t n = header->name.n + header->value.n + 4;
    char *at;

    if (text_buf_reserve(extra, n)) {
        extra->error = 0;
        return;
    }
    at = mempcpy(extra->data + extra->len, header->name.at, header->name.n);
    at = put_value(mempcpy(at, ": ", 2), header->value);
    memcpy(at, "\r\n", 2);
    extra->len += n;
}

void http_add_header(struct http_conn *conn, const char *name,
                     const char *value)
{
    http_pass_header(conn, &(struct http_header){
                               .name = {name, strlen(name)},
                               .value = {value, strlen(value)},
                           });
}

/* The Date header's value; computed once a second. */
static const char *date(struct http_server *server)
{
    time_t now = loop_wall_us(server->loop) / 1000000;
    struct tm tm;

    if (now != server->date_s) {
        server->date_s = now;
        gmtime_r(&now, &tm);
        strftime(server->date, sizeof(server->date),
                 "%a, %d %b %Y %H:%M:%S GMT", &tm);
    }
    return server->date;
}

/* Returns 0 or -ENOMEM. */
static int write_head(struct http_conn *conn, int status, const char *type,
                      int64_t length)
{
    size_t most = conn->extra.len + (type ? strlen(type) : 0) + HEAD_BYTES;
    char *head = stream_room(conn->stream, most), *at = head;

    conn->close = conn->close || conn->server->draining;
    conn->server->stats.by_class[status / 100 % 6]++;
    if (!head)
        return -ENOMEM;
    at = stpcpy(text_number(stpcpy(at, "HTTP/1.1 "), (uint64_t)status), " ");
    at = stpcpy(stpcpy(at, phrase(status)), "\r\nDate: ");
    at = stpcpy(stpcpy(at, date(conn->server)), "\r\n");
    if (type)
        at = stpcpy(stpcpy(stpcpy(at, "Content-Type: "), type), "\r\n");
    if (length >= 0 && status != 204 && status != 304)
        at = stpcpy(
            text_number(stpcpy(at, "Content-Length: "), (uint64_t)length),
            "\r\n");
    else if (length < 0 && conn->chunked_out)
        at = stpcpy(at, "Transfer-Encoding: chunked\r\n");
    if (conn->close)
        at = stpcpy(at, "Connection: close\r\n");
    else if (conn->head.http10)
        at = stpcpy(at, "Connection: keep-alive\r\n");
    if (conn->extra.len)
        at = mempcpy(at, conn->extra.data, conn->extra.len);
    at = stpcpy(at, "\r\n");
    text_buf_clear(&conn->extra);
    stream_wrote(conn->stream, (size_t)(at - head));
    return 0;
}

/* Memory for output over SHORT_BYTES: SHORT_BYTES are kept for each connection,
 * so that a client that reads is not cut off when others stall. */
static size_t for_more(const struct http_server *server)
{
    size_t all = server->options.max_output_total_bytes,
           kept = server->stats.connections * SHORT_BYTES;

    return all - (kept < all / 2 ? kept : all / 2);
}

/* Whether there is memory for n more bytes. A client that has read all of
 * this answer so far may have the last of it, whatever its other connections
 * hold. */
static bool may_hold(const struct http_conn *conn, size_t n)
{
    const struct http_server *server = conn->server;
    size_t mine = conn->held, others = stream_loop_held(server->streams) - mine,
           will = stream_would_hold(conn->stream, n + CHUNK_FRAME_BYTES),
           all = will > SHORT_BYTES ? for_more(server)
                                    : server->options.max_output_total_bytes;

    if (conn->operators)
        return true;
    return mine && will > SHORT_BYTES
               ? http_share_allows(conn->client->held_bytes - mine, will,
                                   others, all)
               : others < all && will <= all - others;
}

void http_reply(struct http_conn *conn, int status, const char *type,
                const void *body, size_t n)
{
    if (n > SHORT_BYTES && !may_hold(conn, n)) {
        conn->server->stats.slow++;
        http_refuse(conn, 503, "too_many_unsent_bytes", NULL,
                    "no memory for this answer: clients have not read theirs "
                    "yet (max_output_total_bytes)");
        return;
    }
    if (write_head(conn, status, type, (int64_t)n) ||
        (!conn->head_only && stream_write(conn->stream, body, n))) {
        http_conn_die(conn);
        return;
    }
    http_conn_count_held(conn);
    http_conn_answered(conn);
}

void http_reply_error(struct http_conn *conn, const struct openai_error *error)
{
    struct text_buf body;

    if (!conn->recorded)
        conn->server->handlers->refused(conn->server->arg, conn,
                                        conn->has_head ? &conn->head : NULL,
                                        error);
    text_buf_init(&body, 16384);
    openai_error_write(error, &body);
    http_reply(conn, error->http_status, "application/json", body.data,
               body.len);
    text_buf_fini(&body);
}

void http_refuse(struct http_conn *conn, int status, const char *code,
                 const char *param, const char *format, ...)
{
    struct openai_error error;
    va_list args;

    va_start(args, format);
    openai_error_vset(&error, status, code, param, format, args);
    va_end(args);
    http_reply_error(conn, &error);
}

static void begin(struct http_conn *conn, int status, const char *type,
                  int64_t length)
{
    conn->chunked_out = length < 0 && !conn->head.http10 && !conn->head_only;
    /* Without chunks the body ends with the connection. */
    if (length < 0 && !conn->chunked_out && !conn->head_only)
        conn->close = true;
    conn->broken = write_head(conn, status, type, length) != 0;
}

void http_stream(struct http_conn *conn, int status, const char *type)
{
    begin(conn, status, type, -1);
}

void http_begin(struct http_conn *conn, int status, int64_t length)
{
    begin(conn, status, NULL, length);
}

void http_operators(struct http_conn *conn)
{
    conn->operators = true;
}

void http_recorded(struct http_conn *conn)
{
    conn->recorded = true;
}

void http_note(struct http_conn *conn, const void *what)
{
    conn->noted = what;
}

const void *http_noted(const struct http_conn *conn)
{
    return conn->noted;
}

void http_keep_body(struct http_conn *conn)
{
    conn->keep_body = true;
}

void http_replace_body(struct http_conn *conn, struct text_buf *body)
{
    http_conn_drop_body(conn);
    conn->body.data = body->data;
    conn->body.len = body->len;
    conn->body.cap = body->cap;
    http_conn_count_body(conn, body->len);
    text_buf_init(body, body->max);
    conn->keep_body = true;
}

size_t http_unsent(const struct http_conn *conn)
{
    return stream_unsent(conn->stream);
}

void http_on_taken(struct http_conn *conn, void (*taken)(void *arg), void *arg)
{
    conn->taken = taken;
    conn->taken_arg = arg;
}

void http_break(struct http_conn *conn)
{
    conn->close = true;
    http_conn_answered(conn);
}

static int write_chunk(struct stream *out, const void *bytes, size_t n)
{
    char *begin = stream_room(out, n + CHUNK_FRAME_BYTES), *to;

    if (!begin)
        return -ENOMEM;
    to = mempcpy(text_hex(begin, n, 1), "\r\n", 2);
    to = mempcpy(to, bytes, n);
    to = mempcpy(to, "\r\n", 2);
    stream_wrote(out, (size_t)(to - begin));
    return 0;
}

bool http_is_full(const struct http_conn *conn)
{
    const struct http_server *server = conn->server;

    return http_unsent(conn) > FULL_BYTES ||
           (conn->held && !http_share_allows(conn->client->held_bytes, 0,
                                             stream_loop_held(server->streams),
                                             for_more(server) / 2));
}

int http_write(struct http_conn *conn, const void *bytes, size_t n)
{
    int rc;

    if (n == 0)
        return 0;
    if (conn->broken)
        return -ENOMEM;
    http_conn_count_held(conn);
    if (http_unsent(conn) + n > conn->server->options.max_output_bytes ||
        !may_hold(conn, n)) {
        conn->server->stats.slow++;
        return -ENOBUFS;
    }
    rc = conn->chunked_out ? write_chunk(conn->stream, bytes, n)
                           : stream_write(conn->stream, bytes, n);
    http_conn_count_held(conn);
    return rc;
}

void http_end(struct http_conn *conn)
{
    if (conn->broken ||
        (conn->chunked_out && stream_write(conn->stream, "0\r\n\r\n", 5))) {
        http_conn_die(conn);
        return;
    }
    http_conn_answered(conn);
}

void http_abort(struct http_conn *conn)
{
    http_conn_die(conn);
}
