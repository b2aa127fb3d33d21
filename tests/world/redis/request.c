/*
 * Commands from the bytes of a connection, in any pieces: arrays of bulk
 * strings, or a line of words. What is wrong has the error and the end of the
 * connection that Redis gives it.
 */
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

#define LINE_MAX_BYTES (64u * 1024)
#define BULK_MAX_BYTES (512ll << 20)
/* Limits of a command before its connection has given the password. */
#define STRANGER_WORDS 10
#define STRANGER_BYTES 16384

void mr_words_free(struct mr_words *w)
{
    for (size_t i = 0; i < w->n; i++)
        mr_bytes_free(w->at[i]);
    free(w->at);
    *w = (struct mr_words){0};
}

static void add_word(struct mr_words *w, const char *bytes, size_t n)
{
    w->at = mr_grow(w->at, &w->room, w->n + 1, sizeof(*w->at));
    w->at[w->n++] = mr_bytes_copy((struct mr_bytes){bytes, n});
}

/* --- lines ---------------------------------------------------------------- */

static int hex_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Puts what stands behind a backslash within double quotes. Returns where it
 * ends. */
static const char *put_escaped(struct mr_buf *word, const char *p)
{
    static const char letters[] = "nrtba", meant[] = "\n\r\t\b\a";
    const char *found = *p ? strchr(letters, *p) : NULL;
    char c = found ? meant[found - letters] : *p;

    if (p[0] == 'x' && hex_of(p[1]) >= 0 && hex_of(p[2]) >= 0) {
        c = (char)(hex_of(p[1]) * 16 + hex_of(p[2]));
        p += 2;
    }
    mr_put(word, &c, 1);
    return p + 1;
}

/* Puts what is in quotes. Returns where it ends; NULL = it does not end, or a
 * word goes on behind it. */
static const char *put_quoted(struct mr_buf *word, const char *p)
{
    char quote = *p++;

    while (*p && *p != quote) {
        if (quote == '"' && p[0] == '\\' && p[1]) {
            p = put_escaped(word, p + 1);
        } else {
            p += quote == '\'' && p[0] == '\\' && p[1] == '\'';
            mr_put(word, p++, 1);
        }
    }
    return *p && (!p[1] || isspace((unsigned char)p[1])) ? p + 1 : NULL;
}

/* Returns whether all quotes are balanced. */
static bool split(struct mr_words *w, const char *p)
{
    struct mr_buf word = {0};

    while (p) {
        while (isspace((unsigned char)*p))
            p++;
        if (!*p)
            break;
        word.n = 0;
        while (p && *p && !strchr(" \n\r\t", *p))
            if (*p == '"' || *p == '\'')
                p = put_quoted(&word, p);
            else
                mr_put(&word, p++, 1);
        if (p)
            add_word(w, word.data ? word.data : "", word.n);
    }
    free(word.data);
    return p;
}

static enum mr_next take_line(struct mr_request *r, const struct mr_buf *in,
                              size_t *used, struct mr_buf *out)
{
    const char *from = in->data + *used;
    const char *end = strchr(from, '\n');

    if (!end) {
        if (in->n - *used <= LINE_MAX_BYTES)
            return MR_MORE;
        mr_out_error(out, "ERR Protocol error: too big inline request");
        return MR_BAD;
    }
    size_t n = (size_t)(end - from);
    struct mr_bytes line =
        mr_bytes_copy((struct mr_bytes){from, n - (n > 0 && end[-1] == '\r')});
    bool good = split(&r->words, line.data);

    mr_bytes_free(line);
    *used += n + 1;
    if (!good) {
        mr_out_error(out, "ERR Protocol error: unbalanced quotes in request");
        return MR_BAD;
    }
    return r->words.n ? MR_COMMAND : MR_NOTHING;
}

/* --- arrays --------------------------------------------------------------- */

enum head { HEAD_MORE, HEAD_THERE, HEAD_LONG };

/* Finds "KIND NUMBER CR LF" at *used. */
static enum head find_head(const struct mr_buf *in, size_t used, size_t *n)
{
    const char *from = in->data + used;
    const char *end = strchr(from, '\r');

    if (!end)
        return in->n - used > LINE_MAX_BYTES ? HEAD_LONG : HEAD_MORE;
    *n = (size_t)(end - from);
    return *n + 2 <= in->n - used ? HEAD_THERE : HEAD_MORE;
}

static bool read_head(const struct mr_buf *in, size_t used, size_t n,
                      long long *value)
{
    struct mr_bytes b = {0};
    bool good;

    b = mr_bytes_copy((struct mr_bytes){in->data + used + 1, n ? n - 1 : 0});
    good = mr_read_int(b, value);
    mr_bytes_free(b);
    return good;
}

/* Refuses, with what is wrong as Redis says it. */
static enum mr_next refuse(struct mr_buf *out, const char *why)
{
    mr_out_error(out, "ERR Protocol error: %s", why);
    return MR_BAD;
}

static enum mr_next take_count(struct mr_request *r, const struct mr_buf *in,
                               size_t *used, bool strange, struct mr_buf *out)
{
    size_t n;
    long long count;
    enum head head = find_head(in, *used, &n);

    if (head != HEAD_THERE)
        return head == HEAD_MORE ? MR_MORE
                                 : refuse(out, "too big mbulk count string");
    if (!read_head(in, *used, n, &count) || count > INT_MAX)
        return refuse(out, "invalid multibulk length");
    if (strange && count > STRANGER_WORDS)
        return refuse(out, "unauthenticated multibulk length");
    *used += n + 2;
    if (count <= 0)
        return MR_NOTHING;
    r->bulks_left = count;
    r->bulk = -1;
    return MR_COMMAND;
}

static enum mr_next take_bulk_head(struct mr_request *r,
                                   const struct mr_buf *in, size_t *used,
                                   bool strange, struct mr_buf *out)
{
    size_t n;
    long long bytes;
    enum head head = find_head(in, *used, &n);

    if (head != HEAD_THERE)
        return head == HEAD_MORE ? MR_MORE
                                 : refuse(out, "too big bulk count string");
    if (in->data[*used] != '$') {
        mr_out_error(out, "ERR Protocol error: expected '$', got '%c'",
                     in->data[*used]);
        return MR_BAD;
    }
    if (!read_head(in, *used, n, &bytes) || bytes < 0 || bytes > BULK_MAX_BYTES)
        return refuse(out, "invalid bulk length");
    if (strange && bytes > STRANGER_BYTES)
        return refuse(out, "unauthenticated bulk length");
    *used += n + 2;
    r->bulk = bytes;
    return MR_COMMAND;
}

/* Redis does not look at the two bytes behind a bulk string. */
static enum mr_next take_bulks(struct mr_request *r, const struct mr_buf *in,
                               size_t *used, bool strange, struct mr_buf *out)
{
    while (r->bulks_left > 0) {
        enum mr_next next = r->bulk < 0
                                ? take_bulk_head(r, in, used, strange, out)
                                : MR_COMMAND;

        if (next != MR_COMMAND)
            return next;
        if (in->n - *used < (size_t)r->bulk + 2)
            return MR_MORE;
        add_word(&r->words, in->data + *used, (size_t)r->bulk);
        *used += (size_t)r->bulk + 2;
        r->bulk = -1;
        r->bulks_left--;
    }
    return MR_COMMAND;
}

enum mr_next mr_request_next(struct mr_request *r, const struct mr_buf *in,
                             size_t *used, bool strange, struct mr_buf *out)
{
    if (r->bulks_left == 0) {
        enum mr_next next;

        if (in->n == *used)
            return MR_MORE;
        if (in->data[*used] != '*')
            return take_line(r, in, used, out);
        next = take_count(r, in, used, strange, out);
        if (next != MR_COMMAND)
            return next;
    }
    return take_bulks(r, in, used, strange, out);
}
