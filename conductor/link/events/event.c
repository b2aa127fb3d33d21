/* Reads one event, in its array form or its map form. */
#include "conductor/link/events/field.h"
#include "conductor/link/events/object.h"

static const struct {
    struct unpack_text name;
    enum event_field field;
} field_names[] = {
    {EVENT_NAME("type"),
     FIELD_TYPE}, /* in vLLM's order, so that the next name is near */
    {EVENT_NAME("block_hashes"), FIELD_HASHES},
    {EVENT_NAME("parent_block_hash"), FIELD_PARENT},
    {EVENT_NAME("token_ids"), FIELD_TOKENS},
    {EVENT_NAME("block_size"), FIELD_BLOCK_SIZE},
    {EVENT_NAME("lora_id"), FIELD_LORA_ID},
    {EVENT_NAME("medium"), FIELD_MEDIUM},
    {EVENT_NAME("lora_name"), FIELD_LORA_NAME},
    {EVENT_NAME("extra_keys"), FIELD_EXTRAS},
    {EVENT_NAME("group_idx"), FIELD_GROUP},
    {EVENT_NAME("kv_cache_spec_kind"), FIELD_SPEC_KIND},
    {EVENT_NAME("cache_salt"), FIELD_SALT},
    {EVENT_NAME("seq_hashes"), FIELD_HASHES},
    {EVENT_NAME("object_key"), FIELD_OBJECT},
};
#define N_FIELDS (sizeof(field_names) / sizeof(field_names[0]))

#define ORDER_MAX 11

/* The kinds of events. In the array form their fields follow the tag in this
 * order. */
static const struct {
    struct unpack_text name;
    enum kv_event_kind kind;
    uint32_t at_least; /* fields */
    enum event_field order[ORDER_MAX];
} tags[] = {
    {EVENT_NAME("BlockStored"),
     KV_STORED,
     4,
     {FIELD_HASHES, FIELD_PARENT, FIELD_TOKENS, FIELD_BLOCK_SIZE, FIELD_LORA_ID,
      FIELD_MEDIUM, FIELD_LORA_NAME, FIELD_EXTRAS, FIELD_GROUP,
      FIELD_SPEC_KIND}},
    {EVENT_NAME("BlockRemoved"),
     KV_REMOVED,
     1,
     {FIELD_HASHES, FIELD_MEDIUM, FIELD_GROUP}},
    {EVENT_NAME("AllBlocksCleared"), KV_CLEARED, 0, {FIELD_MEDIUM}},
};
#define N_TAGS (sizeof(tags) / sizeof(tags[0]))

/* *next: index in field_names to begin with; set to the one after the match. */
static enum event_field field_by_name(struct unpack_text name, size_t *next)
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

/* Returns N_TAGS for an unknown tag. */
static size_t tag_by_name(struct unpack_text name)
{
    size_t i = 0;

    while (i < N_TAGS && !unpack_text_same(name, tags[i].name))
        i++;
    return i;
}

/* Takes a store's object, which is a part of one block. */
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

/* Keeps an event that was read completely. */
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

/* Reads an event whose first element is its tag. */
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
        if (!event_field_read(
                d, i < ORDER_MAX ? tags[tag].order[i] : FIELD_OTHER, &raw))
            return false;
    return event_end(d, &raw, tag);
}

static const struct unpack_text type_name = EVENT_NAME("type");

/* Finds the tag among a map's n pairs, mostly the first. The reader does not
 * move, unless it fails. */
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
        enum event_field field = FIELD_OTHER;

        if (unpack_peek(u) == UNPACK_TEXT) {
            if (!unpack_text(u, &name))
                return false;
            field = field_by_name(name, &next);
        } else if (!unpack_skip(u, 1))
            return false;
        if (!event_field_read(d, field, &raw))
            return false;
    }
    return event_end(d, &raw, tag);
}

bool decoder_event(struct kv_decoder *d, uint32_t *n_unknown)
{
    return unpack_peek(&d->u) == UNPACK_MAP ? read_map_event(d, n_unknown)
                                            : read_array_event(d, n_unknown);
}
