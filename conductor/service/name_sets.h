/*
 * The other names of a model, each with the engines that have it: aliases, and
 * LoRA adapters, which engines load and unload while they run. A request that
 * names one goes to these engines alone.
 *
 *   A name that no engine has any more stays known, so that requests for it are
 *   told so, until its place is needed; while a request names it, it stays.
 */
#ifndef CONDUCTOR_SERVICE_NAME_SETS_H
#define CONDUCTOR_SERVICE_NAME_SETS_H

#include "conductor/config/names.h"
#include "conductor/service/service.h"

/* Names of one model, at most. */
#define NAME_SETS_MAX 4096u

struct name_set {
    struct service_name name;
    uint32_t n_requests; /* that name it, and have not ended */
    uint64_t lost;       /* when its last engine lost it: counts such events */
    uint32_t told;       /* name.n_engines, as the log has it */
    bool told_all;       /* and that these were all of the model */
    bool changed; /* its engines have changed since the log last said them */
    uint64_t engines[]; /* a bit of each slot, as schedule_request.eligible */
};

struct name_sets {
    struct name_set **all; /* (n), owned, by name; room for NAME_SETS_MAX */
    size_t n;
    uint32_t n_slots;
    uint64_t n_lost;
    uint64_t n_dropped; /* names that had no room */
};

/* For engines in n_slots slots. Returns 0 or -ENOMEM; name_sets_fini() may be
 * called either way, and on zeros. */
[[nodiscard]] int name_sets_init(struct name_sets *sets, uint32_t n_slots);
void name_sets_fini(struct name_sets *sets);

/* The set of a name of n bytes; NULL: it is not known. O(log names). */
struct name_set *name_sets_find(const struct name_sets *sets, const char *name,
                                size_t n);

/* The engine of a slot has these names and no others; both NULL: none. Names
 * that have no room are counted and left out. O(names). */
void name_sets_take(struct name_sets *sets, uint32_t slot,
                    const struct engine_names *aliases,
                    const struct engine_names *adapters);

/* These names are known, even if no engine has them. */
void name_sets_know(struct name_sets *sets, const struct engine_names *aliases,
                    const struct engine_names *adapters);

/* Whether the engine of a slot has the name. */
bool name_set_has(const struct name_set *set, uint32_t slot);

#endif
