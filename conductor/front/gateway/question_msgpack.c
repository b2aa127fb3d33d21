/* Values of a question in msgpack. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/front/gateway/question_reader.h"
#include "conductor/link/events/unpack.h"

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
static int packed_ids(struct question_reader *r,
                      const struct question_member *m, struct unpack *u)
{
    const uint8_t *bytes = NULL;
    size_t n;

    if (!packed_bytes(u, &bytes, &n))
        return -EINVAL;
    if (n % 4)
        return question_refuse_type(r, m);
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
    uint32_t n;

    if (r->out->tokens)
        return question_refuse_type(r, m);
    if (unpack_peek(u) == UNPACK_BYTES)
        return packed_ids(r, m, u);
    if (unpack_peek(u) != UNPACK_ARRAY)
        return question_refuse_type(r, m);
    if (!unpack_array(u, &n))
        return -EINVAL;
    r->out->tokens = malloc(((size_t)n + 1) * sizeof(uint32_t));
    if (!r->out->tokens)
        return -ENOMEM;
    r->out->n_tokens = n;
    if (!unpack_tokens(u, n, r->out->tokens, &odd))
        return -EINVAL;
    return odd ? question_refuse_type(r, m) : 0;
}

static int packed_hashes(struct question_reader *r,
                         const struct question_member *m, struct unpack *u)
{
    uint32_t n;

    if (r->out->hashes || unpack_peek(u) != UNPACK_ARRAY)
        return question_refuse_type(r, m);
    if (!unpack_array(u, &n))
        return -EINVAL;
    r->out->hashes = malloc(((size_t)n + 1) * sizeof(uint64_t));
    if (!r->out->hashes)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (unpack_peek(u) != UNPACK_INTEGER && unpack_peek(u) != UNPACK_BYTES)
            return question_refuse_type(r, m);
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
        return question_refuse_type(r, m);
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
