/* See model_list.h. */
#include "conductor/link/upstream/model_list.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static void add(struct model_list *list, struct engine_names *names,
                const char *name)
{
    list->n_dropped += !engine_names_add(names, name);
}

static bool knows(const struct model_list *list, const char *name)
{
    return strcmp(list->model, name) == 0 ||
           engine_names_have(&list->aliases, name) ||
           engine_names_have(&list->adapters, name);
}

uint32_t model_list_window(const struct model_list *list, const char *name)
{
    if (list->wanted_window_tokens)
        return list->wanted_window_tokens;
    return knows(list, name) ? list->window_tokens : 0;
}

const char *model_list_fault(int error)
{
    return error == -ENOBUFS ? "the list of models is longer than 1 MiB"
                             : "the answer lists no model";
}

/* The member's text; NULL = none. */
static const char *text_of(const json_t *card, const char *key)
{
    return json_string_value(json_object_get(card, key));
}

/* Returns the card's name, if it is a valid one; else NULL. */
static const char *name_of(const json_t *card)
{
    const char *id = text_of(card, "id");

    if (!id || !*id || strlen(id) >= ENGINE_MODEL_MAX)
        return NULL;
    for (const char *c = id; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return NULL;
    return id;
}

/* Tokens; 0 = absent or out of range. */
static uint32_t window_of(const json_t *card)
{
    json_int_t n = json_integer_value(json_object_get(card, "max_model_len"));

    return n > 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
}

static void take_base(struct model_list *list, const json_t *card,
                      const char **root)
{
    const char *id = name_of(card), *own = text_of(card, "root");

    if (!id || text_of(card, "parent") || knows(list, id))
        return;
    if (!*list->model) {
        snprintf(list->model, sizeof(list->model), "%s", id);
        *root = own;
        list->window_tokens = window_of(card);
    } else if (own && *root && strcmp(own, *root) == 0) {
        add(list, &list->aliases, id);
    }
}

static void take_adapter(struct model_list *list, const json_t *card)
{
    const char *id = name_of(card), *parent = text_of(card, "parent");

    if (!id || !parent || knows(list, id))
        return;
    if (strcmp(parent, list->model) == 0 ||
        engine_names_have(&list->aliases, parent))
        add(list, &list->adapters, id);
}

static bool is_named(const json_t *card, const char *name)
{
    const char *id = name_of(card);

    return name && id && strcmp(id, name) == 0;
}

_Static_assert(ENGINE_NAMES_MAX <= 32, "a bit of each");

/* Bit k is set if a card has name k. */
static uint32_t listed(const json_t *cards, const struct engine_names *names)
{
    uint32_t bits = 0;
    const json_t *card;
    size_t i;

    json_array_foreach(cards, i, card)
    {
        const char *id = name_of(card);

        for (uint8_t k = 0; id && k < names->n; k++)
            if (strcmp(engine_names_at(names, k), id) == 0)
                bits |= 1u << k;
    }
    return bits;
}

/* Returns the first name whose bit is not set; NULL = none. */
static const char *lacking(const struct engine_names *names, uint32_t bits)
{
    for (uint8_t k = 0; k < names->n; k++)
        if (!(bits >> k & 1u))
            return engine_names_at(names, k);
    return NULL;
}

/* Notes which wanted names the cards have. */
static void look_for(struct model_list *list, const json_t *cards,
                     const struct model_wanted *wanted)
{
    const json_t *card;
    size_t i;

    json_array_foreach(cards, i, card)
    {
        if (is_named(card, wanted->name)) {
            list->has_wanted = true;
            list->wanted_window_tokens = window_of(card);
        }
    }
    if (wanted->aliases) {
        list->listed_aliases = listed(cards, wanted->aliases);
        list->lacks = lacking(wanted->aliases, list->listed_aliases);
    }
    if (wanted->adapters) {
        list->listed_adapters = listed(cards, wanted->adapters);
        if (!list->lacks)
            list->lacks = lacking(wanted->adapters, list->listed_adapters);
    }
}

int model_list_read(const char *text, size_t n,
                    const struct model_wanted *wanted, struct model_list *out)
{
    struct model_list list = {0};
    const char *root = NULL;
    const json_t *card;
    json_t *json;
    size_t i;

    if (n > MODEL_LIST_BYTES_MAX)
        return -E2BIG;
    json = json_loadb(text, n, 0, NULL);
    const json_t *cards = json_object_get(json, "data");
    bool empty = json_is_array(cards) && json_array_size(cards) == 0;
    json_array_foreach(cards, i, card)
    {
        take_base(&list, card, &root);
    }
    json_array_foreach(cards, i, card) take_adapter(&list, card);
    if (wanted)
        look_for(&list, cards, wanted);
    json_decref(json);
    if (!*list.model && !empty)
        return -EINVAL;
    *out = list;
    return 0;
}
