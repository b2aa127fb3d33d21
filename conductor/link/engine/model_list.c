/* See model_list.h. */
#include "conductor/link/engine/model_list.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static void add(struct engine_names *names, const char *name)
{
    if (names->n < ENGINE_NAMES_MAX)
        snprintf(names->at[names->n++], ENGINE_NAME_MAX, "%s", name);
}

static bool has(const struct engine_names *names, const char *name)
{
    for (uint8_t i = 0; i < names->n; i++)
        if (strcmp(names->at[i], name) == 0)
            return true;
    return false;
}

bool model_list_has(const struct model_list *list, const char *name)
{
    return strcmp(list->model, name) == 0 || has(&list->aliases, name) ||
           has(&list->adapters, name) || has(&list->others, name);
}

uint32_t model_list_window(const struct model_list *list, const char *name)
{
    return has(&list->others, name) ? 0 : list->window_tokens;
}

/* The member's text, NULL: it has none. */
static const char *text_of(const json_t *card, const char *key)
{
    return json_string_value(json_object_get(card, key));
}

/* The card's name, if it can be one of ours; else NULL. */
static const char *name_of(const json_t *card)
{
    const char *id = text_of(card, "id");

    if (!id || !*id || strlen(id) >= ENGINE_NAME_MAX)
        return NULL;
    for (const char *c = id; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return NULL;
    return id;
}

/* 0: it is not told, or is no such number. */
static uint32_t window_of(const json_t *card)
{
    json_int_t n = json_integer_value(json_object_get(card, "max_model_len"));

    return n > 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
}

static void take_base(struct model_list *list, const json_t *card,
                      const char **root)
{
    const char *id = name_of(card), *own = text_of(card, "root");

    if (!id || text_of(card, "parent") || model_list_has(list, id))
        return;
    if (!*list->model) {
        snprintf(list->model, sizeof(list->model), "%s", id);
        *root = own;
        list->window_tokens = window_of(card);
    } else {
        add(own && *root && strcmp(own, *root) == 0 ? &list->aliases
                                                    : &list->others,
            id);
    }
}

static void take_adapter(struct model_list *list, const json_t *card)
{
    const char *id = name_of(card), *parent = text_of(card, "parent");

    if (!id || !parent || model_list_has(list, id))
        return;
    add(strcmp(parent, list->model) == 0 || has(&list->aliases, parent)
            ? &list->adapters
            : &list->others,
        id);
}

int model_list_read(const char *text, size_t n, struct model_list *out)
{
    struct model_list list = {0};
    const char *root = NULL;
    const json_t *card;
    json_t *json;
    size_t i;

    if (n > MODEL_LIST_BYTES_MAX)
        return -E2BIG;
    json = json_loadb(text, n, 0, NULL);
    bool empty = json_is_array(json_object_get(json, "data")) &&
                 json_array_size(json_object_get(json, "data")) == 0;
    json_array_foreach(json_object_get(json, "data"), i, card)
        take_base(&list, card, &root);
    json_array_foreach(json_object_get(json, "data"), i, card)
        take_adapter(&list, card);
    json_decref(json);
    if (!*list.model && !empty)
        return -EINVAL;
    *out = list;
    return 0;
}
