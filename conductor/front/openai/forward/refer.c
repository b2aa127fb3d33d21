/* See refer.h. */
#include "conductor/front/openai/forward/refer.h"

#include <stddef.h>
#include <string.h>

#include "conductor/json/text.h"

enum {
    TOP = 1,   /* at the top of a body */
    BELOW = 2, /* below it */
    TEXT = 4,  /* a text or an array refers; an object is a schema */
    OBJECT = 8 /* an object refers */
};

static const struct {
    const char *name;
    unsigned is;
} all[] = {
    {"conversation", TOP | TEXT | OBJECT},
    {"prompt", TOP | OBJECT}, /* a stored prompt, of responses */
    {"input_file_id", TOP | TEXT},
    {"training_file", TOP | TEXT},
    {"validation_file", TOP | TEXT},
    {"assistant_id", TOP | TEXT},
    {"thread_id", TOP | TEXT},
    {"container", TOP | BELOW | TEXT},
    {"container_id", TOP | BELOW | TEXT},
    {"file_id", TOP | BELOW | TEXT},
    {"file_ids", TOP | BELOW | TEXT},
    {"vector_store_id", TOP | BELOW | TEXT},
    {"vector_store_ids", TOP | BELOW | TEXT},
};

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && json_is_space(*p))
        p++;
    return p;
}

/* Whether the value at p is a text, or an array with anything in it. */
static bool is_text(const struct json_walk *w)
{
    const char *p = w->p;

    if (p == w->end || *p != '[')
        return p < w->end && *p == '"';
    p = skip_space(p + 1, w->end);
    return p < w->end && *p != ']';
}

static const char *find(const struct json_walk *w, const char *key,
                        unsigned where)
{
    bool object = w->p < w->end && *w->p == '{';

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if ((all[i].is & where) && strcmp(all[i].name, key) == 0 &&
            ((all[i].is & TEXT && is_text(w)) ||
             (all[i].is & OBJECT && object)))
            return all[i].name;
    return NULL;
}

const char *refer_top(const struct json_walk *w, const char *key)
{
    return find(w, key, TOP);
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
                        const char *key)
{
    char first = w->p < w->end ? *w->p : '\0';
    bool refers;

    if (strcmp(key, "id") == 0 && first == '"')
        note(o->ids, w);
    if (strcmp(key, "content") == 0 &&
        (first == '"' || first == '[' || first == '{'))
        note(o->known, w);
    if (strcmp(key, "type") == 0 && reads(w, "item_reference", &refers)) {
        if (refers)
            return "item_reference";
        note(o->known, w);
    }
    return find(w, key, BELOW);
}

const char *refer_end(struct refer_objects *o, const struct json_walk *w)
{
    uint64_t bit = UINT64_C(1) << ((w->depth - 1) % 64);
    size_t i = (w->depth - 1) / 64;
    bool refers = (o->ids[i] & ~o->known[i] & bit) != 0;

    o->ids[i] &= ~bit;
    o->known[i] &= ~bit;
    return refers ? "id" : NULL;
}

bool refer_is_data(const char *key)
{
    static const char *const names[] = {
        "metadata",  "parameters",  "input_schema",        "schema",
        "arguments", "json_schema", "chat_template_kwargs"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], key) == 0)
            return true;
    return false;
}
