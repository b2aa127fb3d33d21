/* Reads {"count": 2, "max_model_len": 4096, "tokens": [5, 6], ...}. */
#include "conductor/link/upstream/tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/json/ids.h"
#include "conductor/json/walk.h"

#define MAX_DEPTH 32

struct reader {
    struct json_walk walk; /* first, so that a pointer to it is ours */
    uint32_t *tokens;
    size_t n;
};

static int read_member(struct json_walk *w, const char *key)
{
    struct reader *r = (struct reader *)(void *)w;
    const char *why;

    if (strcmp(key, "tokens") != 0 || r->tokens || w->p == w->end ||
        *w->p != '[')
        return json_walk_skip(w);
    w->p++;
    r->tokens = malloc(((size_t)(w->end - w->p) / 2 + 2) * sizeof(*r->tokens));
    if (!r->tokens)
        return -ENOMEM;
    return json_ids_read(&w->p, w->end, r->tokens, &r->n, &why);
}

int openai_tokens_read(const char *body, size_t n, uint32_t **tokens,
                       size_t *n_tokens)
{
    struct reader r = {
        .walk = {
            .p = body, .body = body, .end = body + n, .max_depth = MAX_DEPTH}};
    int rc = -EINVAL;

    if (n && json_walk_peek(&r.walk) == '{')
        rc = json_walk_object(&r.walk, read_member);
    if (rc == 0 && !r.tokens)
        rc = -EINVAL;
    if (rc) {
        free(r.tokens);
        return rc;
    }
    *tokens = r.tokens;
    *n_tokens = r.n;
    return 0;
}
