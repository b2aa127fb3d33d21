/* See bootstrap.h. */
#include "conductor/link/upstream/bootstrap.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const char *read_rank(const json_t *ranks, int64_t rank,
                             char id[BOOTSTRAP_ID_MAX])
{
    const json_t *entry;
    const char *told;
    char name[24];

    snprintf(name, sizeof(name), "%lld", (long long)rank);
    if (!json_is_object(ranks))
        return "no ranks";
    if (json_object_size(ranks) == 0)
        return "no worker yet";
    if (rank < 0 && json_object_size(ranks) > 1)
        return "several ranks: each needs an entry with dp_rank";
    entry = rank < 0 ? json_object_iter_value(json_object_iter((json_t *)ranks))
                     : json_object_get(ranks, name);
    told = json_string_value(json_object_get(entry, "engine_id"));
    if (!told || !*told || strlen(told) >= BOOTSTRAP_ID_MAX)
        return "no id for the engine's rank";
    memcpy(id, told, strlen(told) + 1);
    return NULL;
}

const char *bootstrap_read(const char *text, size_t n, int64_t rank,
                           char id[BOOTSTRAP_ID_MAX])
{
    json_t *ranks = json_loadb(text ? text : "", n, 0, NULL);
    const char *why = read_rank(ranks, rank, id);

    json_decref(ranks);
    return why;
}
