/* Reads a body in one walk over its top level; writes the one that an engine
 * gets. */
#include "conductor/front/openai/body/body.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "conductor/front/openai/body/reader.h"

#define MAX_DEPTH 256
#define MAX_MEMBERS 1024

static const char cache_salt_name[] = "cache_salt";

static void add_salt(struct reader *r, const char *key, struct http_slice v)
{
    r->salt = value_hash(value_hash(r->salt, key, strlen(key)), v.at, v.n);
}

/* Whether a member is taken out. SGLang joins both salts: "a" and "b" would
 * be another tenant's "ab". */
static bool is_cut(const struct reader *r, const struct member *m)
{
    return member_steers(m, r->rules->keyed) ||
           (r->rules->cache_salt &&
            (m->what == MEMBER_CACHE_SALT || m->what == MEMBER_EXTRA_KEY)) ||
           (r->rules->priority && m->what == MEMBER_PRIORITY);
}

/* A member's name was read. A member that is cut out after others takes the
 * comma before it along; one before all others, the comma behind it: then the
 * earlier cut ends here. */
static void begin_member(struct reader *r)
{
    struct forward_body *out = r->out;

    if (out->n_cuts && !out->keeps) {
        struct http_slice *cut = &out->cuts[out->n_cuts - 1];

        cut->n = (size_t)(r->walk.name - cut->at);
    }
}

/* Notes that the member whose value ends at p is cut out, or stays. */
static int end_member(struct reader *r, bool cut)
{
    struct forward_body *out = r->out;
    const char *from = out->keeps ? r->before : r->walk.name, *to = r->walk.p;

    r->before = to;
    out->keeps = out->keeps || !cut;
    if (!cut)
        return 0;
    if (out->n_cuts) {
        struct http_slice *last = &out->cuts[out->n_cuts - 1];

        if (last->at + last->n == from) {
            last->n = (size_t)(to - last->at);
            return 0;
        }
    }
    if (out->n_cuts == FORWARD_CUTS)
        return json_walk_fail(
            &r->walk,
            "members that the conductor removes, such as kv_transfer_params or "
            "cache_salt, occur more than %d times",
            FORWARD_CUTS);
    out->cuts[out->n_cuts++] = (struct http_slice){from, (size_t)(to - from)};
    return 0;
}

static int read_model(struct reader *r, struct http_slice v)
{
    *r->out->model = '\0';
    if (http_is(v, "null") || value_text(v, r->out->model))
        return 0;
    r->walk.param = "model";
    r->walk.p = v.at;
    return json_walk_fail(
        &r->walk, "model: %.*s: must be a text of at most %d bytes",
        json_walk_shown(&r->walk), v.at, FORWARD_MODEL_BYTES - 1);
}

/* Checks the value v, which ends at p, of a /v1/schedule body. */
static int check_value(struct reader *r, const struct member *m,
                       struct http_slice v)
{
    const char *must = value_must_be(m, v);

    if (!r->asks || !must || (r->out->ids && m->what == MEMBER_TOKEN_IDS))
        return 0;
    r->walk.param = m->name;
    r->walk.p = v.at;
    return json_walk_fail(&r->walk, "%s: %.*s: must be %s", m->name,
                          json_walk_shown(&r->walk), v.at, must);
}

static void take_value(struct reader *r, const struct member *m,
                       struct http_slice v, bool prompt)
{
    struct http_slice *part = forward_part(r->out, m);

    if (part)
        *part = v;
    r->out->whole = r->out->whole || value_makes_whole(m, v, prompt);
    if (prompt && r->prompt.n == 0)
        r->prompt = v;
    if ((m->is & MEMBER_SALTS) && !http_is(v, "null"))
        add_salt(r, m->name, v);
    r->values[m->what] = v;
}

/* Refuses a member that only Conductor may send, where it cannot be cut out. */
static int fail_steering(struct json_walk *w, const char *name)
{
    w->param = name;
    return json_walk_fail(w, "%s: %.*s: must be left out", name,
                          json_walk_shown(w), w->p);
}

/* Reads a member below the top: refuses it if it steers engines and stands
 * where they look for it, and notes references. */
static int read_below(struct json_walk *w, const struct member *m)
{
    struct reader *r = (struct reader *)(void *)w;

    if (r->carries && member_steers_inside(m))
        return fail_steering(w, m->name);
    if (!r->rules->keyed)
        return 0;
    if (!r->out->refers)
        r->out->refers = refer_below(&r->objects, w, m);
    return (m->is & MEMBER_DATA) && !r->carries;
}

static int on_name(struct json_walk *w, const char *key)
{
    return read_below(w, member_find(key));
}

static void on_end(struct json_walk *w)
{
    struct reader *r = (struct reader *)(void *)w;
    const char *refers = r->rules->keyed ? refer_end(&r->objects, w) : NULL;

    if (!r->out->refers)
        r->out->refers = refers;
}

/* Notes references at the top. Refuses two previous_response_id, of which
 * engines may take either. */
static int note_reference(struct reader *r, const struct member *m)
{
    if (!r->rules->keyed)
        return 0;
    if (!r->out->refers)
        r->out->refers = refer_top(&r->walk, m);
    if (m->what != MEMBER_PREVIOUS || !r->values[MEMBER_PREVIOUS].n)
        return 0;
    r->walk.param = m->name;
    return json_walk_fail(&r->walk, "previous_response_id: comes twice");
}

/* Reads the limit in sampling_params of SGLang's and vLLM's /generate. */
static int read_sampling(struct json_walk *w, const char *key)
{
    struct reader *r = (struct reader *)(void *)w;
    const struct member *m = member_find(key);
    struct http_slice v = {.at = w->p};
    int rc = read_below(w, m);

    if (rc >= 0)
        rc = json_walk_skip(w);
    v.n = value_trimmed(v.at, w->p);
    if (rc == 0 && m->what == MEMBER_LIMIT)
        r->values[MEMBER_LIMIT] = v;
    return rc;
}

static int read_value(struct json_walk *w, const char *key,
                      const struct member *m)
{
    struct reader *r = (struct reader *)(void *)w;
    struct http_slice v = {.at = w->p};
    bool prompt = prompt_is(r, key);

    r->carries = m->is & MEMBER_CARRIES;
    w->on_end = on_end;
    w->on_name = r->carries || (r->rules->keyed && !(m->is & MEMBER_DATA))
                     ? on_name
                     : NULL;
    if (note_reference(r, m))
        return -EINVAL;
    int rc =
        prompt && w->p < w->end && *w->p == '[' ? prompt_read_ids(r, m) : 0;

    if (rc < 0 || (rc > 0 && w->p > v.at))
        return rc < 0 ? rc : 0;
    if (r->asks && m->what == MEMBER_HASHES)
        return prompt_read_hashes(r, m->name);
    if (m->what == MEMBER_SAMPLING && json_walk_peek(w) == '{')
        return json_walk_object(w, read_sampling);
    rc = prompt ? prompt_skip(r, m) : json_walk_skip(w);
    if (rc)
        return rc;
    v.n = value_trimmed(v.at, w->p);
    if (check_value(r, m, v))
        return -EINVAL;
    take_value(r, m, v, prompt);
    return m->what == MEMBER_MODEL ? read_model(r, v) : 0;
}

static int read_member(struct json_walk *w, const char *key)
{
    struct reader *r = (struct reader *)(void *)w;
    const struct member *m = member_find(key);
    bool cut = is_cut(r, m);

    /* The other gateway would send it on. */
    if (r->asks && member_steers(m, false))
        return fail_steering(w, m->name);
    begin_member(r);
    w->on_name = NULL;
    int rc = cut ? json_walk_skip(w) : read_value(w, key, m);
    return rc ? rc : end_member(r, cut);
}

/* Takes the values that were read, of names that come twice the last. Returns 0
 * or -ENOMEM. */
static int take_values(struct reader *r)
{
    struct forward_body *out = r->out;
    const struct http_slice *v = r->values;
    const char *set = r->rules->cache_salt ? r->rules->cache_salt : "";
    int rc = value_key_name(set, v[MEMBER_CACHE_SALT], v[MEMBER_EXTRA_KEY],
                            out->cache_salt);

    out->stream = http_is(v[MEMBER_STREAM], "true");
    out->max_tokens = value_number(v[MEMBER_LIMIT]);
    out->prompt_tokens = value_number(v[MEMBER_PROMPT_TOKENS]);
    out->block_tokens = value_number(v[MEMBER_BLOCK_TOKENS]);
    out->previous = v[MEMBER_PREVIOUS];
    out->priority = value_priority(v[MEMBER_PRIORITY]);
    return rc ? rc
              : value_key_name("", v[MEMBER_ADAPTER],
                               (struct http_slice){"", 0}, out->adapter);
}

void forward_body_fini(struct forward_body *body)
{
    free(body->words);
    free(body->hashes);
    *body = (struct forward_body){0};
}

static void keep_model(struct forward_body *body)
{
    char model[FORWARD_MODEL_BYTES];

    memcpy(model, body->model, sizeof(model));
    forward_body_fini(body);
    memcpy(body->model, model, sizeof(model));
}

int forward_body_read(const struct forward_kind *kind, const char *body,
                      size_t n, const struct forward_rules *rules,
                      struct forward_body *out, struct openai_error *error)
{
    struct reader r = {
        .walk = {.p = body,
                 .body = body,
                 .end = body + n,
                 .max_depth = MAX_DEPTH,
                 .max_members = MAX_MEMBERS,
                 .strict = true},
        .out = out,
        .rules = rules,
        .asks = kind && strcmp(kind->path, FORWARD_SCHEDULE_PATH) == 0,
        .salt = VALUE_HASH_BEGIN,
        .values = {[MEMBER_CACHE_SALT] = {"", 0},
                   [MEMBER_EXTRA_KEY] = {"", 0},
                   [MEMBER_ADAPTER] = {"", 0},
                   [MEMBER_PRIORITY] = {"", 0}},
    };
    int rc;

    *out = (struct forward_body){.kind = kind};
    rc = json_walk_open(&r.walk);
    if (rc == 0)
        rc = json_walk_object(&r.walk, read_member);
    if (rc == 0 && (json_walk_peek(&r.walk) || r.walk.p < r.walk.end))
        rc = json_walk_fail_syntax(&r.walk, "its end");
    if (rc == 0)
        rc = prompt_take_bytes(out, r.prompt);
    if (rc == 0 && rules->cache_salt)
        add_salt(
            &r, cache_salt_name,
            (struct http_slice){rules->cache_salt, strlen(rules->cache_salt)});
    if (rc == 0)
        rc = take_values(&r);
    /* Ids and bytes may be the same words, so their salts differ. */
    if (rc == 0 && !out->ids)
        add_salt(&r, "text", (struct http_slice){"", 0});
    if (rc == 0 && out->ids)
        memcpy(out->salt, out->cache_salt, sizeof(out->salt));
    if (rc == 0 && !out->ids)
        *text_hex(out->salt, r.salt, 16) = '\0';
    if (rc == -EINVAL)
        openai_error_set(error, 400,
                         r.walk.error_param ? "invalid_value" : "invalid_json",
                         r.walk.error_param, "%s", r.walk.error);
    if (rc)
        keep_model(out);
    return rc;
}

static bool sets(const char *value)
{
    return value && *value;
}

bool forward_body_changes(const struct forward_body *body,
                          const struct forward_rules *rules)
{
    return body->n_cuts > 0 || sets(rules->cache_salt) || sets(rules->priority);
}

void forward_body_write(const struct forward_body *read, const char *body,
                        size_t n, const struct forward_rules *rules,
                        struct text_buf *out)
{
    const char *at = (const char *)memchr(body, '{', n) + 1, *end = body + n;
    size_t before = out->len;

    (void)!text_buf_reserve(out, n + 8); /* or out->error is set */
    text_buf_puts(out, "{");
    if (sets(rules->cache_salt)) {
        text_buf_puts(out, read->kind && read->kind->sglang
                               ? "\"extra_key\":"
                               : "\"cache_salt\":");
        text_buf_json_str(out, rules->cache_salt);
    }
    if (sets(rules->priority)) {
        text_buf_puts(out, out->len > before + 1 ? "," : "");
        text_buf_puts(out, "\"priority\":");
        text_buf_puts(out, rules->priority);
    }
    if (out->len > before + 1 && read->keeps)
        text_buf_puts(out, ",");
    for (size_t i = 0; i < read->n_cuts; i++) {
        text_buf_add(out, at, (size_t)(read->cuts[i].at - at));
        at = read->cuts[i].at + read->cuts[i].n;
    }
    text_buf_add(out, at, (size_t)(end - at));
}
