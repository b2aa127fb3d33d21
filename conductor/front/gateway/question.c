/* Bodies of the KV-indexer API. */
#include "conductor/front/gateway/question.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/json/ids.h"
#include "conductor/front/json/text.h"
#include "conductor/front/json/walk.h"
#include "conductor/link/events/unpack.h"

#define MAX_DEPTH 16
#define MAX_MEMBERS 64

enum member_kind {
    KIND_TEXT,
    KIND_NAME, /* a text, or a number as its text */
    KIND_NUMBER,
    KIND_TOKENS,
    KIND_HASHES,
    KIND_IGNORED, /* what it says is not needed */
};

#define ASKS (QUESTION_TOKENS | QUESTION_HASHES)
#define CHANGES (QUESTION_REGISTER | QUESTION_UNREGISTER)
#define ALL (ASKS | CHANGES)
#define AT(field) offsetof(struct question, field)

static const struct member {
    const char *name;
    enum member_kind kind;
    unsigned paths; /* enum question_path */
    size_t at;
    int64_t least, most;
} members[] = {
    {"model", KIND_TEXT, ALL, AT(model), 0, 0},
    {"model_name", KIND_TEXT, ALL, AT(model), 0, 0},
    {"modelname", KIND_TEXT, ALL, AT(model), 0, 0},
    {"token_ids", KIND_TOKENS, QUESTION_TOKENS, 0, 0, 0},
    {"seq_hashes", KIND_HASHES, QUESTION_HASHES, 0, 0, 0},
    {"block_hash", KIND_HASHES, QUESTION_HASHES, 0, 0, 0},
    {"block_hashes", KIND_HASHES, QUESTION_HASHES, 0, 0, 0},
    {"block_size", KIND_NUMBER, ALL, AT(block_tokens), 1, 1024},
    {"lora_name", KIND_TEXT, ALL, AT(adapter), 0, 0},
    {"lora_id", KIND_NAME, ASKS, AT(adapter_id), 0, 0},
    {"tenant_id", KIND_TEXT, ALL, AT(tenant), 0, 0},
    {"routing_group", KIND_TEXT, ALL, AT(tenant), 0, 0},
    {"instance_id", KIND_NAME, ALL, AT(instance), 0, 0},
    {"cache_salt", KIND_TEXT, ASKS, AT(salt), 0, 0},
    {"additional_salt", KIND_TEXT, ASKS | QUESTION_REGISTER, AT(salt), 0, 0},
    {"additionalsalt", KIND_TEXT, ASKS | QUESTION_REGISTER, AT(salt), 0, 0},
    {"endpoint", KIND_TEXT, QUESTION_REGISTER, AT(endpoint), 0, 0},
    {"replay_endpoint", KIND_TEXT, QUESTION_REGISTER, AT(replay), 0, 0},
    {"type", KIND_TEXT, CHANGES, AT(type), 0, 0},
    {"url", KIND_TEXT, QUESTION_REGISTER, AT(url), 0, 0},
    {"dp_rank", KIND_NUMBER, CHANGES, AT(rank), 0, 255},
    {"hash_profile", KIND_IGNORED, QUESTION_REGISTER, 0, 0, 0},
    {"cache_group", KIND_IGNORED, CHANGES, 0, 0, 0},
};

struct reader {
    struct json_walk walk; /* first, so that the walk's pointer is ours */
    enum question_path path;
    struct question *out;
    struct openai_error *error;
    uint64_t seen; /* bits of members */
    bool failed;   /* *error is set */
};

static int refuse(struct reader *r, const char *reason, const char *name,
                  const char *why)
{
    r->failed = true;
    openai_error_set(r->error, 400, reason, name, "%s: %s", name, why);
    return -EINVAL;
}

static const char *must_be(enum member_kind kind)
{
    static const char *const texts[] = {
        [KIND_TEXT] = "must be a text of at most 255 bytes without NUL",
        [KIND_NAME] = "must be a text of at most 255 bytes, or a whole number",
        [KIND_NUMBER] = "must be a whole number",
        [KIND_TOKENS] = "must be an array of token ids from 0 to 4294967295",
        [KIND_HASHES] = "must be an array of whole numbers of 64 bits",
        [KIND_IGNORED] = "",
    };

    return texts[kind];
}

static int refuse_type(struct reader *r, const struct member *m)
{
    return refuse(r, "invalid_type", m->name, must_be(m->kind));
}

/* The member of that name; NULL: refused. */
static const struct member *member_of(struct reader *r, const char *name)
{
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const struct member *m = &members[i];

        if (strcmp(name, m->name) != 0 || !(m->paths & r->path))
            continue;
        if (r->seen & UINT64_C(1) << i) {
            (void)refuse(r, "invalid_value", m->name, "comes twice");
            return NULL;
        }
        r->seen |= UINT64_C(1) << i;
        return m;
    }
    (void)refuse(r, "unknown_field", name, "is not known here");
    return NULL;
}

static char *text_of(struct reader *r, const struct member *m)
{
    return (char *)r->out + m->at;
}

static int take_text(struct reader *r, const struct member *m, const char *text,
                     size_t n)
{
    if ((m->kind != KIND_TEXT && m->kind != KIND_NAME) ||
        n >= QUESTION_TEXT_BYTES || memchr(text, '\0', n))
        return refuse_type(r, m);
    memcpy(text_of(r, m), text, n);
    text_of(r, m)[n] = '\0';
    return 0;
}

static int take_number(struct reader *r, const struct member *m, int64_t n)
{
    char why[64];

    if (m->kind == KIND_NAME) {
        snprintf(text_of(r, m), QUESTION_TEXT_BYTES, "%" PRId64, n);
        return 0;
    }
    if (m->kind != KIND_NUMBER)
        return refuse_type(r, m);
    if (n < m->least || n > m->most) {
        snprintf(why, sizeof(why),
                 "%" PRId64 ": must be from %" PRId64 " to %" PRId64, n,
                 m->least, m->most);
        return refuse(r, "out_of_range", m->name, why);
    }
    memcpy((char *)r->out + m->at, &n, sizeof(n));
    return 0;
}

/* A whole number of JSON as its 64 bits; false: it is none, or has more. */
static bool read_bits(struct json_walk *w, uint64_t *out)
{
    bool minus = json_walk_peek(w) == '-';
    const char *p = w->p + minus, *from = p;
    uint64_t n = 0;

    for (; p < w->end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
            return false;
    if (p == from || (p < w->end && strchr(".eE", *p)) ||
        (minus && n > UINT64_C(1) << 63))
        return false;
    w->p = p;
    *out = minus ? ~n + 1 : n;
    return true;
}

static int json_tokens(struct reader *r, const struct member *m)
{
    struct json_walk *w = &r->walk;
    const char *at = w->p + 1, *why;

    if (*w->p != '[' || r->out->tokens)
        return refuse_type(r, m);
    r->out->tokens = malloc(((size_t)(w->end - at) / 2 + 2) * sizeof(uint32_t));
    if (!r->out->tokens)
        return -ENOMEM;
    if (json_ids_read(&at, w->end, r->out->tokens, &r->out->n_tokens, &why))
        return refuse_type(r, m);
    w->p = at;
    return 0;
}

static int json_hash(struct json_walk *w, const char *key)
{
    struct reader *r = (struct reader *)(void *)w;

    (void)key;
    return read_bits(w, &r->out->hashes[r->out->n_hashes++])
               ? 0
               : refuse(r, "invalid_type", w->param, must_be(KIND_HASHES));
}

static int json_hashes(struct reader *r, const struct member *m)
{
    struct json_walk *w = &r->walk;
    int rc;

    if (*w->p != '[' || r->out->hashes)
        return refuse_type(r, m);
    r->out->hashes = malloc(((size_t)(w->end - w->p) / 2 + 2) * 8);
    if (!r->out->hashes)
        return -ENOMEM;
    w->param = m->name;
    rc = json_walk_array(w, json_hash);
    w->param = NULL;
    return rc;
}

static int json_text(struct reader *r, const struct member *m)
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
        return refuse_type(r, m);
    return take_text(r, m, whole, n);
}

static int json_number(struct reader *r, const struct member *m)
{
    uint64_t bits;
    bool minus = *r->walk.p == '-';

    if (!read_bits(&r->walk, &bits) ||
        (!minus && bits > INT64_MAX && m->kind == KIND_NUMBER))
        return refuse_type(r, m);
    if (!minus && bits > INT64_MAX) { /* a name */
        snprintf(text_of(r, m), QUESTION_TEXT_BYTES, "%" PRIu64, bits);
        return 0;
    }
    return take_number(r, m, (int64_t)bits);
}

static int json_member(struct json_walk *w, const char *key)
{
    struct reader *r = (struct reader *)(void *)w;
    const struct member *m = member_of(r, key);
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
    return refuse_type(r, m);
}

static int read_json(struct reader *r)
{
    struct json_walk *w = &r->walk;
    int rc;

    if (json_walk_peek(w) != '{')
        rc = json_walk_fail_syntax(w, "an object");
    else
        rc = json_walk_object(w, json_member);
    if (rc == 0 && json_walk_peek(w))
        rc = json_walk_fail_syntax(w, "the end of the body");
    if (rc == -EINVAL && !r->failed)
        openai_error_set(r->error, 400, "invalid_json", NULL, "%s", w->error);
    return rc;
}

/* The next value's bytes; it is a byte string. false: it ends early. */
static bool packed_bytes(struct unpack *u, const uint8_t **bytes, size_t *n)
{
    size_t width = (size_t)1 << (*u->at - 0xc4),
           left = (size_t)(u->end - u->at);

    *n = 0;
    if (left < 1 + width)
        return unpack_fail(u, "a byte string");
    for (size_t i = 1; i <= width; i++)
        *n = *n << 8 | u->at[i];
    if (*n > left - 1 - width)
        return unpack_fail(u, "a byte string");
    *bytes = u->at + 1 + width;
    u->at = *bytes + *n;
    return true;
}

/* Token ids as a byte string of little-endian numbers of 32 bits. */
static int packed_ids(struct reader *r, const struct member *m,
                      struct unpack *u)
{
    const uint8_t *bytes = NULL;
    size_t n;

    if (!packed_bytes(u, &bytes, &n))
        return -EINVAL;
    if (n % 4)
        return refuse_type(r, m);
    r->out->tokens = malloc(n + 4);
    if (!r->out->tokens)
        return -ENOMEM;
    r->out->n_tokens = n / 4;
    for (size_t i = 0; i < n / 4; i++) {
        memcpy(&r->out->tokens[i], bytes + 4 * i, 4);
        r->out->tokens[i] = le32toh(r->out->tokens[i]);
    }
    return 0;
}

static int packed_tokens(struct reader *r, const struct member *m,
                         struct unpack *u)
{
    bool odd = false;
    uint32_t n;

    if (r->out->tokens)
        return refuse_type(r, m);
    if (unpack_peek(u) == UNPACK_BYTES)
        return packed_ids(r, m, u);
    if (unpack_peek(u) != UNPACK_ARRAY)
        return refuse_type(r, m);
    if (!unpack_array(u, &n))
        return -EINVAL;
    r->out->tokens = malloc(((size_t)n + 1) * sizeof(uint32_t));
    if (!r->out->tokens)
        return -ENOMEM;
    r->out->n_tokens = n;
    if (!unpack_tokens(u, n, r->out->tokens, &odd))
        return -EINVAL;
    return odd ? refuse_type(r, m) : 0;
}

static int packed_hashes(struct reader *r, const struct member *m,
                         struct unpack *u)
{
    uint32_t n;

    if (r->out->hashes || unpack_peek(u) != UNPACK_ARRAY)
        return refuse_type(r, m);
    if (!unpack_array(u, &n))
        return -EINVAL;
    r->out->hashes = malloc(((size_t)n + 1) * sizeof(uint64_t));
    if (!r->out->hashes)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (unpack_peek(u) != UNPACK_INTEGER && unpack_peek(u) != UNPACK_BYTES)
            return refuse_type(r, m);
        if (!unpack_hash(u, &r->out->hashes[i]))
            return -EINVAL;
    }
    r->out->n_hashes = n;
    return 0;
}

static int packed_scalar(struct reader *r, const struct member *m,
                         struct unpack *u)
{
    struct unpack_text text;
    uint64_t bits;

    if (unpack_peek(u) == UNPACK_TEXT)
        return unpack_text(u, &text) ? take_text(r, m, text.bytes, text.n)
                                     : -EINVAL;
    if (unpack_peek(u) != UNPACK_INTEGER)
        return refuse_type(r, m);
    return unpack_integer(u, &bits) ? take_number(r, m, (int64_t)bits)
                                    : -EINVAL;
}

static int packed_value(struct reader *r, const struct member *m,
                        struct unpack *u)
{
    if (m->kind == KIND_IGNORED)
        return unpack_skip(u, 1) ? 0 : -EINVAL;
    if (unpack_nil(u))
        return 0;
    if (unpack_peek(u) == UNPACK_END)
        return -EINVAL;
    if (m->kind == KIND_TOKENS)
        return packed_tokens(r, m, u);
    if (m->kind == KIND_HASHES)
        return packed_hashes(r, m, u);
    return packed_scalar(r, m, u);
}

static int packed_members(struct reader *r, struct unpack *u)
{
    char name[64];
    struct unpack_text text;
    uint32_t n;
    int rc = 0;

    if (!unpack_map(u, &n))
        return -EINVAL;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        const struct member *m;

        if (!unpack_text(u, &text))
            return -EINVAL;
        snprintf(name, sizeof(name), "%.*s", (int)(text.n < 63 ? text.n : 63),
                 text.bytes);
        m = member_of(r, name);
        rc = m ? packed_value(r, m, u) : -EINVAL;
    }
    return rc;
}

static int read_packed(struct reader *r, const char *body, size_t n)
{
    struct unpack u;

    unpack_init(&u, body, n);
    int rc = packed_members(r, &u);
    if (rc == 0 && u.at != u.end) {
        (void)unpack_fail(&u, "the end of the body");
        rc = -EINVAL;
    }
    if (rc == -EINVAL && !r->failed)
        openai_error_set(r->error, 400, "invalid_msgpack", NULL,
                         "the body isn't valid msgpack at byte %zu: expected "
                         "%s",
                         (size_t)(u.at - u.start),
                         u.expected ? u.expected : "another value");
    return rc;
}

int question_read(enum question_path path, bool msgpack, const char *body,
                  size_t n, struct question *out, struct openai_error *error)
{
    struct reader r = {
        .walk = {.p = body,
                 .body = body,
                 .end = body + n,
                 .max_depth = MAX_DEPTH,
                 .max_members = MAX_MEMBERS},
        .path = path,
        .out = out,
        .error = error,
    };
    int rc;

    *out = (struct question){.block_tokens = -1, .rank = -1};
    rc = msgpack ? read_packed(&r, body, n) : read_json(&r);
    if (rc == 0 && path == QUESTION_TOKENS && !out->tokens)
        rc = refuse(&r, "missing", "token_ids", "missing");
    if (rc == 0 && path == QUESTION_HASHES && !out->hashes)
        rc = refuse(&r, "missing", "seq_hashes", "missing");
    if (rc == 0 && *out->adapter_id)
        rc = refuse(&r, "unsupported", "lora_id", "must be lora_name");
    if (rc)
        question_fini(out);
    return rc;
}

void question_fini(struct question *q)
{
    free(q->tokens);
    free(q->hashes);
    q->tokens = NULL;
    q->hashes = NULL;
}
