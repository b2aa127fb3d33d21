/* See facts.h. */
#include "tools/replay/simulate/facts.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "traces/id_map.h"

const uint64_t replay_ranks[REPLAY_RANKS] = {1, 10, 100, 1000, 10000};

/* A block id, numbered by first appearance. */
struct counted {
    uint64_t id;
    uint32_t references;
    uint32_t order;
};

struct replay_counter {
    struct id_map *places; /* id -> index in ids */
    struct counted *ids;   /* (capacity) */
    size_t n;
    size_t capacity;
    bool full;
    uint32_t block_tokens;
    bool with_partial;
    uint64_t input_tokens;
    uint64_t reused_tokens;
};

struct replay_counter *replay_counter_new(uint32_t block_tokens,
                                          bool with_partial)
{
    struct replay_counter *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->block_tokens = block_tokens;
    c->with_partial = with_partial;
    c->places = id_map_new(REPLAY_FACTS_IDS_MAX);
    if (!c->places) {
        free(c);
        return NULL;
    }
    return c;
}

void replay_counter_free(struct replay_counter *counter)
{
    if (counter) {
        id_map_free(counter->places);
        free(counter->ids);
        free(counter);
    }
}

static int add_id(struct replay_counter *c, uint64_t id)
{
    if (array_reserve(c->ids, c->capacity, c->n + 1))
        return -ENOMEM;
    int rc = id_map_put(c->places, id, c->n);
    if (rc == -ENOSPC) {
        c->full = true;
        return 0;
    }
    if (rc == 0) {
        c->ids[c->n] = (struct counted){id, 1, (uint32_t)c->n};
        c->n++;
    }
    return rc;
}

int replay_counter_add(struct replay_counter *counter,
                       const struct trace_request *request)
{
    struct replay_counter *c = counter;
    size_t usable = request->input_tokens / c->block_tokens;
    /* the prompt's last token, so its block, is always computed */
    size_t reusable = (request->input_tokens - 1) / c->block_tokens;

    if (c->with_partial || usable > request->block_count)
        reusable = usable = request->block_count;
    size_t hits = 0;
    bool hit = true;
    for (size_t i = 0; i < usable; i++)
        id_map_prefetch(c->places, request->hash_ids[i]);
    for (size_t i = 0; i < usable; i++) {
        const uint64_t *place = id_map_get(c->places, request->hash_ids[i]);

        hit = hit && place;
        hits += hit && i < reusable ? 1 : 0;
        if (place) {
            c->ids[*place].references++;
            continue;
        }
        int rc = add_id(c, request->hash_ids[i]);
        if (rc != 0)
            return rc;
    }
    uint64_t reused = (uint64_t)hits * c->block_tokens;
    c->input_tokens += request->input_tokens;
    c->reused_tokens +=
        reused < request->input_tokens ? reused : request->input_tokens;
    return 0;
}

static int compare_most_first(const void *a, const void *b)
{
    const struct counted *x = a;
    const struct counted *y = b;

    if (x->references != y->references)
        return x->references < y->references ? 1 : -1;
    return (x->order > y->order) - (x->order < y->order);
}

int replay_counter_facts(const struct replay_counter *counter,
                         struct replay_facts *facts)
{
    struct counted *sorted = calloc(counter->n + 1, sizeof sorted[0]);

    if (!sorted)
        return -ENOMEM;
    for (size_t i = 0; i < counter->n; i++)
        sorted[i] = counter->ids[i];
    qsort(sorted, counter->n, sizeof sorted[0], compare_most_first);
    *facts = (struct replay_facts){.best_possible_hit_ratio = -1.0};
    if (!counter->full && counter->input_tokens > 0) {
        facts->best_possible_hit_ratio =
            (double)counter->reused_tokens / (double)counter->input_tokens;
    }
    for (size_t i = 0; i < REPLAY_RANKS && replay_ranks[i] <= counter->n; i++) {
        facts->ranked[i] = sorted[replay_ranks[i] - 1].id;
        facts->references[i] = sorted[replay_ranks[i] - 1].references;
        facts->n_ranked = i + 1;
    }
    free(sorted);
    return 0;
}
