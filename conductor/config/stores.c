/* The member "stores" of the configuration: one table of fields drives
 * reading, dumping and the reference. */
#include "conductor/config/stores.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"
#include "conductor/config/internal.h"

#define TEXT(field)                       \
    offsetof(struct store_config, field), \
        sizeof(((struct store_config *)0)->field)
#define NUMBER(field) offsetof(struct store_config, field), 0

static const struct field {
    char name[32];
    size_t at;
    size_t size;            /* of a text; 0 = a number */
    int64_t most, fallback; /* of a number; fallback 0 = required */
    bool optional;          /* a text that may be missing */
    const char *help;
} table[] = {
    {"name", TEXT(name), 0, 0, false, "name in logs and metrics"},
    {"model", TEXT(model), 0, 0, false,
     "model whose engines read the store; a model has at most one"},
    {"kv_events", TEXT(kv_events), 0, 0, false,
     "ZMQ address at which the store publishes KV events: `tcp://host:port`"},
    {"kv_replay", TEXT(kv_replay), 0, 0, true,
     "address at which the store replays lost KV events: `tcp://host:port`"},
    {"kv_topic", TEXT(kv_topic), 0, 0, true,
     "read only KV events of topics with this prefix; without it, all"},
    {"tokens_per_s", NUMBER(tokens_per_s), INT64_C(1000000000), 0, false,
     "prompt tokens per second whose KV an engine can load from the store"},
    {"parts", NUMBER(parts), 4096, 1, false,
     "objects per block: one per tensor- and pipeline-parallel rank that "
     "stores its part"},
    {"max_blocks", NUMBER(max_blocks), 1 << 28, 1 << 20, false,
     "most objects that the conductor keeps track of, 32 bytes each"},
};

#define FIELDS (sizeof(table) / sizeof(table[0]))
#define BIND "kv_events_bind"

static char *text_at(struct store_config *s, const struct field *d)
{
    return (char *)s + d->at;
}

static int64_t *number_at(struct store_config *s, const struct field *d)
{
    return (int64_t *)(void *)((char *)s + d->at);
}

static void check_name(struct fields *f, const struct fields_object *o,
                       const char *name)
{
    for (const char *c = name; *c; c++)
        if (*c <= ' ' || *c > '~')
            fields_refuse_value(f, o, "name", "printable ASCII without blanks");
}

static void read_store(struct fields *f, const struct fields_object *o,
                       struct store_config *s)
{
    char known[(FIELDS + 1) * sizeof(table[0].name)] = BIND;
    size_t n = strlen(known);
    struct address at;

    if (!json_is_object(o->json)) {
        fields_refuse_got(f, o->path, "", "an object", o->json);
        return;
    }
    for (size_t i = 0; i < FIELDS; i++)
        n += (size_t)snprintf(known + n, sizeof(known) - n, " %s",
                              table[i].name);
    fields_known(f, o, known);
    for (size_t i = 0; i < FIELDS; i++) {
        const struct field *d = &table[i];

        if (!d->size)
            *number_at(s, d) = fields_integer(
                f, o, d->name, 1, d->most, d->fallback ? &d->fallback : NULL);
        else if (!d->optional || json_object_get(o->json, d->name))
            fields_text(f, o, d->name, text_at(s, d), d->size, NULL);
    }
    s->kv_events_bind = fields_bool(f, o, BIND, false);
    if (f->rc)
        return;
    check_name(f, o, s->name);
    endpoint_check(f, o, "kv_events", s->kv_events, s->kv_events_bind, 0, &at);
    if (*s->kv_replay)
        endpoint_check(f, o, "kv_replay", s->kv_replay, false, 0, &at);
}

bool store_listener(const struct store_config *s, struct address *out)
{
    return s->kv_events_bind && address_parse(s->kv_events + 6, out) == 0;
}

void store_list_read(struct fields *f, const json_t *value,
                     struct store_list *out)
{
    size_t n = json_array_size(value);
    char path[32];

    *out = (struct store_list){0};
    if (!json_is_array(value) || n == 0 || n > STORES_MAX) {
        fields_refuse_got(f, "", "stores", "an array of 1 to 256 objects",
                          value);
        return;
    }
    out->at = calloc(n, sizeof(*out->at));
    if (!out->at) {
        fields_refuse(f, "", "stores", "out of memory");
        return;
    }
    for (size_t i = 0; i < n && f->rc == 0; i++) {
        struct store_config *s = &out->at[i];

        snprintf(path, sizeof(path), "stores[%zu].", i);
        read_store(f, &(struct fields_object){json_array_get(value, i), path},
                   s);
        if (f->rc == 0 && store_of_model(out, s->model))
            fields_refuse(f, path, "model", "\"%s\": has a store already",
                          s->model);
        out->n++;
    }
    if (f->rc)
        store_list_free(out);
}

void store_list_free(struct store_list *list)
{
    free(list->at);
    *list = (struct store_list){0};
}

const struct store_config *store_of_model(const struct store_list *list,
                                          const char *model)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->at[i].model, model) == 0)
            return &list->at[i];
    return NULL;
}

static json_t *store_json(struct store_config *s)
{
    json_t *o = json_object();
    int bad = json_object_set_new(o, BIND, json_boolean(s->kv_events_bind));

    for (size_t i = 0; i < FIELDS; i++) {
        const struct field *d = &table[i];

        if (d->size && *text_at(s, d))
            bad |= json_object_set_new(o, d->name, json_string(text_at(s, d)));
        else if (!d->size)
            bad |=
                json_object_set_new(o, d->name, json_integer(*number_at(s, d)));
    }
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

json_t *store_list_json(const struct store_list *list)
{
    json_t *all = json_array();

    for (size_t i = 0; i < list->n; i++)
        if (json_array_append_new(all, store_json(&list->at[i]))) {
            json_decref(all);
            return NULL;
        }
    return all;
}

void store_list_reference(FILE *out)
{
    fputs(
        "\n## stores\n\n"
        "`stores` is an array of objects, one for each cache that all engines "
        "of a model\nread; [engines/stores.md](engines/stores.md) says how "
        "it is used.\n\n"
        "| field | default | meaning |\n|---|---|---|\n",
        out);
    for (size_t i = 0; i < FIELDS; i++) {
        const struct field *d = &table[i];

        fprintf(out, "| `%s` | ", d->name);
        if (d->fallback)
            fprintf(out, "`%lld`", (long long)d->fallback);
        else if (!d->optional)
            fputs("required", out);
        fprintf(out, " | %s |\n", d->help);
    }
    fputs("| `" BIND "` | `false` | `true`: `kv_events` is the conductor's own "
          "address, and the store connects to it |\n",
          out);
}
