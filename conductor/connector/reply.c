/* Reads a prefill leg's reply. */
#include <errno.h>
#include <string.h>

#include "conductor/connector/pair.h"
#include "conductor/json/walk.h"

#define MAX_DEPTH 256
#define MAX_DIGITS 10 /* of a count of tokens */

struct reader {
    struct json_walk walk; /* first: a pointer to it points to the struct */
    struct pair_reply *out;
};

/* Reads a whole number without a sign; other values leave *count. */
static int read_count(struct json_walk *w, int64_t *count)
{
    const char *at = w->p, *from = at;
    int64_t n = 0;

    for (; at < w->end && *at >= '0' && *at <= '9' && at < from + MAX_DIGITS;
         at++)
        n = n * 10 + (*at - '0');
    if (at > from && (at == w->end || !strchr("0123456789.eE", *at)))
        *count = n;
    return json_walk_skip(w);
}

static int read_details(struct json_walk *w, const char *key)
{
    struct reader *r = (struct reader *)(void *)w;

    return strcmp(key, "cached_tokens") == 0
               ? read_count(w, &r->out->cached_tokens)
               : json_walk_skip(w);
}

static int read_usage(struct json_walk *w, const char *key)
{
    struct reader *r = (struct reader *)(void *)w;

    if (strcmp(key, "prompt_tokens") == 0)
        return read_count(w, &r->out->prompt_tokens);
    if (strcmp(key, "prompt_tokens_details") != 0 || json_walk_peek(w) != '{')
        return json_walk_skip(w);
    return json_walk_object(w, read_details);
}

static int read_params(struct json_walk *w, struct pair_reply *out)
{
    const char *from;
    char first = json_walk_peek(w);
    int rc;

    from = w->p;
    rc = json_walk_skip(w);
    if (rc)
        return rc;
    out->params = NULL;
    if (first == '{') {
        out->params = from;
        out->n_params = (size_t)(w->p - from);
        return 0;
    }
    return w->p - from >= 4 && memcmp(from, "null", 4) == 0 ? 0 : -EINVAL;
}

static int read_member(struct json_walk *w, const char *key)
{
    struct reader *r = (struct reader *)(void *)w;

    if (strcmp(key, "kv_transfer_params") == 0)
        return read_params(w, r->out);
    if (strcmp(key, "usage") == 0 && json_walk_peek(w) == '{')
        return json_walk_object(w, read_usage);
    return json_walk_skip(w);
}

int pair_reply_read(const char *reply, size_t n, struct pair_reply *out)
{
    struct reader r = {
        .walk = {.p = reply,
                 .body = reply,
                 .end = reply + n,
                 .max_depth = MAX_DEPTH},
        .out = out,
    };

    *out = (struct pair_reply){.prompt_tokens = -1, .cached_tokens = -1};
    return n && json_walk_peek(&r.walk) == '{'
               ? json_walk_object(&r.walk, read_member)
               : -EINVAL;
}
