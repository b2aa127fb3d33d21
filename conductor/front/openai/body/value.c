/* Values of members, and references in them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/core/index/block_key.h"
#include "conductor/front/openai/body/reader.h"
#include "conductor/json/text.h"
#include "conductor/json/walk.h"

/* Longest spelling of a short text: each byte as \u002f, and quotes. */
#define ESCAPED_BYTES (6 * FORWARD_MODEL_BYTES)

bool value_text(struct http_slice v, char text[FORWARD_MODEL_BYTES])
{
    char whole[ESCAPED_BYTES + JSON_TEXT_SLACK_BYTES];
    const char *at = v.at + 1, *why;
    size_t n = 0;

    if (v.n < 2 || *v.at != '"' || v.n > ESCAPED_BYTES ||
        json_text_read(&at, v.at + v.n, whole, &n, &why) ||
        n >= FORWARD_MODEL_BYTES || memchr(whole, '\0', n))
        return false;
    memcpy(text, whole, n);
    text[n] = '\0';
    return true;
}

uint32_t value_number(struct http_slice v)
{
    uint64_t n = 0;

    for (size_t i = 0; i < v.n; i++) {
        if (v.at[i] < '0' || v.at[i] > '9')
            return 0;
        if (n <= UINT32_MAX)
            n = n * 10 + (uint64_t)(v.at[i] - '0');
    }
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

int32_t value_priority(struct http_slice v)
{
    bool below = v.n > 1 && *v.at == '-';
    uint32_t n =
        value_number((struct http_slice){v.at + below, v.n - (size_t)below});
    int32_t most = n < INT32_MAX ? (int32_t)n : INT32_MAX;

    return below ? -most : most;
}

size_t value_trimmed(const char *at, const char *end)
{
    while (end > at && json_is_space(end[-1]))
        end--;
    return (size_t)(end - at);
}

/* Writes the text of a value, or the bytes of one that is no text, to out,
 * which has room for more. Returns how many bytes. */
static size_t unescape(struct http_slice v, char *out)
{
    const char *at = v.at + 1, *why;
    size_t n;

    if (http_is(v, "null"))
        return 0;
    if (v.n && *v.at == '"' &&
        json_text_read(&at, v.at + v.n, out, &n, &why) == 0)
        return n;
    if (v.n)
        memcpy(out, v.at, v.n);
    return v.n;
}

int value_key_name(const char *set, struct http_slice a, struct http_slice b,
                   char name[BLOCK_KEY_NAME_BYTES])
{
    size_t n = strlen(set);
    char *text;

    *name = '\0';
    if (n + a.n + b.n == 0)
        return 0;
    text = malloc(n + a.n + b.n + JSON_TEXT_SLACK_BYTES);
    if (!text)
        return -ENOMEM;
    memcpy(text, set, n);
    n += unescape(a, text + n);
    n += unescape(b, text + n);
    block_key_name(text, n, name);
    free(text);
    return 0;
}

bool value_makes_whole(const struct member *m, struct http_slice v, bool prompt)
{
    const char *at = v.at + 1, *end = v.at + v.n;

    if (http_is(v, "null"))
        return false;
    if (m->is & (MEMBER_ONE | MEMBER_OFF))
        return !http_is(v, m->is & MEMBER_ONE ? "1" : "false");
    if (!prompt || *v.at != '[')
        return false;
    at = json_skip_space(at, end);
    return at < end && (*at == '[' || *at == '"');
}

const char *value_must_be(const struct member *m, struct http_slice v)
{
    uint32_t n = value_number(v);

    if (http_is(v, "null"))
        return NULL;
    if (m->what == MEMBER_TOKEN_IDS)
        return "an array of token ids from 0 to 4294967295";
    return (m->what == MEMBER_PROMPT_TOKENS ||
            m->what == MEMBER_BLOCK_TOKENS) &&
                   (n == 0 || n == UINT32_MAX)
               ? "a whole number from 1 to 4294967294"
               : NULL;
}

uint64_t value_hash(uint64_t h, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    return h;
}

/* Whether the value at p is a text, or an array with anything in it. */
static bool is_text(const struct json_walk *w)
{
    const char *p = w->p;

    if (p == w->end || *p != '[')
        return p < w->end && *p == '"';
    p = json_skip_space(p + 1, w->end);
    return p < w->end && *p != ']';
}

/* Returns the member's name if its value refers to something. */
static const char *refers(const struct json_walk *w, const struct member *m,
                          unsigned where)
{
    bool object = w->p < w->end && *w->p == '{';

    return (m->is & where) && ((m->is & MEMBER_REFERS_TEXT && is_text(w)) ||
                               (m->is & MEMBER_REFERS_OBJECT && object))
               ? m->name
               : NULL;
}

const char *refer_top(const struct json_walk *w, const struct member *m)
{
    return refers(w, m, MEMBER_REFERS_TOP);
}

/* Whether the value at p is a text; *equal: it is `text`, however spelled. */
static bool reads(const struct json_walk *w, const char *text, bool *equal)
{
    char read[64 + JSON_TEXT_SLACK_BYTES];
    const char *at = w->p + 1, *end = at, *why;
    size_t n = 0;

    *equal = false;
    if (w->p == w->end || *w->p != '"' || json_text_check(&end, w->end, &why))
        return false;
    if (end - at <= 6 * (ptrdiff_t)strlen(text) + 1 &&
        (size_t)(end - at) < sizeof(read) - JSON_TEXT_SLACK_BYTES &&
        json_text_read(&at, end, read, &n, &why) == 0)
        *equal = n == strlen(text) && memcmp(read, text, n) == 0;
    return true;
}

static void note(uint64_t bits[], const struct json_walk *w)
{
    if (w->depth == 0) /* in a member that steers engines: not among these
                          objects */
        return;
    bits[(w->depth - 1) / 64] |= UINT64_C(1) << ((w->depth - 1) % 64);
}

const char *refer_below(struct refer_objects *o, const struct json_walk *w,
                        const struct member *m)
{
    char first = w->p < w->end ? *w->p : '\0';
    bool item;

    if (m->what == MEMBER_ID && first == '"')
        note(o->ids, w);
    if (m->what == MEMBER_CONTENT &&
        (first == '"' || first == '[' || first == '{'))
        note(o->known, w);
    if (m->what == MEMBER_TYPE && reads(w, "item_reference", &item)) {
        if (item)
            return "item_reference";
        note(o->known, w);
    }
    return refers(w, m, MEMBER_REFERS_BELOW);
}

const char *refer_end(struct refer_objects *o, const struct json_walk *w)
{
    uint64_t bit = UINT64_C(1) << ((w->depth - 1) % 64);
    size_t i = (w->depth - 1) / 64;
    bool refers_to = (o->ids[i] & ~o->known[i] & bit) != 0;

    o->ids[i] &= ~bit;
    o->known[i] &= ~bit;
    return refers_to ? "id" : NULL;
}
