/*
 * What an engine's /v1/models says: the model, its other names, and its LoRA
 * adapters. Pure.
 *
 * The model is the first that has no parent. Others without one and with its
 * root are aliases, those whose parent is one of these are adapters; what has
 * another root is another model, of which only the wanted one counts. Names
 * that are too long are not there, and what is beyond the bounds is counted.
 */
#ifndef CONDUCTOR_LINK_ENGINE_MODEL_LIST_H
#define CONDUCTOR_LINK_ENGINE_MODEL_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/config/names.h"

#define MODEL_LIST_BYTES_MAX (1u << 20)

/* What is looked for in it. */
struct model_wanted {
    const char *name; /* of any card; NULL: none */
    /* Other names that some card should have; NULL: none. */
    const struct engine_names *aliases, *adapters;
};

struct model_list {
    char model[ENGINE_MODEL_MAX]; /* "": none */
    struct engine_names aliases, adapters;
    uint32_t window_tokens;        /* max_model_len of the model; 0: not told */
    uint32_t wanted_window_tokens; /* likewise, of the wanted name's card */
    uint32_t n_dropped;            /* aliases and adapters that had no room */
    bool has_wanted;               /* any of all the names is the wanted one */
    uint32_t listed_aliases; /* a bit of each wanted one that a card has */
    uint32_t listed_adapters;
    const char *lacks; /* the first of the wanted aliases or adapters that no
                          card has, borrowed from there; NULL: none */
};

/*
 * Reads the n bytes of an answer.
 *   wanted  what is looked for in it; NULL: nothing.
 * Returns 0, also of an empty list; -EINVAL: it is no such list, or names no
 * model that could be ours; -E2BIG: over MODEL_LIST_BYTES_MAX. O(n), and cards
 * times names that are looked for.
 */
[[nodiscard]] int model_list_read(const char *text, size_t n,
                                  const struct model_wanted *wanted,
                                  struct model_list *out);

/* What is wrong with an answer that model_list_read() does not take; static.
 *   error  of keeping its bytes: -ENOBUFS: over MODEL_LIST_BYTES_MAX. */
const char *model_list_fault(int error);

/* The window of the wanted name, `name`: its own, or that of the model which it
 * is another name of; 0: it is not known. */
uint32_t model_list_window(const struct model_list *list, const char *name);

#endif
