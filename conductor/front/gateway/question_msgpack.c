/* Values of a question in msgpack. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/gateway/question_reader.h"
#include "conductor/link/events/unpack.h"

/* Writes a boolean or a float as text. False: it is neither, or cut off. */
static bool show_other(const struct unpack *u, char text[64])
{
    size_t left = (size_t)(u->end - u->at);
    uint64_t bits = 0;
    double value;
    float single;

    if (*u->at == 0xc2 || *u->at == 0xc3) {
        snprintf(text, 64, "%s", *u->at == 0xc3 ? "true" : "false");
        return true;
    }
    size_t width = *u->at == 0xca ? 4 : *u->at == 0xcb ? 8 : 0;
    if (width == 0 || left <= width)
        return false;
    for (size_t i = 1; i <= width; i++)
        bits = bits << 8 | u->at[i];
    uint32_t low = (uint32_t)bits;
    memcpy(&single, &low, 4);
    memcpy(&value, &bits, 8);
    snprintf(text, 64, "%.17g", width == 4 ? (double)single : value);
    return true;
}

/* Refuses the next value, or its i-th element, as being of another kind. */
static int refuse(struct question_reader *r, const struct question_member *m,
                  int64_t i, struct unpack at)
{
    static const char *const kinds[] = {
        [UNPACK_END] = "nothing",        [UNPACK_NIL] = "nil",
        [UNPACK_INTEGER] = "an integer", [UNPACK_TEXT] = "a text",
        [UNPACK_BYTES] = "bytes",        [UNPACK_ARRAY] = "an array",
        [UNPACK_MAP] = "a map",          [UNPACK_OTHER] = "an extension",
    };
    enum unpack_kind kind = unpack_peek(&at);
    struct unpack_text told;
    uint64_t bits;
    char text[64];

    if (kind == UNPACK_INTEGER && unpack_integer(&at, &bits))
        snprintf(text, sizeof(text), "%" PRId64, (int64_t)bits);
    else if (kind == UNPACK_TEXT && unpack_text(&at, &told))
        snprintf(text, sizeof(text), "\"%.*s\"",
                 (int)(told.n < 40 ? told.n : 40), told.bytes);
    else if (kind != UNPACK_OTHER || !show_other(&at, text))
        snprintf(text, sizeof(text), "%s", kinds[kind]);
    return question_refuse_type(r, m, i, text, strlen(text));
}

/* Refuses the first of n elements that is not a token id. */
static int refuse_token(struct question_reader *r,
                        const struct question_member *m, struct unpack u,
                        uint32_t n)
{
    uint32_t i = 0, token;
    bool odd = false;
    struct unpack at = u;

    while (i < n && unpack_tokens(&u, 1, &token, &odd) && !odd) {
        at = u;
        i++;
    }
    return refuse(r, m, i, at);
}

/* Reads the byte string that comes next. False: it is cut off. */
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

/* Reads token ids from a byte string of little-endian numbers of 32 bits. */
static int packed_ids(struct question_reader *r,
                      const struct question_member *m, struct unpack *u)
{
    const uint8_t *bytes = NULL;
    const struct unpack from = *u;
    size_t n;

    if (!packed_bytes(u, &bytes, &n))
        return -EINVAL;
    if (n % 4)
        return refuse(r, m, -1, from);
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

static int packed_tokens(struct question_reader *r,
                         const struct question_member *m, struct unpack *u)
{
    bool odd = false;
    struct unpack first;
    uint32_t n;

    if (r->out->tokens)
        return refuse(r, m, -1, *u);
    if (unpack_peek(u) == UNPACK_BYTES)
        return packed_ids(r, m, u);
    if (unpack_peek(u) != UNPACK_ARRAY)
        return refuse(r, m, -1, *u);
    if (!unpack_array(u, &n))
        return -EINVAL;
    first = *u;
    r->out->tokens = malloc(((size_t)n + 1) * sizeof(uint32_t));
    if (!r->out->tokens)
        return -ENOMEM;
    r->out->n_tokens = n;
    if (!unpack_tokens(u, n, r->out->tokens, &odd))
        return -EINVAL;
    return odd ? refuse_token(r, m, first, n) : 0;
}

static int packed_hashes(struct question_reader *r,
                         const struct question_member *m, struct unpack *u)
{
    uint32_t n;

    if (r->out->hashes || unpack_peek(u) != UNPACK_ARRAY)
        return refuse(r, m, -1, *u);
    if (!unpack_array(u, &n))
        return -EINVAL;
    r->out->hashes = malloc(((size_t)n + 1) * sizeof(uint64_t));
    if (!r->out->hashes)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (unpack_peek(u) != UNPACK_INTEGER && unpack_peek(u) != UNPACK_BYTES)
            return refuse(r, m, (int64_t)i, *u);
        if (!unpack_hash(u, &r->out->hashes[i]))
            return -EINVAL;
    }
    r->out->n_hashes = n;
    return 0;
}

static int packed_scalar(struct question_reader *r,
                         const struct question_member *m, struct unpack *u)
{
    struct unpack_text text;
    uint64_t bits;

    if (unpack_peek(u) == UNPACK_TEXT)
        return unpack_text(u, &text)
                   ? question_take_text(r, m, text.bytes, text.n)
                   : -EINVAL;
    if (unpack_peek(u) != UNPACK_INTEGER)
        return refuse(r, m, -1, *u);
    return unpack_integer(u, &bits) ? question_take_number(r, m, (int64_t)bits)
                                    : -EINVAL;
}

static int packed_value(struct question_reader *r,
                        const struct question_member *m, struct unpack *u)
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

static int packed_members(struct question_reader *r, struct unpack *u)
{
    char name[64];
    struct unpack_text text;
    uint32_t n;
    int rc = 0;

    if (!unpack_map(u, &n))
        return -EINVAL;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        const struct question_member *m;

        if (!unpack_text(u, &text))
            return -EINVAL;
        if (memchr(text.bytes, '\0', text.n)) {
            unpack_fail(u, "a member's name without NUL");
            return -EINVAL;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(text.n < 63 ? text.n : 63),
                 text.bytes);
        m = question_member(r, name);
        rc = m ? packed_value(r, m, u) : -EINVAL;
    }
    return rc;
}

int question_read_msgpack(struct question_reader *r, const char *body, size_t n)
{
    struct unpack u;

    unpack_init(&u, body, n);
    int rc = packed_members(r, &u);
    if (rc == 0 && u.at != u.end) {
        unpack_fail(&u, "the end of the body");
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
