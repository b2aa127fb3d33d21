/* Decides which changes of its configuration a running daemon takes. */
#include <string.h>

#include "conductor/config/internal.h"

static size_t bytes_of(const struct option_spec *o)
{
    switch (o->kind) {
    case OPTION_STRING:
        return o->size;
    case OPTION_CHOICE:
        return sizeof(uint8_t);
    case OPTION_U32:
        return sizeof(uint32_t);
    case OPTION_NUMBER:
        return sizeof(double);
    default:
        return sizeof(int64_t);
    }
}

/* Compares strings up to their ends. */
static bool equals(const struct option_spec *a, const struct option_spec *b)
{
    return a->kind == OPTION_STRING
               ? strcmp(a->value, b->value) == 0
               : memcmp(a->value, b->value, bytes_of(a)) == 0;
}

void config_names_add(char list[CONFIG_NAMES_MAX], const char *name)
{
    size_t n = strlen(list);

    snprintf(list + n, CONFIG_NAMES_MAX - n, "%s%s", n ? " " : "", name);
}

static bool same_entries(const void *a, size_t n_a, const void *b, size_t n_b,
                         size_t bytes)
{
    return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * bytes) == 0);
}

void config_compare(const struct config *old, const struct config *next,
                    struct config_changes *out)
{
    struct option_spec a[CONFIG_OPTIONS_MAX], b[CONFIG_OPTIONS_MAX];
    const struct option_table table = config_table((struct config *)old, a);

    config_table((struct config *)next, b);
    *out = (struct config_changes){{0}, {0}};
    for (size_t i = 0; i < table.count; i++)
        if (!equals(&a[i], &b[i]))
            config_names_add(a[i].reloads ? out->taken : out->kept, a[i].name);
    if (!same_entries(old->engines.at, old->engines.n, next->engines.at,
                      next->engines.n, sizeof(*old->engines.at)))
        config_names_add(out->taken, "engines");
    if (!same_entries(old->stores.at, old->stores.n, next->stores.at,
                      next->stores.n, sizeof(*old->stores.at)))
        config_names_add(out->kept, "stores");
    if (!same_entries(old->worker_costs.at, old->worker_costs.n,
                      next->worker_costs.at, next->worker_costs.n,
                      sizeof(*old->worker_costs.at)))
        config_names_add(out->kept, "worker_costs");
}

void config_take(struct config *into, const struct config *next)
{
    struct option_spec a[CONFIG_OPTIONS_MAX], b[CONFIG_OPTIONS_MAX];
    struct config from = *next;
    const struct option_table table = config_table(into, a);

    config_table(&from, b);
    for (size_t i = 0; i < table.count; i++)
        if (a[i].reloads)
            memcpy(a[i].value, b[i].value, bytes_of(&a[i]));
    into->engines = next->engines;
}
