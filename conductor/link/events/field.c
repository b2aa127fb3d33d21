/* Reads the fields of an event. */
#include "conductor/link/events/field.h"

#include <string.h>

/* Groups with these words in their kind forget the middle of a prompt. */
static const char *const windows[] = {"sliding", "chunked", "mamba"};
#define N_WINDOWS (sizeof(windows) / sizeof(windows[0]))

static bool read_hashes(struct kv_decoder *d, struct kv_event *e)
{
    struct unpack *u = &d->u;
    const uint8_t *at = u->at;
    uint32_t n;

    if (e->n_hashes > 0) /* under another name */
        return unpack_skip(u, 1);
    if (!unpack_array(u, &n))
        return false;
    if (n > KV_BATCH_HASHES_MAX - d->n_hashes) {
        u->at = at;
        return unpack_fail(u, "fewer block hashes in one message");
    }
    e->first_hash = d->n_hashes;
    e->n_hashes = n;
    for (uint32_t i = 0; i < n; i++)
        if (!unpack_hash(u, &d->hashes[d->n_hashes + i]))
            return false;
    d->n_hashes += n;
    return true;
}

static bool read_tokens(struct kv_decoder *d, struct kv_event *e)
{
    struct unpack *u = &d->u;
    const uint8_t *at = u->at;
    uint32_t n;

    if (unpack_nil(u))
        return true;
    if (!unpack_array(u, &n))
        return false;
    if (n > KV_BATCH_TOKENS_MAX - d->n_tokens) {
        u->at = at;
        return unpack_fail(u, "fewer tokens in one message");
    }
    e->first_token = d->n_tokens;
    e->n_tokens = n;
    if (!unpack_tokens(u, n, d->tokens + d->n_tokens, &e->odd))
        return false;
    d->n_tokens += n;
    return true;
}

static bool read_block_size(struct unpack *u, struct kv_event *e)
{
    const uint8_t *at = u->at;
    uint64_t value;

    if (unpack_nil(u))
        return true;
    if (!unpack_integer(u, &value))
        return false;
    if (value > UINT32_MAX) {
        u->at = at;
        return unpack_fail(u, "a block size");
    }
    e->block_size = (uint32_t)value;
    return true;
}

static bool read_medium(struct unpack *u, struct kv_event *e)
{
    struct unpack_text text;

    if (unpack_nil(u))
        return true;
    if (!unpack_text(u, &text))
        return false;
    for (unsigned t = 0; t < BLOCK_TIERS && !e->has_tier; t++)
        for (const char *const *name = block_tiers[t].media; *name; name++)
            if (text.n == strlen(*name) &&
                memcmp(text.bytes, *name, text.n) == 0) {
                e->tier = (enum block_tier)t;
                e->has_tier = true;
            }
    e->unknown_medium = !e->has_tier;
    return true;
}

static bool read_group(struct unpack *u, uint64_t *groups)
{
    const uint8_t *at = u->at;
    uint64_t group;

    if (!unpack_integer(u, &group))
        return false;
    if (group > 63) {
        u->at = at;
        return unpack_fail(u, "a cache group of 0 to 63");
    }
    *groups |= UINT64_C(1) << group;
    return true;
}

/* Reads one group, or a list of groups. */
static bool read_groups(struct unpack *u, struct kv_event *e)
{
    uint32_t n = 1;

    if (unpack_nil(u))
        return true;
    if (unpack_peek(u) == UNPACK_ARRAY && !unpack_array(u, &n))
        return false;
    while (n-- > 0)
        if (!read_group(u, &e->groups))
            return false;
    return true;
}

static bool read_spec_kind(struct unpack *u, struct kv_event *e)
{
    struct unpack_text text;

    if (unpack_nil(u))
        return true;
    if (!unpack_text(u, &text))
        return false;
    for (size_t i = 0; i < N_WINDOWS; i++)
        if (memmem(text.bytes, text.n, windows[i], strlen(windows[i])))
            e->windowed = true;
    return true;
}

static bool read_text(struct unpack *u, struct unpack_text *out)
{
    return unpack_nil(u) || unpack_text(u, out);
}

bool event_field_read(struct kv_decoder *d, enum event_field field,
                      struct raw_event *raw)
{
    struct kv_event *e = &raw->event;
    struct unpack *u = &d->u;

    switch (field) {
    case FIELD_HASHES:
        raw->has_hashes = true;
        return read_hashes(d, e);
    case FIELD_PARENT:
        if (unpack_nil(u))
            return true;
        e->has_parent = true;
        return unpack_hash(u, &e->parent);
    case FIELD_TOKENS:
        return read_tokens(d, e);
    case FIELD_BLOCK_SIZE:
        return read_block_size(u, e);
    case FIELD_MEDIUM:
        return read_medium(u, e);
    case FIELD_LORA_NAME:
        return read_text(u, &e->adapter);
    case FIELD_SALT:
        return read_text(u, &e->salt);
    case FIELD_OBJECT:
        raw->has_hashes = true;
        return read_text(u, &raw->object);
    case FIELD_GROUP:
        return read_groups(u, e);
    case FIELD_SPEC_KIND:
        return read_spec_kind(u, e);
    case FIELD_LORA_ID:
        raw->extras.lora_id = *u;
        return unpack_skip(u, 1);
    case FIELD_EXTRAS:
        raw->extras.keys = *u;
        return unpack_skip(u, 1);
    case FIELD_OTHER:
    case FIELD_TYPE:
        break;
    }
    return unpack_skip(u, 1);
}
