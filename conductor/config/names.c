/* Aliases and adapters of the models of engines. */
#include "conductor/config/names.h"

#include <stdio.h>
#include <string.h>

#include "base/json_fields.h"
#include "conductor/config/engines.h"
#include "conductor/config/internal.h"

bool engine_names_add(struct engine_names *names, const char *name)
{
    size_t n = strlen(name) + 1;

    if (names->n == ENGINE_NAMES_MAX || n > ENGINE_NAMES_BYTES - names->n_bytes)
        return false;
    memcpy(names->text + names->n_bytes, name, n);
    names->at[names->n++] = names->n_bytes;
    names->n_bytes = (uint16_t)(names->n_bytes + n);
    return true;
}

const char *engine_names_at(const struct engine_names *names, size_t i)
{
    return names->text + names->at[i];
}

bool engine_names_have(const struct engine_names *names, const char *name)
{
    for (uint8_t i = 0; i < names->n; i++)
        if (strcmp(engine_names_at(names, i), name) == 0)
            return true;
    return false;
}

void engine_names_read(struct fields *f, const struct fields_object *o,
                       const char *key, struct engine_names *out)
{
    const json_t *all = json_object_get(o->json, key);
    size_t n = json_array_size(all);

    if (!all)
        return;
    if (!json_is_array(all) || n > ENGINE_NAMES_MAX)
        fields_refuse_value(f, o, key, "an array of at most 32 names");
    *out = (struct engine_names){0};
    for (size_t i = 0; f->rc == 0 && i < n; i++) {
        const char *name = json_string_value(json_array_get(all, i));

        if (!name || !*name || strlen(name) >= ENGINE_MODEL_MAX ||
            option_check_name(name))
            fields_refuse_value(f, o, key,
                                "an array of names of 1 to 255 bytes, "
                                "printable, in UTF-8");
        else if (!engine_names_add(out, name))
            fields_refuse_value(f, o, key,
                                "names of at most 4064 bytes in all");
    }
}

bool engine_is_named(const struct engine_config *e, const char *name)
{
    const char *one;

    for (size_t i = 0; (one = engine_name(e, i)); i++)
        if (strcmp(one, name) == 0)
            return true;
    return false;
}

const char *engine_name_field(const struct engine_config *e, const char *name)
{
    return strcmp(e->model, name) == 0            ? "model"
           : engine_names_have(&e->aliases, name) ? "aliases"
                                                  : "adapters";
}

void engine_names_check(struct fields *f, const struct fields_object *o,
                        const struct engine_config *e)
{
    const char *name;

    for (size_t i = 1; (name = engine_name(e, i)); i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(engine_name(e, k), name) == 0)
                fields_refuse(
                    f, o->path, i <= e->aliases.n ? "aliases" : "adapters",
                    "\"%s\": comes twice, or is another name of the model",
                    name);
}

const char *engine_name(const struct engine_config *e, size_t i)
{
    if (i == 0)
        return e->model;
    if (--i < e->aliases.n)
        return engine_names_at(&e->aliases, i);
    i -= e->aliases.n;
    return i < e->adapters.n ? engine_names_at(&e->adapters, i) : NULL;
}

json_t *engine_names_json(const struct engine_names *names)
{
    json_t *all = json_array();

    for (uint8_t i = 0; i < names->n; i++)
        if (json_array_append_new(all,
                                  json_string(engine_names_at(names, i)))) {
            json_decref(all);
            return NULL;
        }
    return all;
}
