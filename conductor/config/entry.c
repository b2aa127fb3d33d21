/* See entry.h. */
#include "conductor/config/entry.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"
#include "conductor/config/names.h"

#define FIELDS_MAX 32

const char *const entry_no_yes[] = {"false", "true", NULL};

/* The value that stands for a number that is not given. */
static int64_t untold(const struct entry_field *d)
{
    return d->zero ? -1 : 0;
}

static int64_t *number_at(const void *entry, const struct entry_field *d)
{
    return (int64_t *)(uintptr_t)((const char *)entry + d->at);
}

static void read_word(struct fields *f, const struct fields_object *o,
                      const struct entry_field *d, uint8_t *word)
{
    char text[32], all[96] = "";

    if (d->words == entry_no_yes) {
        *word = fields_bool(f, o, d->name, false);
        return;
    }
    fields_text(f, o, d->name, text, sizeof(text), d->fallback);
    for (*word = 0; d->words[*word]; ++*word) {
        if (strcmp(text, d->words[*word]) == 0)
            return;
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s",
                 *word ? " or " : "", d->words[*word]);
    }
    *word = 0;
    fields_refuse_value(f, o, d->name, all);
}

static void read_field(struct fields *f, const struct fields_object *o,
                       const struct entry_field *d, void *entry)
{
    int64_t none = d->fallback && *d->fallback ? strtoll(d->fallback, NULL, 10)
                                               : untold(d);
    char *at = (char *)entry + d->at;

    if (d->names)
        engine_names_read(f, o, d->name, (struct engine_names *)(void *)at);
    else if (d->words)
        read_word(f, o, d, (uint8_t *)at);
    else if (d->most)
        *number_at(entry, d) = fields_integer(
            f, o, d->name, untold(d) + 1, d->most, d->fallback ? &none : NULL);
    else if (d->fallback && !json_object_get(o->json, d->name))
        snprintf(at, d->size, "%s", d->fallback);
    else
        fields_text(f, o, d->name, at, d->size, d->fallback);
}

/* Names the field that an unknown one of one or two letters begins:
 * fields_known() compares longer ones. */
static void suggest(struct fields *f, const struct fields_object *o,
                    const struct entry_table *t)
{
    const char *key, *meant = NULL;
    json_t *value;

    json_object_foreach(o->json, key, value)
    {
        size_t n = strlen(key), k = 0;

        if (n == 0 || n > 2)
            continue;
        for (meant = NULL; k < t->n_fields; k++) {
            if (strcmp(t->fields[k].name, key) == 0)
                break;
            if (strncmp(t->fields[k].name, key, n) == 0)
                meant = t->fields[k].name;
        }
        if (meant && k == t->n_fields)
            fields_refuse(f, o->path, key, "no such field: did you mean %s?",
                          meant);
    }
}

void entry_read(struct fields *f, const struct fields_object *o,
                const struct entry_table *t, void *all, size_t i)
{
    char known[FIELDS_MAX * sizeof(t->fields->name)] = "";
    void *entry = (char *)all + i * t->bytes;
    size_t n = 0;

    memset(entry, 0, t->bytes);
    if (!json_is_object(o->json)) {
        fields_refuse_got(f, o->path, "", "an object", o->json);
        return;
    }
    for (size_t k = 0; k < t->n_fields; k++)
        n += (size_t)snprintf(known + n, sizeof(known) - n, "%s ",
                              t->fields[k].name);
    suggest(f, o, t);
    fields_known(f, o, known);
    for (size_t k = 0; k < t->n_fields; k++)
        read_field(f, o, &t->fields[k], entry);
    t->check(f, o, all, i);
}

void *entry_list_read(struct fields *f, const json_t *value,
                      const struct entry_table *t, size_t *n)
{
    char text[64];
    void *all;

    *n = json_array_size(value);
    if (!json_is_array(value) || *n < t->least || *n > t->most) {
        snprintf(text, sizeof(text), "an array of %zu to %zu objects", t->least,
                 t->most);
        fields_refuse_got(f, "", t->list, text, value);
        return NULL;
    }
    all = calloc(*n + 1, t->bytes);
    if (!all)
        fields_refuse(f, "", t->list, "out of memory");
    for (size_t i = 0; i < *n && f->rc == 0; i++) {
        snprintf(text, sizeof(text), "%s[%zu].", t->list, i);
        entry_read(f, &(struct fields_object){json_array_get(value, i), text},
                   t, all, i);
    }
    if (f->rc == 0)
        return all;
    free(all);
    return NULL;
}

bool entry_equal(const struct entry_table *t, const void *a, const void *b)
{
    for (size_t i = 0; i < t->n_fields; i++) {
        const struct entry_field *d = &t->fields[i];
        const char *x = (const char *)a + d->at, *y = (const char *)b + d->at;

        if (d->names   ? memcmp(x, y, sizeof(struct engine_names)) != 0
            : d->words ? *x != *y
            : d->most  ? memcmp(x, y, sizeof(int64_t)) != 0
                       : strcmp(x, y) != 0)
            return false;
    }
    return true;
}

/* Writes a field that has a value. Returns 0 or -1: out of memory. */
static int put_field(json_t *o, const struct entry_field *d, const void *entry)
{
    const char *at = (const char *)entry + d->at;
    const struct engine_names *names = (const void *)at;

    if (d->names ? names->n == 0
                 : !d->words && (d->most ? *number_at(entry, d) <= untold(d)
                                         : *at == '\0'))
        return 0;
    return json_object_set_new(o, d->name,
                               d->names ? engine_names_json(names)
                               : d->words == entry_no_yes ? json_boolean(*at)
                               : d->words ? json_string(d->words[(uint8_t)*at])
                               : d->most  ? json_integer(*number_at(entry, d))
                                          : json_string(at));
}

json_t *entry_list_json(const struct entry_table *t, const void *all, size_t n)
{
    json_t *array = json_array();
    int bad = 0;

    for (size_t i = 0; i < n && !bad; i++) {
        json_t *o = json_object();

        for (size_t k = 0; k < t->n_fields; k++)
            bad |=
                put_field(o, &t->fields[k], (const char *)all + i * t->bytes);
        bad |= json_array_append_new(array, o);
    }
    if (!bad)
        return array;
    json_decref(array);
    return NULL;
}

void entry_reference(const struct entry_table *t, FILE *out)
{
    fprintf(out,
            "\n## %s\n\n%s\n\n| field | default | meaning |\n|---|---|---|\n",
            t->list, t->about);
    for (size_t i = 0; i < t->n_fields; i++) {
        const struct entry_field *d = &t->fields[i];
        const char *quote = d->fallback && *d->fallback ? "`" : "";

        fprintf(out, "| `%s` | %s%s%s | %s |\n", d->name, quote,
                d->fallback ? d->fallback : "required", quote, d->help);
    }
}
