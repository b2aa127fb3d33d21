/* Other names by which requests ask for an engine's model: aliases, and LoRA
 * adapters. Each engine has its own names; a name leads to one model. */
#ifndef CONDUCTOR_CONFIG_NAMES_H
#define CONDUCTOR_CONFIG_NAMES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENGINE_NAME_MAX 64   /* of an engine */
#define ENGINE_MODEL_MAX 256 /* of a model: a path or a Hugging Face name */
#define ENGINE_NAMES_MAX 32
#define ENGINE_NAMES_BYTES 4096u

struct engine_config;
struct fields;
struct fields_object;

/* Names one behind the other, each with its NUL; zeros behind the last. */
struct engine_names {
    char text[ENGINE_NAMES_BYTES];
    uint16_t at[ENGINE_NAMES_MAX]; /* (n): where each begins */
    uint16_t n_bytes;
    uint8_t n;
};

/* Adds a name of 1 to ENGINE_MODEL_MAX - 1 bytes. Returns false, and adds
 * nothing, beyond ENGINE_NAMES_MAX names or ENGINE_NAMES_BYTES. */
[[nodiscard]] bool engine_names_add(struct engine_names *names,
                                    const char *name);

/* Returns the i-th of n names. */
const char *engine_names_at(const struct engine_names *names, size_t i);

/* Returns whether `name` is among the names. */
bool engine_names_have(const struct engine_names *names, const char *name);

/* Reads an array of names, if there is one under `key`. Errors go to f. */
void engine_names_read(struct fields *f, const struct fields_object *o,
                       const char *key, struct engine_names *out);

/* Refuses an engine's names that occur twice. */
void engine_names_check(struct fields *f, const struct fields_object *o,
                        const struct engine_config *e);

/* The i-th name of its model: the model's own, then the others; NULL behind the
 * last. */
const char *engine_name(const struct engine_config *e, size_t i);

/* The field that holds `name`: "model", "aliases" or "adapters". */
const char *engine_name_field(const struct engine_config *e, const char *name);

/* Returns whether requests may use `name` for the engine's model. */
bool engine_is_named(const struct engine_config *e, const char *name);

/* Returns the names as an array, owned by the caller; NULL: out of memory. */
json_t *engine_names_json(const struct engine_names *names);

#endif
