/* See reader.h. */
#include <stddef.h>
#include <string.h>

#include "conductor/front/openai/body/reader.h"
#include "conductor/json/text.h"

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
