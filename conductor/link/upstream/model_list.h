/*
 * Reads an engine's /v1/models: the model, its other names, and its LoRA
 * adapters. Pure.
 *
 * The model is the first card without a parent. Later cards without a parent
 * are aliases if they have its root; cards whose parent is the model or an
 * alias are adapters. A card with another root is another model: it counts only
 * if its name is the wanted one. Names that are too long are ignored; names
 * beyond the bounds are counted.
 */
#ifndef CONDUCTOR_LINK_UPSTREAM_MODEL_LIST_H
#define CONDUCTOR_LINK_UPSTREAM_MODEL_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/config/names.h"

#define MODEL_LIST_BYTES_MAX (1u << 20)

/* Names to look for in the list. */
struct model_wanted {
    const char *name; /* of any card; NULL = none */
    /* Names that cards should have; NULL = none. */
    const struct engine_names *aliases, *adapters;
};

struct model_list {
    char model[ENGINE_MODEL_MAX]; /* "" = none */
    struct engine_names aliases, adapters;
    uint32_t window_tokens; /* of the model (max_model_len); 0 = unknown */
    uint32_t wanted_window_tokens; /* of the card with the wanted name */
    uint32_t n_dropped;            /* aliases and adapters without room */
    bool has_wanted;               /* a card has the wanted name */
    uint32_t listed_aliases;       /* bit k: a card has wanted name k */
    uint32_t listed_adapters;
    const char *lacks; /* first wanted alias or adapter that no card has,
                          borrowed from model_wanted; NULL = none lacks */
};

/*
 * Reads the n bytes of an answer.
 *   wanted  names to look for; NULL = none.
 * Returns 0, also for an empty list; -EINVAL: not a list of models, or none
 * with a usable name; -E2BIG: over MODEL_LIST_BYTES_MAX. O(n), and cards times
 * wanted names.
 */
[[nodiscard]] int model_list_read(const char *text, size_t n,
                                  const struct model_wanted *wanted,
                                  struct model_list *out);

/* Returns why an answer could not be read, static.
 *   error  while receiving it; -ENOBUFS: over MODEL_LIST_BYTES_MAX. */
const char *model_list_fault(int error);

/* Returns the window in tokens of the wanted name, `name`: its card's, or the
 * model's if `name` is an alias or adapter; 0 = unknown. */
uint32_t model_list_window(const struct model_list *list, const char *name);

#endif
