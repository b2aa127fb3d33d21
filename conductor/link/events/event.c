/* One event: its fields, its form as an array and its form as a map. */
#include <string.h>

#include "conductor/link/events/decoder.h"
#include "conductor/link/events/extras.h"
#include "conductor/link/events/object.h"

/* What an event may say; FIELD_OTHER is skipped. */
enum field {
    FIELD_OTHER,
    FIELD_TYPE,
    FIELD_HASHES,
    FIELD_PARENT,
    FIELD_TOKENS,
    FIELD_BLOCK_SIZE,
    FIELD_LORA_ID,
    FIELD_MEDIUM,
    FIELD_LORA_NAME,
    FIELD_EXTRAS,
    FIELD_GROUP,
    FIELD_SPEC_KIND,
    FIELD_SALT,
    FIELD_OBJECT,
};

/* A name and its length. */
#define NAME(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

static const struct {
    struct unpack_text name;
    enum field field;
} field_names[] = {
    {NAME("type"), FIELD_TYPE}, /* in vLLM's order, so that the next is near */
    {NAME("block_hashes"), FIELD_HASHES},
    {NAME("parent_block_hash"), FIELD_PARENT},
    {NAME("token_ids"), FIELD_TOKENS},
    {NAME("block_size"), FIELD_BLOCK_SIZE},
    {NAME("lora_id"), FIELD_LORA_ID},
    {NAME("medium"), FIELD_MEDIUM},
    {NAME("lora_name"), FIELD_LORA_NAME},
    {NAME("extra_keys"), FIELD_EXTRAS},
    {NAME("group_idx"), FIELD_GROUP},
    {NAME("kv_cache_spec_kind"), FIELD_SPEC_KIND},
    {NAME("cache_salt"), FIELD_SALT},
    {NAME("seq_hashes"), FIELD_HASHES},
    {NAME("object_key"), FIELD_OBJECT},
};
#define N_FIELDS (sizeof(field_names) / sizeof(field_names[0]))

#define ORDER_MAX 11

/* The kinds of events; in an array their fields stand in this order behind
 * the tag. */
static const struct {
    struct unpack_text name;
    enum kv_event_kind kind;
    uint32_t at_least; /* fields */
    enum field order[ORDER_MAX];
} tags[] = {
    {NAME("BlockStored"),
     KV_STORED,
     4,
     {FIELD_HASHES, FIELD_PARENT, FIELD_TOKENS, FIELD_BLOCK_SIZE, FIELD_LORA_ID,
      FIELD_MEDIUM, FIELD_LORA_NAME, FIELD_EXTRAS, FIELD_GROUP,
      FIELD_SPEC_KIND}},
    {NAME("BlockRemoved"),
     KV_REMOVED,
     1,
     {FIELD_HASHES, FIELD_MEDIUM, FIELD_GROUP}},
    {NAME("AllBlocksCleared"), KV_CLEARED, 0, {FIELD_MEDIUM}},
};
#define N_TAGS (sizeof(tags) / sizeof(tags[0]))

static const struct {
    struct unpack_text name;
    enum block_tier tier;
} media[] = {
    {NAME("GPU"), TIER_DEVICE},      {NAME("CPU"), TIER_HOST},
    {NAME("CPU_PINNED"), TIER_HOST}, {NAME("HOST"), TIER_HOST},
    {NAME("DISK"), TIER_DISK},       {NAME("STORAGE"), TIER_DISK},
    {NAME("FS"), TIER_DISK},         {NAME("OBJ"), TIER_DISK},
    {NAME("NVME"), TIER_DISK},       {NAME("EXTERNAL"), TIER_DISK},
};
#define N_MEDIA (sizeof(media) / sizeof(media[0]))

/* Groups with these words in their kind forget the middle of a prompt. */
static const char *const windows[] = {"sliding", "chunked", "mamba"};
#define N_WINDOWS (sizeof(windows) / sizeof(windows[0]))

/* An event with what is looked at when all of it has been read. */
struct raw_event {
    struct kv_event event;
    struct kv_event_extras extras;
    struct unpack_text object; /* of a store, its name; n 0: none */
    bool has_hashes;
};

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
    for (size_t i = 0; i < N_MEDIA; i++) {
        if (unpack_text_same(text, media[i].name)) {
            e->tier = media[i].tier;
            e->has_tier = true;
            return true;
        }
    }
    e->unknown_medium = true;
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

/* One group, or a list of them. */
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

static bool read_field(struct kv_decoder *d, enum field field,
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

/* *next: where it may stand among field_names, and the next one after it. */
static enum field field_by_name(struct unpack_text name, size_t *next)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        size_t at = (*next + i) % N_FIELDS;

        if (unpack_text_same(name, field_names[at].name)) {
            *next = at + 1;
            return field_names[at].field;
        }
    }
    return FIELD_OTHER;
}

/* N_TAGS: none of ours. */
static size_t tag_by_name(struct unpack_text name)
{
    size_t i = 0;

    while (i < N_TAGS && !unpack_text_same(name, tags[i].name))
        i++;
    return i;
}

/* A store's object is a part of one block. */
static bool take_object(struct kv_decoder *d, struct kv_event *e,
                        struct unpack_text name)
{
    if (d->n_hashes == KV_BATCH_HASHES_MAX)
        return unpack_fail(&d->u, "fewer block hashes in one message");
    e->first_hash = d->n_hashes;
    e->n_hashes = kv_object_name(name, &d->hashes[d->n_hashes], &e->part);
    d->n_hashes += e->n_hashes;
    return true;
}

/* Keeps the event, all of which has been read. */
static bool event_end(struct kv_decoder *d, struct raw_event *raw, size_t tag)
{
    struct kv_event *e = &raw->event;

    e->kind = tags[tag].kind;
    if (e->kind != KV_CLEARED && !raw->has_hashes)
        return unpack_fail(&d->u, "block_hashes in the event before this");
    if (e->n_hashes == 0 && raw->object.n > 0 &&
        !take_object(d, e, raw->object))
        return false;
    if (e->groups == 0)
        e->groups = 1;
    e->hashes = d->hashes + e->first_hash;
    e->tokens = d->tokens + e->first_token;
    if (e->kind == KV_STORED) {
        uint64_t *extras = d->extras + e->first_hash;

        kv_event_extras_read(&raw->extras, e, extras);
    }
    d->events[d->n_events++] = *e;
    return true;
}

/* An event whose first element is its tag. */
static bool read_array_event(struct kv_decoder *d, uint32_t *n_unknown)
{
    struct raw_event raw = {0};
    struct unpack *u = &d->u;
    struct unpack_text name;
    uint32_t n;
    size_t tag;

    if (!unpack_array(u, &n))
        return false;
    if (n == 0)
        return unpack_fail(u, "the tag of an event");
    if (!unpack_text(u, &name))
        return false;
    tag = tag_by_name(name);
    if (tag == N_TAGS) {
        ++*n_unknown;
        return unpack_skip(u, n - 1);
    }
    if (n - 1 < tags[tag].at_least)
        return unpack_fail(u, "more elements in the event");
    for (uint32_t i = 0; i < n - 1; i++)
        if (!read_field(d, i < ORDER_MAX ? tags[tag].order[i] : FIELD_OTHER,
                        &raw))
            return false;
    return event_end(d, &raw, tag);
}

static const struct unpack_text type_name = NAME("type");

/* Finds the tag among a map's n pairs; the reader stays where it is, but where
 * it fails. Mostly the tag is the first. */
static bool map_tag(struct kv_decoder *d, uint32_t n, struct unpack_text *name)
{
    struct unpack u = d->u;

    for (uint32_t i = 0; i < n; i++) {
        struct unpack_text key = {0};
        bool ok = unpack_peek(&u) == UNPACK_TEXT ? unpack_text(&u, &key)
                                                 : unpack_skip(&u, 1);

        if (ok && unpack_text_same(key, type_name))
            ok = unpack_text(&u, name);
        else
            ok = ok && unpack_skip(&u, 1);
        if (!ok) {
            d->u = u;
            return false;
        }
        if (name->bytes)
            return true;
    }
    return unpack_fail(&d->u, "an event's type");
}

static bool read_map_event(struct kv_decoder *d, uint32_t *n_unknown)
{
    struct raw_event raw = {0};
    struct unpack *u = &d->u;
    struct unpack_text name = {0};
    uint32_t n;
    size_t tag, next = 0;

    if (!unpack_map(u, &n) || !map_tag(d, n, &name))
        return false;
    tag = tag_by_name(name);
    if (tag == N_TAGS) {
        ++*n_unknown;
        return unpack_skip(u, n) && unpack_skip(u, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        enum field field = FIELD_OTHER;

        if (unpack_peek(u) == UNPACK_TEXT) {
            if (!unpack_text(u, &name))
                return false;
            field = field_by_name(name, &next);
        } else if (!unpack_skip(u, 1))
            return false;
        if (!read_field(d, field, &raw))
            return false;
    }
    return event_end(d, &raw, tag);
}

bool decoder_event(struct kv_decoder *d, uint32_t *n_unknown)
{
    return unpack_peek(&d->u) == UNPACK_MAP ? read_map_event(d, n_unknown)
                                            : read_array_event(d, n_unknown);
}
