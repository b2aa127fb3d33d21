/*
 * What an engine's /v1/models says: the model, its other names, and its LoRA
 * adapters. Pure.
 *
 * The model is the first that has no parent. Others without one and with its
 * root are aliases, those whose parent is one of these are adapters; what has
 * another root is another model. Names that are too long, and what is beyond
 * the bounds, are not there.
 */
#ifndef CONDUCTOR_LINK_ENGINE_MODEL_LIST_H
#define CONDUCTOR_LINK_ENGINE_MODEL_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conductor/config_names.h"

#define MODEL_LIST_BYTES_MAX (1u << 20)

struct model_list {
    char model[ENGINE_NAME_MAX]; /* "": none */
    struct engine_names aliases, adapters;
    struct engine_names others; /* models of their own */
    uint32_t window_tokens;     /* max_model_len of the model; 0: not told */
};

/* Reads the n bytes of an answer. Returns 0, also of an empty list; -EINVAL: it
 * is no such list, or names no model that could be ours; -E2BIG: over
 * MODEL_LIST_BYTES_MAX. */
[[nodiscard]] int model_list_read(const char *text, size_t n,
                                  struct model_list *out);

/* Whether requests may name the engine's model, or one of its models, so. */
bool model_list_has(const struct model_list *list, const char *name);

/* The window of a model of that name; 0: it is not known. */
uint32_t model_list_window(const struct model_list *list, const char *name);

#endif
