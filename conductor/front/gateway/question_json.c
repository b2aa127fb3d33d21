/* Values of a question in JSON. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/gateway/question_reader.h"
#include "conductor/json/ids.h"
#include "conductor/json/text.h"

/* Refuses a value, or its i-th element, as being of another kind. */
static int refuse(struct question_reader *r, const struct question_member *m,
                  int64_t i, const char *value)
{
    struct json_walk past = r->walk;

    past.p = value;
    if (json_walk_skip(&past))
        past.p = past.end;
    return question_refuse_type(r, m, i, value, (size_t)(past.p - value));
}

/* Returns where the i-th element of the array at p begins. */
static const char *element(const struct json_walk *w, size_t i)
{
    struct json_walk at = *w;

    at.p++;
    while (json_walk_peek(&at) && i-- > 0 && json_walk_skip(&at) == 0 &&
           json_walk_peek(&at) == ',')
        at.p++;
    return at.p;
}

static int json_tokens(struct question_reader *r,
                       const struct question_member *m)
{
    struct json_walk *w = &r->walk;
    const char *at = w->p + 1, *why;

    if (*w->p != '[' || r->out->tokens)
        return refuse(r, m, -1, w->p);
    r->out->tokens = malloc(((size_t)(w->end - at) / 2 + 2) * sizeof(uint32_t));
    if (!r->out->tokens)
        return -ENOMEM;
    if (json_ids_read(&at, w->end, r->out->tokens, &r->out->n_tokens, &why))
        return refuse(r, m, (int64_t)r->out->n_tokens,
                      element(w, r->out->n_tokens));
    w->p = at;
    return 0;
}

static int json_hash(struct json_walk *w, const char *key)
{
    struct question_reader *r = (struct question_reader *)(void *)w;

    (void)key;
    if (!json_walk_bits(w, &r->out->hashes[r->out->n_hashes]))
        return refuse(r, r->member, (int64_t)r->out->n_hashes, w->p);
    r->out->n_hashes++;
    return 0;
}

static int json_hashes(struct question_reader *r,
                       const struct question_member *m)
{
    struct json_walk *w = &r->walk;
    int rc;

    if (*w->p != '[' || r->out->hashes)
        return refuse(r, m, -1, w->p);
    r->out->hashes = malloc(((size_t)(w->end - w->p) / 2 + 2) * 8);
    if (!r->out->hashes)
        return -ENOMEM;
    w->param = m->name;
    r->member = m;
    rc = json_walk_array(w, json_hash);
    w->param = NULL;
    return rc;
}

static int json_text(struct question_reader *r, const struct question_member *m)
{
    char whole[6 * QUESTION_TEXT_BYTES + JSON_TEXT_SLACK_BYTES];
    struct json_walk *w = &r->walk;
    const char *from = w->p, *at = from + 1, *why;
    int rc = json_walk_skip(w);
    size_t n;

    if (rc)
        return rc;
    if ((size_t)(w->p - from) > 6 * QUESTION_TEXT_BYTES ||
        json_text_read(&at, w->p, whole, &n, &why))
        return question_refuse_type(r, m, -1, from, (size_t)(w->p - from));
    return question_take_text(r, m, whole, n);
}

static int json_number(struct question_reader *r,
                       const struct question_member *m)
{
    const char *from = r->walk.p;
    uint64_t bits;
    bool minus = *from == '-';

    if (!json_walk_bits(&r->walk, &bits) ||
        (!minus && bits > INT64_MAX && m->kind == KIND_NUMBER))
        return refuse(r, m, -1, from);
    if (!minus && bits > INT64_MAX) { /* a name */
        snprintf(question_text(r, m), QUESTION_TEXT_BYTES, "%" PRIu64, bits);
        return 0;
    }
    return question_take_number(r, m, (int64_t)bits);
}

static int json_member(struct json_walk *w, const char *key)
{
    struct question_reader *r = (struct question_reader *)(void *)w;
    const struct question_member *m = question_member(r, key);
    char first = json_walk_peek(w);

    if (!m)
        return -EINVAL;
    if (w->p == w->end)
        return json_walk_fail_syntax(w, "a value");
    if (m->kind == KIND_IGNORED)
        return json_walk_skip(w);
    if (w->end - w->p >= 4 && memcmp(w->p, "null", 4) == 0) {
        w->p += 4;
        return 0;
    }
    if (m->kind == KIND_TOKENS)
        return json_tokens(r, m);
    if (m->kind == KIND_HASHES)
        return json_hashes(r, m);
    if (first == '"')
        return json_text(r, m);
    if (first == '-' || (first >= '0' && first <= '9'))
        return json_number(r, m);
    return refuse(r, m, -1, w->p);
}

int question_read_json(struct question_reader *r)
{
    struct json_walk *w = &r->walk;
    int rc = json_walk_open(w);

    if (rc == 0)
        rc = json_walk_object(w, json_member);
    if (rc == 0 && json_walk_peek(w))
        rc = json_walk_fail_syntax(w, "the end of the body");
    if (rc == -EINVAL && !r->failed)
        openai_error_set(r->error, 400, "invalid_json", NULL, "%s", w->error);
    return rc;
}
