/* The member "stores" of the configuration. */
#include "conductor/config/stores.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"
#include "conductor/config/entry.h"
#include "conductor/config/internal.h"

#define AT(field) ENTRY_AT(store_config, field)
#define TEXT(field) ENTRY_TEXT(store_config, field)

static const struct entry_field fields[] = {
    {"kv_events_bind", AT(kv_events_bind), 0, 0, "false",
     "`true`: `kv_events` is the conductor's own address, and the store "
     "connects to it",
     entry_no_yes},
    {"name", TEXT(name), NULL, "name in logs and metrics"},
    {"model", TEXT(model), NULL,
     "model whose engines read the store; a model has at most one"},
    {"kv_events", TEXT(kv_events), NULL,
     "ZMQ address at which the store publishes KV events: `tcp://host:port`"},
    {"kv_replay", TEXT(kv_replay), "",
     "address at which the store replays lost KV events: `tcp://host:port`"},
    {"kv_topic", TEXT(kv_topic), "",
     "read only KV events of topics with this prefix; without it, all"},
    {"tokens_per_s", AT(tokens_per_s), 0, INT64_C(1000000000), NULL,
     "prompt tokens per second whose KV an engine can load from the store"},
    {"parts", AT(parts), 0, 4096, "1",
     "objects per block: one per tensor- and pipeline-parallel rank that "
     "stores its part"},
    {"max_blocks", AT(max_blocks), 0, 1 << 28, "1048576",
     "most objects that the conductor keeps track of, 32 bytes each"},
};

static void check_name(struct fields *f, const struct fields_object *o,
                       const char *name)
{
    for (const char *c = name; *c; c++)
        if (*c <= ' ' || *c > '~')
            fields_refuse_value(f, o, "name", "printable ASCII without blanks");
}

static void check_store(struct fields *f, const struct fields_object *o,
                        void *all, size_t i)
{
    const struct store_config *s = (const struct store_config *)all + i;
    struct address at;

    if (f->rc)
        return;
    check_name(f, o, s->name);
    endpoint_check(f, o, "kv_events", s->kv_events, s->kv_events_bind, 0, &at);
    if (*s->kv_replay)
        endpoint_check(f, o, "kv_replay", s->kv_replay, false, 0, &at);
    if (store_of_model(&(struct store_list){all, i}, s->model))
        fields_refuse(f, o->path, "model", "\"%s\": has a store already",
                      s->model);
}

static const struct entry_table table = {
    .fields = fields,
    .n_fields = sizeof(fields) / sizeof(fields[0]),
    .bytes = sizeof(struct store_config),
    .list = "stores",
    .least = 1,
    .most = STORES_MAX,
    .check = check_store,
    .about =
        "`stores` is an array of objects, one for each cache that all "
        "engines of a model\nread; [engines/stores.md](../engines/stores.md) "
        "says how it is used.",
};

bool store_listener(const struct store_config *s, struct address *out)
{
    return s->kv_events_bind && address_parse(s->kv_events + 6, out) == 0;
}

void store_list_read(struct fields *f, const json_t *value,
                     struct store_list *out)
{
    out->at = entry_list_read(f, value, &table, &out->n);
    if (f->rc)
        *out = (struct store_list){0};
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

json_t *store_list_json(const struct store_list *list)
{
    return entry_list_json(&table, list->at, list->n);
}

void store_list_reference(FILE *out)
{
    struct entry_field shown[sizeof(fields) / sizeof(fields[0])];
    struct entry_table last = table;

    /* The first field of the JSON is the last one of the page. */
    memcpy(shown, fields + 1, sizeof(fields) - sizeof(fields[0]));
    shown[table.n_fields - 1] = fields[0];
    last.fields = shown;
    entry_reference(&last, out);
}
