/* Parses HTTP/1 heads, of requests and of answers. */
#include "conductor/http/parse.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define HTTP_LENGTH_MAX INT64_C(999999999999999999) /* 18 digits */

static long refuse(struct http_fault *fault, int status, const char *message)
{
    *fault = (struct http_fault){status, message};
    return -EBADMSG;
}

const struct http_slice *http_find(const struct http_head *head,
                                   const char *name)
{
    struct http_slice like = http_text(name);

    for (size_t i = 0; i < head->n_headers; i++)
        if (http_is_alike(head->headers[i].name, like))
            return &head->headers[i].value;
    return NULL;
}

/* Clears all but the array of headers: n_headers is 0. */
static void clear(struct http_head *head)
{
    memset(head, 0, offsetof(struct http_head, headers));
    head->content_length = -1;
}

static bool is_token_slice(struct http_slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!http_is_token((unsigned char)s.at[i]))
            return false;
    return s.n > 0;
}

/*
 * Takes the line at *at, without its CR LF, and moves *at past it. Returns 1;
 * 0: no complete line yet; or refuses a line that ends in a bare LF, which some
 * parsers take as an end and some do not: they would see different requests.
 */
static long take_line(const char **at, const char *end, struct http_slice *line,
                      struct http_fault *fault)
{
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));

    if (!newline)
        return 0;
    if (newline == *at || newline[-1] != '\r')
        return refuse(fault, 400, "a line that doesn't end in CR LF");
    *line = (struct http_slice){*at, (size_t)(newline - *at) - 1};
    *at = newline + 1;
    return 1;
}

struct http_slice http_trim(struct http_slice s)
{
    while (s.n && (*s.at == ' ' || *s.at == '\t')) {
        s.at++;
        s.n--;
    }
    while (s.n && (s.at[s.n - 1] == ' ' || s.at[s.n - 1] == '\t'))
        s.n--;
    return s;
}

bool http_next_item(struct http_slice *list, struct http_slice *item)
{
    const char *comma = memchr(list->at, ',', list->n);
    size_t n = comma ? (size_t)(comma - list->at) : list->n;

    if (list->n == 0)
        return false;
    *item = http_trim((struct http_slice){list->at, n});
    n += comma ? 1 : 0;
    *list = (struct http_slice){list->at + n, list->n - n};
    return true;
}

/*
 * Splits a request target into path and query: "/path?query", or the same after
 * "http://authority" (RFC 9112, 3.2.2; any authority, as this server is all
 * there is). Any other form stays unchanged; no route matches it.
 */
static struct http_slice target_path(struct http_slice target,
                                     struct http_slice *query)
{
    static const char scheme[] = "http://";
    const char *end = target.at + target.n, *at = target.at;
    const char *at_query;

    if (http_begins_fold(target, scheme)) {
        at += sizeof(scheme) - 1;
        while (at < end && *at != '/' && *at != '?')
            at++;
        if (at == end || *at == '?') {
            *query = (struct http_slice){at, (size_t)(end - at)};
            return (struct http_slice){"/", 1};
        }
    }
    at_query = memchr(at, '?', (size_t)(end - at));
    if (!at_query)
        at_query = end;
    *query = (struct http_slice){at_query, (size_t)(end - at_query)};
    return (struct http_slice){at, (size_t)(at_query - at)};
}

/* METHOD SP TARGET SP HTTP/1.x */
static long parse_request_line(struct http_slice line, struct http_head *out,
                               struct http_fault *fault)
{
    const char *end = line.at + line.n, *space, *second;
    struct http_slice version;

    space = memchr(line.at, ' ', line.n);
    second = space ? memchr(space + 1, ' ', (size_t)(end - space - 1)) : NULL;
    if (!second)
        return refuse(fault, 400, "the request line isn't HTTP/1");
    out->method = (struct http_slice){line.at, (size_t)(space - line.at)};
    out->path = (struct http_slice){space + 1, (size_t)(second - space - 1)};
    version = (struct http_slice){second + 1, (size_t)(end - second - 1)};
    if (!is_token_slice(out->method) || out->path.n == 0)
        return refuse(fault, 400, "the request line isn't HTTP/1");
    for (size_t i = 0; i < out->path.n; i++)
        if ((unsigned char)out->path.at[i] <= ' ')
            return refuse(fault, 400, "the path holds a control character");
    out->http10 = http_is(version, "HTTP/1.0");
    if (!out->http10 && !http_is(version, "HTTP/1.1"))
        return refuse(fault, 505, "only HTTP/1.0 and HTTP/1.1 are spoken");
    out->path = target_path(out->path, &out->query);
    out->keep_alive = !out->http10;
    return 0;
}

int64_t http_number(struct http_slice s, int64_t most)
{
    int64_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        if (s.at[i] < '0' || s.at[i] > '9' || n > most / 10)
            return -1;
        n = n * 10 + (s.at[i] - '0');
    }
    return s.n > 0 && n <= most ? n : -1;
}

static long parse_length(struct http_slice value, struct http_head *out,
                         struct http_fault *fault)
{
    int64_t length = value.n <= 18 ? http_number(value, HTTP_LENGTH_MAX) : -1;

    if (length < 0)
        return refuse(fault, 400, "Content-Length isn't a number");
    if (out->content_length >= 0)
        return refuse(fault, 400, "two Content-Length headers");
    out->content_length = length;
    return 0;
}

/* Applies the options of one Connection header, a list (RFC 9110, 7.6.1).
 * "close" wins over "keep-alive" in any place. */
static void apply_connection(struct http_slice value, struct http_head *out)
{
    struct http_slice item;

    while (http_next_item(&value, &item)) {
        out->close = out->close || http_is_fold(item, "close");
        out->keep_alive = out->keep_alive || http_is_fold(item, "keep-alive");
    }
}

/* Applies the headers that define a message's framing. */
static long apply_header(struct http_slice name, struct http_slice value,
                         struct http_head *out, struct http_fault *fault)
{
    if (http_is_fold(name, "content-length"))
        return parse_length(value, out, fault);
    if (http_is_fold(name, "transfer-encoding")) {
        if (!http_is_fold(value, "chunked") || out->chunked)
            return refuse(fault, 501,
                          "only 'chunked' is understood as "
                          "Transfer-Encoding");
        out->chunked = true;
    }
    if (http_is_fold(name, "host") && out->n_hosts++)
        return refuse(fault, 400, "two Host headers");
    if (http_is_fold(name, "connection"))
        apply_connection(value, out);
    if (http_is_fold(name, "expect")) {
        if (!http_is_fold(value, "100-continue"))
            return refuse(fault, 417,
                          "only '100-continue' is understood as "
                          "Expect");
        out->expect_continue = true;
    }
    return 0;
}

static long parse_header(struct http_slice line, struct http_head *out,
                         struct http_fault *fault)
{
    const char *colon = memchr(line.at, ':', line.n);
    struct http_header *header = &out->headers[out->n_headers];

    if (!colon)
        return refuse(fault, 400, "a header line without a colon");
    if (out->n_headers == HTTP_MAX_HEADERS)
        return refuse(fault, 431, "more than 64 headers");
    header->name = (struct http_slice){line.at, (size_t)(colon - line.at)};
    header->value = http_trim(
        (struct http_slice){colon + 1, (size_t)(line.at + line.n - colon - 1)});
    if (!is_token_slice(header->name))
        return refuse(fault, 400, "a header's name isn't a token");
    for (size_t i = 0; i < header->value.n; i++)
        if (!http_is_text((unsigned char)header->value.at[i]))
            return refuse(fault, 400, "a header holds a control character");
    out->n_headers++;
    return apply_header(header->name, header->value, out, fault);
}

/* Parses all headers and their empty line, moves *at past them, and checks what
 * they say of body and connection. Returns 1; 0: more bytes are needed; or
 * refuses. */
static long parse_rest(const char **at, const char *end, struct http_head *out,
                       struct http_fault *fault)
{
    struct http_slice line;
    long rc;

    while ((rc = take_line(at, end, &line, fault)) > 0 && line.n > 0)
        if ((rc = parse_header(line, out, fault)))
            return rc;
    if (rc <= 0)
        return rc;
    if (out->close)
        out->keep_alive = false;
    if (out->chunked && (out->content_length >= 0 || out->http10))
        return refuse(fault, 400, "Transfer-Encoding is not allowed here");
    return 1;
}

long http_parse_head(const char *bytes, size_t n, struct http_head *out,
                     struct http_fault *fault)
{
    const char *p = bytes, *end = bytes + n;
    struct http_slice line;
    long rc;

    clear(out);
    do { /* RFC 9112, 2.2: empty lines before a request are skipped */
        rc = take_line(&p, end, &line, fault);
        if (rc <= 0)
            return rc;
    } while (line.n == 0);
    rc = parse_request_line(line, out, fault);
    if (rc)
        return rc;
    rc = parse_rest(&p, end, out, fault);
    if (rc <= 0)
        return rc;
    if (!out->http10 && out->n_hosts == 0) /* RFC 9112, 3.2 */
        return refuse(fault, 400, "a request of HTTP/1.1 needs a Host header");
    return p - bytes;
}

size_t http_unescape(const char *at, size_t n, char *out, size_t size)
{
    size_t length = 0, used;

    for (size_t i = 0; i < n; i += used) {
        if (length + 1 == size) {
            *out = '\0';
            return 0;
        }
        out[length++] = (char)http_decode(at + i, n - i, &used);
    }
    out[length] = '\0';
    return length;
}

static void move(struct http_slice *s, const char *from, size_t n,
                 const char *to)
{
    uintptr_t offset = (uintptr_t)s->at - (uintptr_t)from;

    if (s->at && offset <= n) /* else the slice is constant */
        s->at = to + offset;
}

void http_head_move(struct http_head *head, const char *from, size_t n,
                    const char *to)
{
    move(&head->method, from, n, to);
    move(&head->path, from, n, to);
    move(&head->query, from, n, to);
    for (size_t i = 0; i < head->n_headers; i++) {
        move(&head->headers[i].name, from, n, to);
        move(&head->headers[i].value, from, n, to);
    }
}

/* HTTP/1.x SP three digits, and SP phrase or nothing */
static long parse_status_line(struct http_slice line, struct http_head *out,
                              struct http_fault *fault)
{
    static const char version[] = "HTTP/1.";
    const size_t n = sizeof(version) - 1; /* of the bytes before the x */
    int status = 0;

    if (line.n < n + 5 || memcmp(line.at, version, n) != 0 ||
        (line.at[n] != '0' && line.at[n] != '1') || line.at[n + 1] != ' ')
        return refuse(fault, 502, "the status line isn't HTTP/1");
    for (size_t i = n + 2; i < n + 5; i++) {
        if (line.at[i] < '0' || line.at[i] > '9')
            return refuse(fault, 502, "the status isn't a number");
        status = 10 * status + (line.at[i] - '0');
    }
    if (status < 100 || status > 599 ||
        (line.n > n + 5 && line.at[n + 5] != ' '))
        return refuse(fault, 502, "the status isn't one of 100 to 599");
    out->status = status;
    out->http10 = line.at[n] == '0';
    out->keep_alive = !out->http10;
    return 0;
}

static long parse_answer(const char *bytes, size_t n, struct http_head *out,
                         struct http_fault *fault)
{
    const char *p = bytes, *end = bytes + n;
    struct http_slice line;
    long rc = take_line(&p, end, &line, fault);

    clear(out);
    if (rc <= 0)
        return rc;
    rc = parse_status_line(line, out, fault);
    if (rc)
        return rc;
    rc = parse_rest(&p, end, out, fault);
    return rc <= 0 ? rc : p - bytes;
}

long http_parse_answer(const char *bytes, size_t n, struct http_head *out,
                       struct http_fault *fault)
{
    long rc = parse_answer(bytes, n, out, fault);

    if (rc < 0)
        fault->status = 502;
    return rc;
}
