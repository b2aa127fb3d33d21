/* conductorctl instances: a line per instance. */
#include <stdio.h>

#include "tools/ctl/ctl.h"
#include "tools/ctl/table.h"

static const char *kv_of(const json_t *instance, char *text, size_t size)
{
    double used =
        json_number_value(json_object_get(instance, "kv_used_tokens"));
    double all =
        json_number_value(json_object_get(instance, "kv_capacity_tokens"));

    if (all > 0.0)
        snprintf(text, size, "%.0f%%", 100.0 * used / all);
    else
        snprintf(text, size, "-");
    return text;
}

static const struct {
    const char *title, *key;
    /* Formats the column; NULL = print the member `key`. */
    const char *(*show)(const json_t *instance, char *text, size_t size);
} columns[] = {
    {"NAME", "name", NULL},
    {"MODEL", "model", NULL},
    {"KIND", "kind", NULL},
    {"ROLE", "role", NULL},
    {"STATE", .show = ctl_state},
    {"PREFILLS", "prefills", NULL},
    {"DECODES", "decodes", NULL},
    {"KV", .show = kv_of},
    {"BLOCKS", "blocks", NULL},
    {"OBSERVED/PREDICTED", "prefill_ratio", NULL},
    {"LINK-MB/S", "link_mb_per_s", NULL},
};

#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

int ctl_instances(struct ctl *ctl)
{
    struct table table = {.columns = COLUMNS};
    char text[256];
    json_t *json;
    const json_t *one;
    size_t i;

    if (ctl_ask(ctl, CTL_GET, "/admin/instances", &json))
        return 1;
    for (size_t c = 0; c < COLUMNS; c++)
        table_add(&table, columns[c].title);
    json_array_foreach(json_object_get(json, "instances"), i, one)
    {
        for (size_t c = 0; c < COLUMNS; c++)
            table_add(&table,
                      columns[c].show
                          ? columns[c].show(one, text, sizeof text)
                          : ctl_show(one, columns[c].key, text, sizeof text));
    }
    json_decref(json);
    return table_print(&table);
}
