/*
 * Other names under which requests ask for a model of engines: aliases, and
 * LoRA adapters. A name leads to one model; each engine has its own.
 */
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

/* They stand one behind the other, each with its NUL; what is behind the last
 * is zero. */
struct engine_names {
    char text[ENGINE_NAMES_BYTES];
    uint16_t at[ENGINE_NAMES_MAX]; /* (n): where each begins */
    uint16_t n_bytes;
    uint8_t n;
};

/* Adds one of 1 to ENGINE_MODEL_MAX - 1 bytes. Returns false, and adds nothing,
 * where there is no room: ENGINE_NAMES_MAX or ENGINE_NAMES_BYTES. */
[[nodiscard]] bool engine_names_add(struct engine_names *names,
                                    const char *name);

/* The i-th of n. */
const char *engine_names_at(const struct engine_names *names, size_t i);

/* Whether it is one of them. */
bool engine_names_have(const struct engine_names *names, const char *name);

/* Reads an array of names, if there is one under `key`. Errors go to f. */
void engine_names_read(struct fields *f, const struct fields_object *o,
                       const char *key, struct engine_names *out);

/* Refuses names of an engine that are not told apart. */
void engine_names_check(struct fields *f, const struct fields_object *o,
                        const struct engine_config *e);

/* The i-th name of its model: the model's own, then the others; NULL behind the
 * last. */
const char *engine_name(const struct engine_config *e, size_t i);

/* The field that holds one of them: "model", "aliases" or "adapters". */
const char *engine_name_field(const struct engine_config *e, const char *name);

/* Whether requests for that engine's model may name it so. */
bool engine_is_named(const struct engine_config *e, const char *name);

/* Them as an array, owned by the caller; NULL: there are none. */
json_t *engine_names_json(const struct engine_names *names);

#endif
