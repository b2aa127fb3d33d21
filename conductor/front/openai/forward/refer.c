/* See refer.h. */
#include "conductor/front/openai/forward/refer.h"

#include <string.h>

enum {
    TOP = 1,   /* at the top of a body */
    BELOW = 2, /* below it */
    TEXT = 4,  /* a text, or an array of them, refers; an object is a schema */
    OBJECT = 8 /* an object does */
};

static const struct {
    const char *name;
    unsigned is;
} all[] = {
    {"conversation", TOP | TEXT | OBJECT},
    {"prompt", TOP | OBJECT}, /* a stored one, of responses */
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

/* Whether the value at p is a text or an array of some. */
static bool is_text(const struct json_walk *w)
{
    const char *p = w->p;

    if (p < w->end && *p == '[')
        p = skip_space(p + 1, w->end);
    return p < w->end && *p == '"';
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

/* {"id": "x"}, and nothing else in it: an item, an answer's sound, a prompt. */
static bool is_lone_id(const struct json_walk *w, const char *key)
{
    const char *before = w->name, *behind;
    struct json_walk past = *w;

    if (strcmp(key, "id") != 0 || w->p == w->end || *w->p != '"')
        return false;
    while (before > w->body && json_is_space(before[-1]))
        before--;
    past.on_name = NULL;
    if (before == w->body || before[-1] != '{' || json_walk_check(&past))
        return false;
    behind = skip_space(past.p, past.end);
    return behind < past.end && *behind == '}';
}

const char *refer_below(const struct json_walk *w, const char *key)
{
    static const char type[] = "\"item_reference\"";

    if (is_lone_id(w, key))
        return "id";
    if (strcmp(key, "type") == 0 &&
        (size_t)(w->end - w->p) >= sizeof(type) - 1 &&
        memcmp(w->p, type, sizeof(type) - 1) == 0)
        return "item_reference";
    return find(w, key, BELOW);
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
