/* Finds the better ratio, and the instance that switches; demand.c computes the
 * demand. See roles.h. */
#include "conductor/core/roles/roles.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "conductor/core/roles/internal.h"

struct roles *roles_new(struct dispatch *d, uint32_t instances,
                        int64_t slowdown)
{
    struct roles *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->dispatch = d;
    r->slowdown = slowdown > 0 ? slowdown : 1;
    r->better_us = -1;
    r->demand.at_us = -1;
    r->n_slots = instances;
    r->switches = calloc(instances, sizeof(*r->switches));
    if (!r->switches) {
        roles_free(r);
        return NULL;
    }
    return r;
}

void roles_free(struct roles *r)
{
    if (!r)
        return;
    free(r->switches);
    free(r);
}

static struct pool *pool_of(const struct roles *r)
{
    return schedule_pool(r->dispatch->scheduler);
}

bool roles_on(const struct roles *r)
{
    const struct dispatch *d = r->dispatch;

    return d->scheduler && !d->unpredicted &&
           schedule_rules_of(d->scheduler)->switch_us > 0;
}

void roles_placed(struct roles *r, const struct dispatch_request *request,
                  const struct dispatch_order *order)
{
    if (roles_on(r) && request->retries == 0 && order->decided)
        roles_demand_placed(&r->demand, r->dispatch->scheduler, request, order);
}

/* The role that an instance has, or will have after its switch. */
static unsigned role_of(const struct pool_instance *i)
{
    return i->next_role != 0 ? i->next_role : i->role;
}

/* Counts the ready instances with a single role, after pending switches. */
static void count(const struct pool *pool, struct roles_seen *seen)
{
    seen->prefills = seen->decodes = 0;
    for (uint32_t slot = 0; slot < pool_slots(pool); slot++) {
        const struct pool_instance *i = pool_at(pool, slot);

        if (!i || i->health != HEALTH_READY || i->held)
            continue;
        seen->prefills += role_of(i) == ROLE_PREFILL;
        seen->decodes += role_of(i) == ROLE_DECODE;
    }
}

/* The load of the busier side. */
static double load(const struct roles_seen *seen, uint32_t prefills)
{
    double p = seen->prefill_needed / prefills;
    double d =
        seen->decode_needed / (seen->prefills + seen->decodes - prefills);

    return p > d ? p : d;
}

static void look(struct roles *r, int64_t now_us)
{
    double tau_us =
        (double)schedule_rules_of(r->dispatch->scheduler)->switch_us / 2.0;
    double passes = tau_us / ((double)ROLES_PASS_US * (double)r->slowdown);
    struct roles_demand *d = &r->demand;
    struct roles_seen *seen = &r->seen;
    double of_prefill, of_decode;

    roles_demand_pass(d, tau_us, now_us);
    count(pool_of(r), seen);
    seen->known = d->weight >= 0.5;
    seen->prefill_needed = roles_needed(d, &d->prefill);
    seen->decode_needed = roles_needed(d, &d->decode);
    of_prefill = roles_error(d, &d->prefill, passes);
    of_decode = roles_error(d, &d->decode, passes);
    seen->error = sqrt(of_prefill * of_prefill + of_decode * of_decode);
    seen->best_prefills = seen->prefills;
    if (seen->prefills == 0 || seen->decodes == 0)
        return;
    for (uint32_t p = 1; p < seen->prefills + seen->decodes; p++)
        if (load(seen, p) < load(seen, seen->best_prefills))
            seen->best_prefills = p;
}

/* Whether the best ratio lies in this direction, and is better by enough. */
static bool is_better(const struct roles *r, bool to_prefill)
{
    const struct roles_seen *seen = &r->seen;
    double gain = fmax(ROLES_GAIN, 2.0 * seen->error);

    if (!seen->known || seen->best_prefills == seen->prefills ||
        (seen->best_prefills > seen->prefills) != to_prefill ||
        load(seen, seen->prefills) < ROLES_LEAST)
        return false;
    if (r->moving && r->to_prefill == to_prefill)
        gain = ROLES_ENOUGH;
    return load(seen, seen->prefills) >=
           (1.0 + gain) * load(seen, seen->best_prefills);
}

static uint32_t n_switching(const struct pool *pool)
{
    uint32_t n = 0;

    for (uint32_t slot = 0; slot < pool_slots(pool); slot++)
        n += pool_at(pool, slot) && pool_at(pool, slot)->next_role != 0;
    return n;
}

/* Output tokens still expected from the longest decode of an instance. */
static int64_t left_tokens(const struct pool_instance *i)
{
    int64_t most = 0;

    for (size_t k = 0; k < i->n_decodes; k++) {
        const struct pool_decode *d = &i->decodes[k];

        if (d->expected_tokens - d->produced_tokens > most)
            most = d->expected_tokens - d->produced_tokens;
    }
    return most;
}

/* Whether a has less work to end than b, or less cache to lose. */
static bool ends_before(const struct pool_instance *a,
                        const struct pool_instance *b)
{
    size_t x = a->n_waiting + a->n_running, y = b->n_waiting + b->n_running;

    if (x != y)
        return x < y;
    if (left_tokens(a) != left_tokens(b))
        return left_tokens(a) < left_tokens(b);
    if (a->kv_used_tokens != b->kv_used_tokens)
        return a->kv_used_tokens < b->kv_used_tokens;
    return a->slot < b->slot;
}

/* The instance to leave a role: the soonest free; NULL = the role's last. */
static const struct pool_instance *find(const struct pool *pool, unsigned from)
{
    const struct pool_instance *best = NULL;
    uint32_t n = 0;

    for (uint32_t slot = 0; slot < pool_slots(pool); slot++) {
        const struct pool_instance *i = pool_at(pool, slot);

        if (!i || !pool_takes_work(i) || i->role != from)
            continue;
        n++;
        if (i->switches && (!best || ends_before(i, best)))
            best = i;
    }
    return n > 1 ? best : NULL;
}

static void begin(struct roles *r, const struct pool_instance *i, unsigned to,
                  const struct roles_reason *reason)
{
    struct roles_switch *s = &r->switches[i->slot];

    if (pool_switch(pool_of(r), i->id, to) < 0)
        return;
    *s = (struct roles_switch){.id = i->id, .reason = *reason};
    r->counts.begun[reason->command][to == ROLE_DECODE]++;
}

static void switch_one(struct roles *r)
{
    const struct roles_seen *seen = &r->seen;
    const struct pool *pool = pool_of(r);
    const struct pool_instance *i =
        find(pool, r->to_prefill ? ROLE_DECODE : ROLE_PREFILL);
    uint32_t all = seen->prefills + seen->decodes;
    uint32_t n = n_switching(pool);

    if (!i || (n > 0 && (n + 1) * ROLES_AT_ONCE > all))
        return;
    r->moving = true;
    begin(r, i, r->to_prefill ? ROLE_PREFILL : ROLE_DECODE,
          &(struct roles_reason){.prefill_needed = seen->prefill_needed,
                                 .decode_needed = seen->decode_needed,
                                 .error = seen->error,
                                 .prefills = seen->prefills,
                                 .decodes = seen->decodes,
                                 .best_prefills = seen->best_prefills});
}

bool roles_pass(struct roles *r, int64_t now_us)
{
    bool to_prefill;

    if (!roles_on(r) || now_us < r->due_us)
        return false;
    r->due_us = now_us + ROLES_PASS_US * r->slowdown;
    r->counts.passes++;
    look(r, now_us);
    to_prefill = r->seen.best_prefills > r->seen.prefills;
    if (!is_better(r, to_prefill)) {
        r->better_us = -1;
        r->moving = false;
        return true;
    }
    if (r->better_us < 0 || r->to_prefill != to_prefill) {
        r->better_us = now_us;
        r->moving = false;
    }
    r->to_prefill = to_prefill;
    if (r->moving || now_us - r->better_us >=
                         schedule_rules_of(r->dispatch->scheduler)->switch_us)
        switch_one(r);
    return true;
}

int64_t roles_due_us(const struct roles *r)
{
    return r->due_us;
}

/* Whether another instance that takes work has one of these roles. */
static bool others_have(const struct pool *pool, uint32_t id, unsigned role)
{
    for (uint32_t slot = 0; slot < pool_slots(pool); slot++) {
        const struct pool_instance *i = pool_at(pool, slot);

        if (i && i->id != id && pool_takes_work(i) && (i->role & role) != 0)
            return true;
    }
    return false;
}

int roles_command(struct roles *r, uint32_t instance, unsigned role)
{
    struct pool *pool = r->dispatch->scheduler ? pool_of(r) : NULL;
    const struct pool_instance *i = pool ? pool_get(pool, instance) : NULL;
    unsigned lost;

    if (!i)
        return -ESTALE;
    lost = i->role & ~role;
    if (!i->switches || (role & ROLE_BOTH) == 0 || (role & ~ROLE_BOTH) != 0 ||
        schedule_model(r->dispatch->scheduler)->coupled)
        return -EINVAL;
    if (role == i->role) {
        r->switches[i->slot].id = POOL_NO_INSTANCE;
        return pool_switch(pool, instance, role);
    }
    if (i->next_role == role)
        return 0;
    if (lost != 0 && !others_have(pool, instance, lost))
        return -EBUSY;
    begin(r, i, role, &(struct roles_reason){.command = true});
    return 0;
}

bool roles_next(struct roles *r, struct roles_action *action)
{
    const struct pool *pool;

    if (!r->dispatch->scheduler)
        return false;
    pool = pool_of(r);
    for (uint32_t slot = 0; slot < pool_slots(pool); slot++) {
        const struct pool_instance *i = pool_at(pool, slot);
        struct roles_switch *s = &r->switches[slot];

        if (!i || s->id != i->id || i->next_role == 0 ||
            (s->told && !pool_is_empty(i)))
            continue;
        *action = (struct roles_action){.instance = i->id,
                                        .from = i->role,
                                        .to = i->next_role,
                                        .taken = s->told,
                                        .reason = s->reason};
        r->counts.taken += s->told;
        if (s->told)
            s->id = POOL_NO_INSTANCE;
        s->told = true;
        return true;
    }
    return false;
}

struct roles_seen roles_seen(const struct roles *r)
{
    return r->seen;
}

const struct roles_counts *roles_counts(const struct roles *r)
{
    return &r->counts;
}

bool roles_check(const struct roles *r)
{
    const struct pool *pool;
    uint32_t automatic = 0, all = 0;

    if (!r->dispatch->scheduler)
        return true;
    pool = pool_of(r);
    for (uint32_t slot = 0; slot < pool_slots(pool); slot++) {
        const struct pool_instance *i = pool_at(pool, slot);

        if (!i)
            continue;
        all++;
        automatic += i->next_role != 0 && r->switches[slot].id == i->id &&
                     !r->switches[slot].reason.command;
    }
    return automatic <= 1 || automatic * ROLES_AT_ONCE <= all;
}
