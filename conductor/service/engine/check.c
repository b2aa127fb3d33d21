/* Checks the files that engines name, each alone and for a model together. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "conductor/service/models.h"
#include "predictor/cost_model_json.h"

/* Whether both have the same model and files, so that one check is enough. */
static bool alike(const struct engine_config *a, const struct engine_config *b)
{
    return strcmp(a->model, b->model) == 0 &&
           strcmp(a->api_key_file, b->api_key_file) == 0 &&
           strcmp(a->cost_model, b->cost_model) == 0 &&
           strcmp(a->tls_ca_file, b->tls_ca_file) == 0;
}

int engines_check(const struct engine_config *list, size_t n,
                  char err[CONFIG_ERROR_MAX])
{
    char why[CONFIG_ERROR_MAX];

    for (size_t i = 0; i < n; i++) {
        if ((i && alike(&list[i - 1], &list[i])) ||
            !engine_check(&list[i], why))
            continue;
        return error_say(err, CONFIG_ERROR_MAX, -EINVAL, "engines[%zu].%.480s",
                         i, why);
    }
    return 0;
}

/* An engine's entry and its index in the list. */
struct place {
    const struct engine_config *e;
    size_t at;
};

/* By model, then engines with a block size first. */
static int by_model(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = strcmp(x->e->model, y->e->model);

    if (!order)
        order = !x->e->block_tokens - !y->e->block_tokens;
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Whether one of n engines of a model has blocks of a size. */
static bool any_has(const struct place *all, size_t n, int64_t block_tokens)
{
    if (n > 0 && !all[0].e->block_tokens)
        return block_tokens == ENGINE_BLOCK_TOKENS;
    while (n > 0 && all[n - 1].e->block_tokens != block_tokens)
        n--;
    return n > 0;
}

/* Whether e's cost model was fitted for a block size that no engine of its
 * model (n) has. */
static bool is_of_others(const struct engine_config *e, const struct place *all,
                         size_t n, struct engine_clash *out)
{
    int64_t block_tokens = e->block_tokens          ? e->block_tokens
                           : all[0].e->block_tokens ? all[0].e->block_tokens
                                                    : ENGINE_BLOCK_TOKENS;
    struct cost_model cost;
    char why[CONFIG_ERROR_MAX];

    /* engine_check() reports a file that cannot be read. */
    if (cost_model_load_file(e->cost_model, &cost, why, sizeof(why)) ||
        !cost.block_tokens || any_has(all, n, cost.block_tokens))
        return false;
    out->key = "cost_model";
    snprintf(out->why, sizeof(out->why),
             "\"%.90s\": was fitted for blocks of %lld tokens, but "
             "block_tokens is %lld",
             e->cost_model, (long long)cost.block_tokens,
             (long long)block_tokens);
    return true;
}

/* Does engine_costs_clash() for the engines of one model. */
static bool costs_clash(const struct place *all, size_t n,
                        struct engine_clash *out)
{
    const struct engine_config *last = NULL; /* its file was read last */

    for (size_t i = 0; i < n; i++) {
        const struct engine_config *e = all[i].e;

        if (!*e->model || !*e->cost_model ||
            (last && strcmp(last->cost_model, e->cost_model) == 0))
            continue;
        last = e;
        out->at = all[i].at;
        if (is_of_others(e, all, n, out))
            return true;
    }
    return false;
}

bool engine_costs_clash(const struct engine_config *const *all, size_t n,
                        struct engine_clash *out)
{
    struct place *places = calloc(n + 1, sizeof(*places));
    bool clash = false;

    for (size_t i = 0; places && i < n; i++)
        places[i] = (struct place){all[i], i};
    if (places)
        qsort(places, n, sizeof(*places), by_model);
    for (size_t i = 0, end; places && !clash && i < n; i = end) {
        for (end = i + 1; end < n; end++)
            if (strcmp(places[end].e->model, places[i].e->model) != 0)
                break;
        clash = costs_clash(places + i, end - i, out);
    }
    free(places);
    return clash;
}

static int by_url(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = engine_url_compare(&x->e->url, &y->e->url);

    if (!order)
        order = strcmp(x->e->model, y->e->model);
    if (!order)
        order =
            (x->e->dp_rank > y->e->dp_rank) - (x->e->dp_rank < y->e->dp_rank);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Returns whether *told is this pair; else stores it there. */
static bool was_told(struct engine_pair *told, const char *a, const char *b)
{
    bool was = strcmp(told->names[0], a) == 0 && strcmp(told->names[1], b) == 0;

    snprintf(told->names[0], ENGINE_NAME_MAX, "%s", a);
    snprintf(told->names[1], ENGINE_NAME_MAX, "%s", b);
    return was;
}

void engine_urls_warn(const struct engine_config *const *all, size_t n,
                      struct engine_pair *told)
{
    struct place *places = calloc(n + 1, sizeof(*places));

    for (size_t i = 0; places && i < n; i++)
        places[i] = (struct place){all[i], i};
    if (places)
        qsort(places, n, sizeof(*places), by_url);
    for (size_t i = 1; places && i < n; i++) {
        const struct engine_config *a = places[i - 1].e, *b = places[i].e;

        if (!*a->url_text || engine_url_compare(&a->url, &b->url) != 0 ||
            strcmp(a->model, b->model) != 0 ||
            (a->dp_rank >= 0 && a->dp_rank != b->dp_rank))
            continue;
        if (!was_told(told, a->name, b->name))
            log_warn("engines %s and %s have the same model and the same url, "
                     "%s: they count as two servers",
                     a->name, b->name, a->url_text);
        break;
    }
    free(places);
}
