/* See whose.h. */
#include "conductor/link/upstream/exchange/whose.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool is_comparable(struct http_slice id)
{
    for (size_t i = 0; i < id.n; i++)
        if (!isalnum((unsigned char)id.at[i]) && !memchr("._:-", id.at[i], 4))
            return false;
    return id.n <= WHOSE_ID_MAX;
}

bool whose_id(const char *headers, struct http_slice *id)
{
    static const char name[] = "x-request-id:";
    const char *end;

    for (const char *at = headers; *at; at = end) {
        end = strchr(at, '\n');
        end = end ? end + 1 : at + strlen(at);
        if (strncasecmp(at, name, sizeof(name) - 1) != 0)
            continue;
        at += sizeof(name) - 1;
        at += strspn(at, " \t");
        *id = (struct http_slice){at, strcspn(at, " \t\r\n")};
        if (!is_comparable(*id) || id->at[id->n] != '\r')
            id->n = 0;
        return true;
    }
    return false;
}

static bool is_same(struct http_slice a, struct http_slice b)
{
    return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

/* Whether the body's id is the request's, with or without a prefix. */
static bool ends_with(struct http_slice told, struct http_slice id)
{
    struct http_slice last = {told.at + told.n - id.n, id.n};

    return told.n >= id.n && is_same(last, id) &&
           (told.n == id.n || memchr("-_", told.at[told.n - id.n - 1], 2));
}

/* Skips white space and a word. Returns 1; 0: more bytes are needed; -1: other
 * text follows. */
static int skip(const char **at, const char *end, const char *word)
{
    size_t n = strlen(word), have;

    while (*at < end && memchr(" \t\r\n", **at, 4))
        ++*at;
    have = (size_t)(end - *at);
    if (memcmp(*at, word, have < n ? have : n) != 0)
        return -1;
    if (have < n)
        return 0;
    *at += n;
    return 1;
}

/* Reads the id at a body's start, as JSON or an event. Returns as skip(). */
static int read_id(const char *at, const char *end, struct http_slice *told)
{
    const char *words[] = {"{", "\"id\"", ":", "\"", NULL}, *quote;
    int rc = skip(&at, end, "data:");

    if (rc == 0)
        return 0;
    for (const char **w = words; *w; w++) {
        rc = skip(&at, end, *w);
        if (rc <= 0)
            return rc;
    }
    quote = memchr(at, '"', (size_t)(end - at));
    if (!quote)
        return 0;
    *told = (struct http_slice){at, (size_t)(quote - at)};
    return is_comparable(*told) ? 1 : -1;
}

enum whose whose_answer(const struct http_head *head, const char *begin,
                        size_t n, bool all, struct http_slice id)
{
    const struct http_slice *header = http_find(head, "x-request-id");
    struct http_slice told;
    int rc;

    if (id.n == 0)
        return WHOSE_NOBODYS;
    if (header)
        return is_same(*header, id) ? WHOSE_OWN : WHOSE_OTHER;
    if (head->status >= 300)
        return WHOSE_NOBODYS;
    rc = read_id(begin, begin + n, &told);
    if (rc > 0)
        return ends_with(told, id) ? WHOSE_OWN : WHOSE_OTHER;
    return rc < 0 || all || n >= WHOSE_BYTES_MAX ? WHOSE_NOBODYS : WHOSE_MORE;
}
