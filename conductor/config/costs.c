/* The member "worker_costs" of the configuration. */
#include "conductor/config/costs.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"

/* A name, or the beginning of one and a *. */
static bool pattern_ok(const char *text)
{
    for (const char *c = text; *c; c++)
        if (*c <= ' ' || *c > '~' || (*c == '*' && c[1]))
            return false;
    return *text != '\0';
}

static void read_entry(struct fields *f, const struct fields_object *o,
                       struct worker_cost *out)
{
    if (!json_is_object(o->json)) {
        fields_refuse_got(f, o->path, "", "an object", o->json);
        return;
    }
    fields_known(f, o, "workers cost_model");
    fields_text(f, o, "workers", out->workers, sizeof(out->workers), NULL);
    if (f->rc == 0 && !pattern_ok(out->workers))
        fields_refuse_value(f, o, "workers",
                            "printable ASCII without blanks, with a * at most "
                            "at its end");
    fields_text(f, o, "cost_model", out->cost_model, sizeof(out->cost_model),
                NULL);
    if (f->rc == 0 && !*out->cost_model)
        fields_refuse_value(f, o, "cost_model", "the name of a file");
}

void worker_cost_list_read(struct fields *f, const json_t *value,
                           struct worker_cost_list *out)
{
    size_t n = json_array_size(value);
    char path[40];

    *out = (struct worker_cost_list){0};
    if (!json_is_array(value) || n > WORKER_COSTS_MAX) {
        fields_refuse_got(f, "", "worker_costs", "an array of 0 to 256 objects",
                          value);
        return;
    }
    out->at = calloc(n + 1, sizeof(*out->at));
    if (!out->at) {
        fields_refuse(f, "", "worker_costs", "out of memory");
        return;
    }
    for (; out->n < n && f->rc == 0; out->n++) {
        snprintf(path, sizeof(path), "worker_costs[%zu].", out->n);
        read_entry(f,
                   &(struct fields_object){json_array_get(value, out->n), path},
                   &out->at[out->n]);
    }
    if (f->rc)
        worker_cost_list_free(out);
}

void worker_cost_list_free(struct worker_cost_list *list)
{
    free(list->at);
    *list = (struct worker_cost_list){0};
}

json_t *worker_cost_list_json(const struct worker_cost_list *list)
{
    json_t *all = json_array();

    for (size_t i = 0; i < list->n; i++)
        if (json_array_append_new(
                all, json_pack("{s:s, s:s}", "workers", list->at[i].workers,
                               "cost_model", list->at[i].cost_model))) {
            json_decref(all);
            return NULL;
        }
    return all;
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
    fputs("\n## worker_costs\n\n"
          "`worker_costs` is an array of objects, one for each kind of native "
          "worker whose\ncosts differ from `cost_model`, such as workers with "
          "another card. "
          "The first entry that\nmatches a worker's name applies; the other "
          "workers use "
          "`cost_model`, which must be set.\nEngines have a `cost_model` of "
          "their own in `engines`.\n\n"
          "| field | default | meaning |\n|---|---|---|\n"
          "| `workers` | required | the worker's `--name`; a `*` at the end "
          "matches any ending |\n"
          "| `cost_model` | required | file with the cost model of these "
          "workers, from conductor-fit |\n",
          out);
}
