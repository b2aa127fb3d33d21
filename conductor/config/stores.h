/*
 * The stores of a configuration: caches of KV blocks that all engines of a
 * model read, and that tell what they hold by KV events.
 */
#ifndef CONDUCTOR_CONFIG_STORES_H
#define CONDUCTOR_CONFIG_STORES_H

#include "conductor/config/engines.h"

#define STORES_MAX 256

/* One store; validated on reading. */
struct store_config {
    char name[ENGINE_NAME_MAX];
    char model[ENGINE_MODEL_MAX];
    char kv_events[ENGINE_PATH_MAX];
    bool kv_events_bind;
    char kv_replay[ENGINE_PATH_MAX]; /* "": none */
    char kv_topic[ENGINE_NAME_MAX];
    int64_t tokens_per_s; /* prompt tokens that an engine loads */
    int64_t parts;        /* objects that make a block */
    int64_t max_blocks;
};

/* Owned by the configuration that was read; copies of it share the array. */
struct store_list {
    struct store_config *at; /* (n) */
    size_t n;
};

/* Reads the member "stores" of a configuration's file into *out, owned by the
 * caller. Errors go to f and name field and value; then *out is empty. */
void store_list_read(struct fields *f, const json_t *value,
                     struct store_list *out);

/* Frees it and makes it empty. */
void store_list_free(struct store_list *list);

/* The array as JSON that store_list_read() reads back to the same; NULL: out
 * of memory. */
json_t *store_list_json(const struct store_list *list);

/* Writes the conductor's address that a store connects to with its KV events.
 * Returns false, *out untouched, if there is none. */
bool store_listener(const struct store_config *s, struct address *out);

/* The store of a model, or NULL. */
const struct store_config *store_of_model(const struct store_list *list,
                                          const char *model);

/* Writes what the fields mean as a Markdown section. */
void store_list_reference(FILE *out);

#endif
