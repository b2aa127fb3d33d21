/* The cost models of single instances. See costs.h. */
#include "conductor/service/engine/costs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "conductor/service/internal.h"
#include "predictor/cost_model_json.h"

struct cost_file {
    struct cost_model cost; /* must be first: instances point to it */
    struct cost_file *next;
    uint32_t users;
    char path[];
};

static struct cost_file *find(const struct service *s, const char *path,
                              const struct cost_model *cost)
{
    struct cost_file *f = s->costs.files;

    while (f && (strcmp(f->path, path) != 0 ||
                 memcmp(&f->cost, cost, sizeof(*cost)) != 0))
        f = f->next;
    return f;
}

const struct cost_model *costs_take(struct service *s, const char *path,
                                    char err[CONFIG_ERROR_MAX])
{
    char why[CONFIG_ERROR_MAX - 20];
    struct cost_model cost;
    struct cost_file *f;

    memset(&cost, 0, sizeof(cost)); /* padding too: they are compared */
    if (cost_model_load_file(path, &cost, why, sizeof(why)))
        return error_null(err, CONFIG_ERROR_MAX, "cost_model: %s", why);
    f = find(s, path, &cost);
    if (f) {
        f->users++;
        return &f->cost;
    }
    f = malloc(sizeof(*f) + strlen(path) + 1);
    if (!f)
        return error_null(err, CONFIG_ERROR_MAX, "out of memory");
    memcpy(&f->cost, &cost, sizeof(cost));
    f->users = 1;
    f->next = s->costs.files;
    s->costs.files = f;
    memcpy(f->path, path, strlen(path) + 1);
    return &f->cost;
}

void costs_drop(struct service *s, const struct cost_model *cost)
{
    struct cost_file **at = &s->costs.files;
    struct cost_file *f;

    while (*at && &(*at)->cost != cost)
        at = &(*at)->next;
    f = *at;
    if (!f || --f->users > 0)
        return;
    *at = f->next;
    free(f);
}

void costs_name(const struct service *s, uint32_t slot,
                char name[POOL_NAME_BYTES])
{
    const struct pool_instance *in = pool_at(s->pool, slot);
    const char *path = s->config.cost_model, *slash;

    for (const struct cost_file *f = s->costs.files; in && f; f = f->next)
        if (in->cost == &f->cost)
            path = f->path;
    slash = strrchr(path, '/');
    text_copy(name, POOL_NAME_BYTES, slash ? slash + 1 : path);
    for (char *c = name; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

const struct cost_model *costs_of(const struct service *s, uint32_t id)
{
    const struct pool_instance *in = pool_get(s->pool, id);

    return in && in->cost ? in->cost : &s->costs.model;
}

int costs_load_workers(struct service *s, char err[CONFIG_ERROR_MAX])
{
    const struct worker_cost_list *list = &s->config.worker_costs;
    char why[CONFIG_ERROR_MAX];

    s->costs.of_workers = calloc(list->n + 1, sizeof(*s->costs.of_workers));
    if (!s->costs.of_workers)
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL, "out of memory");
    for (size_t i = 0; i < list->n; i++) {
        s->costs.of_workers[i] = costs_take(s, list->at[i].cost_model, why);
        if (!s->costs.of_workers[i])
            return error_say(err, CONFIG_ERROR_MAX, -EINVAL,
                             "worker_costs[%zu].%.450s", i, why);
    }
    return 0;
}

void costs_set_worker(struct service *s, uint32_t id, const char *name)
{
    size_t i = worker_cost_of(&s->config.worker_costs, name);

    pool_set_cost(s->pool, id, s->costs.of_workers[i]);
}

void costs_replace(struct service *s, const struct cost_model *cost)
{
    const struct cost_model before = s->costs.model;

    s->costs.model = *cost;
    for (uint32_t i = 0; i < pool_slots(s->pool); i++) {
        const struct pool_instance *in = pool_at(s->pool, i);

        if (in && !in->cost)
            pool_predict_again(s->pool, in->id, &before, cost);
    }
}

void costs_fini(struct service *s)
{
    struct cost_file *f;

    while ((f = s->costs.files)) {
        s->costs.files = f->next;
        free(f);
    }
    free(s->costs.of_workers);
}
