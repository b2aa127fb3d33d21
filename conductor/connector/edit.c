/* Bodies of legs: the client's, with members left out and set. */
#include <errno.h>
#include <string.h>

#include "conductor/connector/pair.h"
#include "conductor/json/walk.h"

#define MAX_DEPTH 256

struct editor {
    struct json_walk walk; /* first: a pointer to it points to the struct */
    const char *const *drop;
    struct text_buf *out;
    size_t begun; /* length of out after its brace */
};

static bool is_among(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* Returns the bytes from at to end without trailing white space. */
static size_t trimmed(const char *at, const char *end)
{
    while (end > at && strchr(" \t\r\n", end[-1]))
        end--;
    return (size_t)(end - at);
}

static int copy_member(struct json_walk *w, const char *key)
{
    struct editor *e = (struct editor *)(void *)w;
    const char *from = w->name;
    int rc = json_walk_skip(w);

    if (rc || is_among(e->drop, key))
        return rc;
    if (e->out->len > e->begun)
        text_buf_puts(e->out, ",");
    text_buf_add(e->out, from, trimmed(from, w->p));
    return 0;
}

int pair_edit(const char *body, size_t n, const char *const *drop,
              const char *set, struct text_buf *out)
{
    struct editor e = {
        .walk = {.p = body,
                 .body = body,
                 .end = body + n,
                 .max_depth = MAX_DEPTH},
        .drop = drop,
        .out = out,
    };
    int rc = text_buf_reserve(out, n + strlen(set) + 4);

    if (rc)
        return rc;
    text_buf_puts(out, "{");
    e.begun = out->len;
    text_buf_puts(out, set);
    rc = n && json_walk_peek(&e.walk) == '{'
             ? json_walk_object(&e.walk, copy_member)
             : -EINVAL;
    text_buf_puts(out, "}");
    return rc ? rc : out->error;
}

const char *const pair_drops[] = {PAIR_MEMBERS(PAIR_MEMBER_NAME), NULL};

int pair_edit_with(const struct pair_ask *ask, const char *const *drop,
                   struct text_buf *set, struct text_buf *out)
{
    int rc;

    text_buf_add(set, "", 1);
    rc = set->error ? set->error
                    : pair_edit(ask->body, ask->n, drop, set->data, out);
    text_buf_fini(set);
    return rc;
}

/* The limits in a body, beside max_tokens. */
struct limits {
    struct json_walk walk; /* first */
    bool completion, min;
};

static int note_limit(struct json_walk *w, const char *key)
{
    struct limits *l = (struct limits *)(void *)w;

    l->completion |= strcmp(key, "max_completion_tokens") == 0;
    l->min |= strcmp(key, "min_tokens") == 0;
    return json_walk_skip(w);
}

const char *const pair_prefill_drops[] = {PAIR_PREFILL_DROPS, NULL};

int pair_edit_prefill(const struct pair_ask *ask, const char *const *drop,
                      const char *set, struct text_buf *out)
{
    struct limits l = {.walk = {.p = ask->body,
                                .body = ask->body,
                                .end = ask->body + ask->n,
                                .max_depth = MAX_DEPTH}};
    struct text_buf all;
    int rc = ask->n && json_walk_peek(&l.walk) == '{'
                 ? json_walk_object(&l.walk, note_limit)
                 : -EINVAL;

    if (rc)
        return rc;
    text_buf_init(&all, strlen(set) + 128);
    text_buf_puts(&all, set);
    text_buf_puts(&all, *set ? "," : "");
    text_buf_puts(&all, "\"stream\":false,\"max_tokens\":1");
    if (l.completion)
        text_buf_puts(&all, ",\"max_completion_tokens\":1");
    if (l.min)
        text_buf_puts(&all, ",\"min_tokens\":1");
    return pair_edit_with(ask, drop, &all, out);
}
