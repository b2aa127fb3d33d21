/* Whether the entries of "engines" make sense together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/config/engines.h"
#include "conductor/core/index/block_cut.h"

/* An entry and its index. */
struct place {
    const struct engine_config *e;
    size_t at;
};

static int by_name(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = strcmp(x->e->name, y->e->name);

    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static int by_model(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = strcmp(x->e->model, y->e->model);

    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static bool same_names(struct place *all, size_t n, struct engine_clash *out)
{
    qsort(all, n, sizeof(*all), by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(all[i - 1].e->name, all[i].e->name) == 0) {
            out->at = all[i].at;
            out->key = "name";
            snprintf(out->why, sizeof(out->why),
                     "\"%s\": is the name of another engine, too",
                     all[i].e->name);
            return true;
        }
    return false;
}

bool engine_listener(const struct engine_config *e, struct address *out,
                     unsigned *more)
{
    if (!e->kv_events_bind || e->index == ENGINE_INDEX_PREDICTED ||
        strlen(e->kv_events) < 6 || address_parse(e->kv_events + 6, out))
        return false;
    out->port = (uint16_t)(out->port + (e->dp_rank > 0 ? e->dp_rank : 0));
    *more = e->dp_ranks ? (unsigned)e->dp_ranks - 1 : 0;
    return true;
}

/* By port; entries without one come first. */
static int by_events(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    struct address p = {.port = 0}, q = {.port = 0};
    unsigned more;

    /* Without a listener the port stays 0. */
    (void)!engine_listener(x->e, &p, &more);
    (void)!engine_listener(y->e, &q, &more);
    return p.port != q.port ? p.port - q.port
                            : (x->at > y->at) - (x->at < y->at);
}

static bool meet_at(const struct place *x, const struct place *y,
                    struct engine_clash *out)
{
    const struct place *late = x->at > y->at ? x : y;
    const struct place *early = late == x ? y : x;

    out->at = late->at;
    out->key = "kv_events";
    snprintf(out->why, sizeof(out->why),
             "\"%.80s\": engine %s listens there, too", late->e->kv_events,
             early->e->name);
    return true;
}

/* Whether two engines connect to one address of the conductor. */
static bool same_events(struct place *all, size_t n, struct engine_clash *out)
{
    struct address a, b;
    unsigned more, b_more;

    qsort(all, n, sizeof(*all), by_events);
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1;
             k < n && engine_listener(all[i].e, &a, &more) &&
             engine_listener(all[k].e, &b, &b_more) && b.port <= a.port + more;
             k++)
            if (address_meet(&a, more, &b, b_more))
                return meet_at(&all[i], &all[k], out);
    return false;
}

static uint32_t size_of(const struct place *p)
{
    return (uint32_t)p->e->block_tokens;
}

/* Whether blocks of two sizes, 0 = any, can be cut for one index. */
static bool cut_together(uint32_t a, uint32_t b)
{
    uint32_t index = block_cut_join(a, b);

    return !a || !b || (index && block_cuts(a, index) && block_cuts(b, index));
}

/* Reports that `one` and another of n engines have sizes that fit no index. */
static bool blame(const struct place *all, size_t n, size_t one,
                  struct engine_clash *out)
{
    size_t k = 0;

    while (k < n && cut_together(size_of(&all[k]), size_of(&all[one])))
        k++;
    k = k < n ? k : 0;
    const struct place *late = &all[k > one ? k : one];
    const struct place *early = &all[k > one ? one : k];
    out->at = late->at;
    out->key = "block_tokens";
    snprintf(out->why, sizeof(out->why),
             "%u: no block size of the index fits both this size and the %u of "
             "engine %s",
             size_of(late), size_of(early), early->e->name);
    return true;
}

/* Whether the blocks of n engines of one model cannot be cut for one index. */
static bool uncut(const struct place *all, size_t n, struct engine_clash *out)
{
    uint32_t index = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t before = index;

        index = block_cut_join(before, size_of(&all[i]));
        if (before && !index)
            return blame(all, n, i, out);
    }
    for (size_t i = 0; i < n; i++)
        if (size_of(&all[i]) && !block_cuts(size_of(&all[i]), index))
            return blame(all, n, i, out);
    return false;
}

static bool other_blocks(struct place *all, size_t n, struct engine_clash *out)
{
    qsort(all, n, sizeof(*all), by_model);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n; end++)
            if (strcmp(all[end].e->model, all[i].e->model) != 0)
                break;
        if (uncut(all + i, end - i, out))
            return true;
    }
    return false;
}

/* A name of a model. */
struct named {
    const char *name;
    const struct place *of;
};

static int by_text(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : (x->of->at > y->of->at) - (x->of->at < y->of->at);
}

static bool find_shared(struct named *names, size_t n, struct engine_clash *out)
{
    qsort(names, n, sizeof(*names), by_text);
    for (size_t i = 1; i < n; i++) {
        const struct place *a = names[i - 1].of, *b = names[i].of;

        if (strcmp(names[i - 1].name, names[i].name) != 0 ||
            strcmp(a->e->model, b->e->model) == 0)
            continue;
        out->at = a->at > b->at ? a->at : b->at;
        out->key = engine_name_field((a->at > b->at ? a : b)->e, names[i].name);
        snprintf(out->why, sizeof(out->why),
                 "\"%s\": names the model of engine %s, too", names[i].name,
                 (a->at > b->at ? b : a)->e->name);
        return true;
    }
    return false;
}

/* Whether a name leads to two models. */
static bool shared_names(const struct place *all, size_t n,
                         struct engine_clash *out)
{
    struct named *names;
    size_t n_names = 0, most = 0;
    bool shared;

    for (size_t i = 0; i < n; i++)
        most += 1u + all[i].e->aliases.n + all[i].e->adapters.n;
    names = calloc(most + 1, sizeof(*names));

    for (size_t i = 0; names && i < n; i++) {
        const char *name;

        for (size_t k = 0; (name = engine_name(all[i].e, k)); k++)
            names[n_names++] = (struct named){name, &all[i]};
    }
    shared = names && find_shared(names, n_names, out);
    free(names);
    return shared;
}

bool engine_configs_clash(const struct engine_config *const *all, size_t n,
                          struct engine_clash *out)
{
    struct place *places = calloc(n + 1, sizeof(*places));
    size_t known = 0;
    bool clash;

    for (size_t i = 0; places && i < n; i++)
        places[i] = (struct place){all[i], i};
    clash =
        places && (same_names(places, n, out) || same_events(places, n, out));
    for (size_t i = 0; places && i < n; i++)
        places[i] = (struct place){all[i], i};
    /* Entries without a model are not known yet. */
    for (size_t i = 0; places && i < n; i++)
        if (*places[i].e->model)
            places[known++] = places[i];
    clash = clash || (places && (other_blocks(places, known, out) ||
                                 shared_names(places, known, out)));
    free(places);
    return clash;
}
