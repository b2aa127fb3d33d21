/*
 * The extra keys of a block, as vLLM orders them: the adapter's name, then for
 * each image its identifier, then in a prompt's first block the salt, then a
 * digest of prompt embeddings. Keys have no names. The adapter is known from
 * the event; in a first block a text at the end is taken for the salt. All
 * others go into a digest, so that such a block equals only blocks with the
 * same ones.
 */
#include "conductor/link/events/extras.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* An adapter without a name is named by its number's bytes, without zeros in
 * front, so that the width of its encoding does not matter. */
static void read_lora_id(struct unpack *id, struct kv_event *event)
{
    const uint8_t *from = id->at;

    if (!from || event->adapter.n > 0)
        return;
    if (unpack_peek(id) == UNPACK_TEXT) {
        unpack_text(id, &event->adapter);
        return;
    }
    if (unpack_peek(id) != UNPACK_INTEGER || !unpack_skip(id, 1))
        return;
    if (id->at - from > 1)
        from++; /* the byte with the width */
    while (id->at - from > 1 && *from == 0)
        from++;
    event->adapter =
        (struct unpack_text){(const char *)from, (uint32_t)(id->at - from)};
}

/* Returns the digest of one block's extra keys; of a prompt's first block the
 * salt goes into the event instead. */
static uint64_t block_digest(struct unpack *u, struct kv_event *event,
                             bool first)
{
    const uint8_t *from, *to;
    struct unpack_text text;
    uint32_t n;

    if (unpack_peek(u) != UNPACK_ARRAY) {
        unpack_skip(u, 1);
        return 0;
    }
    if (!unpack_array(u, &n))
        return 0;
    from = to = u->at;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *before = u->at;
        bool is_text = unpack_peek(u) == UNPACK_TEXT;

        if (!(is_text ? unpack_text(u, &text) : unpack_skip(u, 1)))
            return 0;
        if (!is_text)
            text = (struct unpack_text){(const char *)before,
                                        (uint32_t)(u->at - before)};
        if (i == 0 && event->adapter.n > 0 &&
            unpack_text_same(text, event->adapter))
            from = to = u->at;
        else if (first && is_text && i + 1 == n)
            event->salt = text;
        else
            to = u->at;
    }
    return from == to ? 0 : XXH3_64bits(from, (size_t)(to - from)) | 1;
}

void kv_event_extras_read(struct kv_event_extras *extras,
                          struct kv_event *event, uint64_t *digests)
{
    struct unpack *u = &extras->keys;
    uint64_t any = 0;
    uint32_t n;

    read_lora_id(&extras->lora_id, event);
    if (!u->at || unpack_peek(u) != UNPACK_ARRAY || !unpack_array(u, &n))
        return;
    for (uint32_t i = 0; i < event->n_hashes; i++) {
        digests[i] = 0;
        if (i < n && !unpack_nil(u))
            digests[i] = block_digest(u, event, i == 0 && !event->has_parent);
        any |= digests[i];
    }
    if (any)
        event->extras = digests;
}
