/* The member "worker_costs" of the configuration. */
#include "conductor/config/costs.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"
#include "conductor/config/entry.h"

/* A name, or the beginning of one and a *. */
static bool pattern_ok(const char *text)
{
    for (const char *c = text; *c; c++)
        if (*c <= ' ' || *c > '~' || (*c == '*' && c[1]))
            return false;
    return *text != '\0';
}

static void check_cost(struct fields *f, const struct fields_object *o,
                       void *all, size_t i)
{
    const struct worker_cost *c = (const struct worker_cost *)all + i;

    if (f->rc == 0 && !pattern_ok(c->workers))
        fields_refuse_value(f, o, "workers",
                            "printable ASCII without blanks, with a * at most "
                            "at its end");
}

static const struct entry_field fields[] = {
    {"workers", ENTRY_TEXT(worker_cost, workers), NULL,
     "the worker's `--name`; a `*` at the end matches any ending"},
    {"cost_model", ENTRY_TEXT(worker_cost, cost_model), NULL,
     "file with the cost model of these workers, from conductor-fit"},
};

static const struct entry_table table = {
    .fields = fields,
    .n_fields = sizeof(fields) / sizeof(fields[0]),
    .bytes = sizeof(struct worker_cost),
    .list = "worker_costs",
    .most = WORKER_COSTS_MAX,
    .check = check_cost,
    .about =
        "`worker_costs` is an array of objects, one for each kind of native "
        "worker whose\ncosts differ from `cost_model`, such as workers with "
        "another card. The first entry that\nmatches a worker's name applies; "
        "the other workers use `cost_model`, which must be set.\nEngines have "
        "a `cost_model` of their own in `engines`.",
};

void worker_cost_list_read(struct fields *f, const json_t *value,
                           struct worker_cost_list *out)
{
    out->at = entry_list_read(f, value, &table, &out->n);
    if (f->rc)
        *out = (struct worker_cost_list){0};
}

void worker_cost_list_free(struct worker_cost_list *list)
{
    free(list->at);
    *list = (struct worker_cost_list){0};
}

json_t *worker_cost_list_json(const struct worker_cost_list *list)
{
    return entry_list_json(&table, list->at, list->n);
}

static bool fits(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);

    return n > 0 && pattern[n - 1] == '*' ? strncmp(pattern, name, n - 1) == 0
                                          : strcmp(pattern, name) == 0;
}

size_t worker_cost_of(const struct worker_cost_list *list, const char *name)
{
    size_t i = 0;

    while (i < list->n && !fits(list->at[i].workers, name))
        i++;
    return i;
}

void worker_cost_list_reference(FILE *out)
{
    entry_reference(&table, out);
}
