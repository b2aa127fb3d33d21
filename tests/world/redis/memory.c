/* maxmemory: what is evicted when data takes more than that. */
#include <string.h>
#include <strings.h>

#include "tests/world/redis/internal.h"

/* How a policy chooses: of all keys or of those that expire; the key that was
 * used least recently, any, or the one that expires next. The model keeps no
 * frequencies: it takes LFU for LRU. */
enum order { ORDER_NONE, ORDER_USE, ORDER_RANDOM, ORDER_TIME };

static const struct policy {
    const char *name;
    bool volatile_only;
    enum order order;
} policies[] = {
    {"volatile-lru", true, ORDER_USE},       {"volatile-lfu", true, ORDER_USE},
    {"volatile-random", true, ORDER_RANDOM}, {"volatile-ttl", true, ORDER_TIME},
    {"allkeys-lru", false, ORDER_USE},       {"allkeys-lfu", false, ORDER_USE},
    {"allkeys-random", false, ORDER_RANDOM}, {"noeviction", false, ORDER_NONE},
};

const char mr_policy_names[] =
    "volatile-lru, volatile-lfu, volatile-random, volatile-ttl, allkeys-lru, "
    "allkeys-lfu, allkeys-random, noeviction";

static const struct policy *find(const char *name)
{
    for (size_t i = 0; i < sizeof(policies) / sizeof(*policies); i++)
        if (strcasecmp(policies[i].name, name) == 0)
            return &policies[i];
    return NULL;
}

const char *mr_policy_find(const char *name)
{
    const struct policy *p = find(name);

    return p ? p->name : NULL;
}

static bool is_better(const struct policy *p, const struct mr_key *a,
                      const struct mr_key *b)
{
    return p->order == ORDER_TIME ? a->expires_ms < b->expires_ms
                                  : a->used < b->used;
}

/* Evicts one key. Returns false if there is none that may go. */
static bool evict(struct mr *m, const struct policy *p)
{
    struct mr_key *found = NULL;
    unsigned database = 0;
    uint32_t seen = 0;

    for (unsigned i = 0; p->order != ORDER_NONE && i < MR_DATABASES; i++) {
        for (size_t k = 0; k < m->data.databases[i].n; k++) {
            struct mr_key *key = m->data.databases[i].at[k];

            if (p->volatile_only && key->expires_ms == MR_MS_NONE)
                continue;
            seen++;
            if (found &&
                !(p->order == ORDER_RANDOM ? random_below(&m->random, seen) == 0
                                           : is_better(p, key, found)))
                continue;
            found = key;
            database = i;
        }
    }
    if (!found)
        return false;
    mr_write_del(m, database, found, m->now_us + m->clock_us);
    mr_data_remove(&m->data, database, found);
    m->counts.evicted++;
    return true;
}

int mr_evict(struct mr *m, const char *policy, unsigned n)
{
    const struct policy *p = find(policy);
    int gone = 0;

    if (!p)
        return -1;
    while (n-- > 0 && evict(m, p))
        gone++;
    return gone;
}

uint64_t mr_bytes(const struct mr *m)
{
    return MR_BASE_BYTES + m->data.bytes;
}

bool mr_full(struct mr *m)
{
    const struct policy *p = find(m->policy);

    while (m->max_bytes > 0 && mr_bytes(m) > m->max_bytes)
        if (!evict(m, p))
            return true;
    return false;
}

int mr_set_maxmemory(struct mr *m, uint64_t bytes, const char *policy)
{
    if (policy && !find(policy))
        return -1;
    m->max_bytes = bytes;
    m->policy = policy ? find(policy)->name : m->policy;
    return 0;
}
