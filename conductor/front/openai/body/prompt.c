/* Reads the prompt of a body: the words that its block keys are made of. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/openai/body/reader.h"
#include "conductor/json/ids.h"

#define WORD_BYTES sizeof(uint32_t)

/* Returns where the prompt at p must end; one that is far longer than a window
 * is not read to its end. */
static const char *must_end(const struct reader *r)
{
    uint32_t window = r->rules->window_tokens;

    return window ? json_walk_within(&r->walk, json_prompt_bytes(window))
                  : r->walk.end;
}

static int fail_long(struct reader *r, const struct member *m)
{
    r->walk.param = m->name;
    return json_walk_fail(&r->walk,
                          "%s: longer than %zu bytes: must fit into the window "
                          "of a model",
                          m->name, json_prompt_bytes(r->rules->window_tokens));
}

int prompt_read_ids(struct reader *r, const struct member *m)
{
    const char *end = must_end(r), *why;
    const char *at = json_skip_space(r->walk.p + 1, end);
    struct forward_body *out = r->out;
    bool nested = at < end && *at == '[';

    at = json_skip_space(at + nested, end);
    if (at == end || *at < '0' || *at > '9')
        return 0;
    out->words = malloc(((size_t)(end - at) / 2 + 2) * sizeof(*out->words));
    if (!out->words)
        return -ENOMEM;
    if (json_ids_read(&at, end, out->words, &out->n_words, &why)) {
        free(out->words);
        out->words = NULL;
        out->n_words = 0;
        return at == end && end < r->walk.end ? fail_long(r, m) : 0;
    }
    out->ids = true;
    if (nested)
        at = json_skip_space(at, end);
    out->several = nested && at < end && *at == ',';
    if (!nested) /* else the walk goes over all prompts */
        r->walk.p = at;
    return 1;
}

int prompt_skip(struct reader *r, const struct member *m)
{
    struct json_walk *w = &r->walk;
    const char *at = w->p, *end = w->end;
    int rc;

    if (json_walk_peek(w) != '"') /* images and batches may be longer */
        return json_walk_skip(w);
    w->end = must_end(r);
    rc = json_walk_skip(w);
    if (rc && w->end < end && w->p == at) /* its end was not found */
        rc = fail_long(r, m);
    w->end = end;
    return rc;
}

static int read_hash(struct json_walk *w, const char *key)
{
    struct reader *r = (struct reader *)(void *)w;

    (void)key;
    return json_walk_bits(w, &r->out->hashes[r->out->n_hashes++])
               ? 0
               : json_walk_fail(w,
                                "%s: %.*s: must be a whole number of 64 bits",
                                w->param, json_walk_shown(w), w->p);
}

int prompt_read_hashes(struct reader *r, const char *name)
{
    struct json_walk *w = &r->walk;
    int rc;

    w->param = name;
    if (r->out->hashes)
        return json_walk_fail(w, "%s: comes twice", name);
    if (json_walk_peek(w) != '[')
        return json_walk_fail(w, "%s: %.*s: must be an array of whole numbers",
                              name, json_walk_shown(w), w->p);
    r->out->hashes =
        malloc(((size_t)(w->end - w->p) / 2 + 2) * sizeof(*r->out->hashes));
    if (!r->out->hashes)
        return -ENOMEM;
    rc = json_walk_array(w, read_hash);
    if (rc == 0)
        w->param = NULL;
    return rc;
}

static bool is_one(const char *key, const char *const *names)
{
    for (; *names; names++)
        if (*key == **names && strcmp(key, *names) == 0)
            return true;
    return false;
}

bool prompt_is(const struct reader *r, const char *key)
{
    const struct json_walk *w = &r->walk;
    char first = w->p < w->end ? *w->p : '\0';

    if (!r->out->kind || r->out->ids || !is_one(key, r->out->kind->prompts))
        return false;
    if (!r->asks)
        return r->prompt.n == 0;
    if (strcmp(key, "text") == 0 && first == '{') /* of /v1/responses */
        return false;
    return first == '[' || (r->prompt.n == 0 && first != 'n');
}

int prompt_take_bytes(struct forward_body *out, struct http_slice v)
{
    if (v.n == 0 || out->ids)
        return 0;
    out->words = malloc(v.n + WORD_BYTES);
    if (!out->words)
        return -ENOMEM;
    out->n_words = v.n / WORD_BYTES;
    memcpy(out->words, v.at, out->n_words * WORD_BYTES);
    return 0;
}
