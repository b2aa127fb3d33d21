/* The names of a model, which requests may use. */
#include <string.h>

#include "conductor/service/models.h"

/* Whether all engines of the model that get work know a name of it. */
static bool all_know(const struct service *s, const char *name)
{
    for (uint32_t i = 0; i < pool_slots(s->pool); i++)
        if (s->engines[i] && !s->engines[i]->leaving &&
            !engine_is_named(&s->engines[i]->own, name))
            return false;
    return true;
}

static void add_names(struct service *s, const struct engine_names *names,
                      bool adapters)
{
    for (uint8_t i = 0; i < names->n; i++) {
        struct service_name *next = &s->names[s->model.n_names];

        if (!all_know(s, names->at[i]))
            continue;
        next->adapter = adapters;
        memcpy(next->name, names->at[i], ENGINE_NAME_MAX);
        s->model.n_names++;
    }
}

void models_name_like(struct service *s, const struct engine_config *like)
{
    s->model.names = s->names;
    s->model.n_names = 0;
    add_names(s, &like->aliases, false);
    add_names(s, &like->adapters, true);
}

void models_name(struct service *s)
{
    for (uint32_t i = 0; i < pool_slots(s->pool); i++)
        if (s->engines[i] && !s->engines[i]->leaving) {
            models_name_like(s, &s->engines[i]->own);
            return;
        }
}
