/*
 * The aliases and LoRA adapters of a model, each with its engines, which load
 * and unload adapters while they run. A request with such a name goes to these
 * engines only.
 *
 *   A name that no engine has any more stays known, so that requests with it
 *   get a clear error, until its place is needed and no request uses it.
 */
#ifndef CONDUCTOR_SERVICE_NAME_SETS_H
#define CONDUCTOR_SERVICE_NAME_SETS_H

#include "conductor/config/names.h"
#include "conductor/service/service.h"

/* Most names of one model. */
#define NAME_SETS_MAX 4096u

struct name_set {
    struct service_name name;
    uint32_t n_requests; /* live requests with this name */
    uint64_t lost;       /* sets->n_lost when its last engine lost the name */
    uint32_t told;       /* name.n_engines, as last logged */
    bool told_all;       /* all engines had the name when last logged */
    bool changed;        /* its engines have changed since the last log line */
    uint64_t engines[];  /* a bit a slot, as in schedule_request.eligible */
};

struct name_sets {
    struct name_set **all; /* (n), owned, by name; room for NAME_SETS_MAX */
    size_t n;
    uint32_t n_slots;
    uint64_t n_lost;
    uint64_t n_dropped; /* names without room */
};

/* name_sets_init(): sets up for engines in n_slots slots. Returns 0 or -ENOMEM;
 * name_sets_fini() may be called either way, and on zeros. */
[[nodiscard]] int name_sets_init(struct name_sets *sets, uint32_t n_slots);
void name_sets_fini(struct name_sets *sets);

/* Returns the set of a name of n bytes; NULL = none. O(log names). */
struct name_set *name_sets_find(const struct name_sets *sets, const char *name,
                                size_t n);

/* Sets the names of the engine in a slot; both NULL = none. Names without room
 * are counted and skipped. O(names). */
void name_sets_take(struct name_sets *sets, uint32_t slot,
                    const struct engine_names *aliases,
                    const struct engine_names *adapters);

/* Adds names, even if no engine has them. */
void name_sets_know(struct name_sets *sets, const struct engine_names *aliases,
                    const struct engine_names *adapters);

/* Returns whether the engine in a slot has the name. */
bool name_set_has(const struct name_set *set, uint32_t slot);

#endif
