/*
 * HTTP/1.0 and 1.1 requests as far as a server needs them, pure: bytes in,
 * structs out. Strict where leniency lets two parties see different requests
 * (RFC 9112, sections 5.1, 6.1 and 6.3): no folded lines, no space before a
 * colon, one Content-Length, never both it and Transfer-Encoding, exactly one
 * Host in HTTP/1.1, and CR LF as the only end of a line.
 */
#ifndef CONDUCTOR_HTTP_PARSE_H
#define CONDUCTOR_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#define HTTP_MAX_HEADERS 64

struct http_slice {
    const char *at;
    size_t n;
};

struct http_header {
    struct http_slice name;
    struct http_slice value; /* without white space around it */
};

/* The head of a request, or of an answer. Slices point into the parsed bytes,
 * or are constant. */
struct http_head {
    struct http_slice method;
    struct http_slice path;  /* without the query and a leading http://host */
    struct http_slice query; /* "?..." behind the path, or empty */
    int status;              /* closed by the client: keep_alive is false */
    bool http10;
    bool keep_alive;
    bool close; /* the client said so; then keep_alive is false */
    bool chunked;
    bool expect_continue;
    int64_t content_length; /* -1: none given */
    size_t n_hosts;
    size_t n_headers;
    struct http_header headers[HTTP_MAX_HEADERS];
};

/* Why a head was refused: the status to answer and one sentence. */
struct http_fault {
    int status;
    const char *message; /* static */
};

/*
 * Parses the head at bytes[0 .. n), up to and with its empty line.
 * Returns its length (> 0); 0 when more bytes are needed; -EBADMSG with *fault
 * set. O(n).
 */
[[nodiscard]] long http_parse_head(const char *bytes, size_t n,
                                   struct http_head *out,
                                   struct http_fault *fault);

/*
 * Parses an answer's head at bytes[0 .. n), as http_parse_head() does. An
 * answer with an ambiguous end is refused: with two Content-Length headers,
 * even if equal, with a length and Transfer-Encoding, or with an encoding other
 * than chunked.
 * Returns its length; 0; or -EBADMSG with *fault set, whose status is 502.
 * O(n).
 */
[[nodiscard]] long http_parse_answer(const char *bytes, size_t n,
                                     struct http_head *out,
                                     struct http_fault *fault);

/* Moves the slices of `head` along with its bytes, from [from .. from + n) to
 * `to`. */
void http_head_move(struct http_head *head, const char *from, size_t n,
                    const char *to);

/* Returns the value of a header by its lower-case name; NULL = absent. */
const struct http_slice *http_find(const struct http_head *head,
                                   const char *name);

/* Returns the slice without the blanks and tabs around it. */
struct http_slice http_trim(struct http_slice s);

/* Decodes %XX in the n bytes at `at` into out (size), with a NUL; a % without
 * two hex digits stays. out may be `at`. Returns the bytes written; 0 with ""
 * if they do not fit. */
size_t http_unescape(const char *at, size_t n, char *out, size_t size);

/* Cuts the first item, trimmed, off a list with commas (RFC 9110, 5.6.1).
 * Returns false: the list is empty. */
bool http_next_item(struct http_slice *list, struct http_slice *item);

/* Returns a C string, borrowed, as a slice. */
static inline struct http_slice http_text(const char *text)
{
    return (struct http_slice){text, strlen(text)};
}

/* Returns whether slice `s` and C string `text`, both borrowed, are the same
 * bytes. */
static inline bool http_is(struct http_slice s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.at, text, s.n) == 0;
}

/* Returns whether two slices, both borrowed, have equal bytes up to the case of
 * ASCII letters, as in header names. Most differ in length. */
static inline bool http_is_alike(struct http_slice a, struct http_slice b)
{
    return a.n == b.n && strncasecmp(a.at, b.at, a.n) == 0;
}

/* Returns the same for a slice and a C string. */
static inline bool http_is_fold(struct http_slice s, const char *text)
{
    return http_is_alike(s, http_text(text));
}

/* Returns whether a slice begins with a C string; with http_begins_fold() in
 * any case.
 */
static inline bool http_begins(struct http_slice s, const char *with)
{
    return s.n >= strlen(with) && memcmp(s.at, with, strlen(with)) == 0;
}

static inline bool http_begins_fold(struct http_slice s, const char *with)
{
    return s.n >= strlen(with) && strncasecmp(s.at, with, strlen(with)) == 0;
}

/* Returns a number in digits, 0 to `most`; -1: it is none, or larger. */
int64_t http_number(struct http_slice s, int64_t most);

/* A byte of a token, as the name of a header (RFC 9110, section 5.6.2). */
static inline bool http_is_token(unsigned char c)
{
#define BIT(c) (UINT64_C(1) << ((c) % 64))
    static const uint64_t tokens[4] = {
        UINT64_C(0x3ff) << '0' | BIT('!') | BIT('#') | BIT('$') | BIT('%') |
            BIT('&') | BIT('\'') | BIT('*') | BIT('+') | BIT('-') | BIT('.'),
        UINT64_C(0x3ffffff) << 'A' % 64 | UINT64_C(0x3ffffff) << 'a' % 64 |
            BIT('^') | BIT('_') | BIT('`') | BIT('|') | BIT('~'),
    };
#undef BIT

    return tokens[c / 64] >> c % 64 & 1;
}

/* Returns a hex digit's value; -1: it is none. */
static inline int http_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the first byte of at[0 .. n) with a %XX decoded, n > 0; *used: its
 * length there. */
static inline int http_decode(const char *at, size_t n, size_t *used)
{
    int high = n > 2 && *at == '%' ? http_hex(at[1]) : -1;
    int low = high >= 0 ? http_hex(at[2]) : -1;

    *used = low >= 0 ? 3 : 1;
    return low >= 0 ? high * 16 + low : (unsigned char)*at;
}

/* A byte of a header's value: no control character but a tab (section 5.5). */
static inline bool http_is_text(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

/* Decoder of a chunked body; trailers are parsed like headers, and dropped.
 * Zero it before the first use. */
struct http_chunked {
    uint64_t left;  /* bytes of the chunk still to come */
    unsigned state; /* private */
    unsigned line;  /* bytes of the current line */
    unsigned n_trailers;
    bool cr; /* the last byte was a CR */
};

/* One piece of decoded body inside the input. */
struct http_piece {
    const char *at;
    size_t n;
};

/*
 * Decodes bytes[0 .. n) up to the end of one piece of data.
 *   used   input bytes consumed
 *   piece  data found, a slice of the input; n == 0: none yet
 * Returns 1 when the body is complete, 0 when it goes on, -EBADMSG. Call again
 * with the rest of the input while *used > 0.
 */
[[nodiscard]] int http_chunked_next(struct http_chunked *decoder,
                                    const char *bytes, size_t n, size_t *used,
                                    struct http_piece *piece);

#endif
