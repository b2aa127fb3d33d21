/* See tenants.h. */
#include "conductor/service/tenant/tenants.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/secret.h"
#include "conductor/service/tenant/internal.h"

#define FILE_MAX_BYTES (1u << 20)

int tenants_new(const char *path, struct tenants **out,
                char err[CONFIG_ERROR_MAX])
{
    struct fields f = {"", path, err, CONFIG_ERROR_MAX, 0};
    struct tenants *t = calloc(1, sizeof(*t));
    int rc = 0;

    *out = NULL;
    if (!t)
        return error_say(err, CONFIG_ERROR_MAX, -ENOMEM, "out of memory");
    snprintf(t->path, sizeof(t->path), "%s", path);
    t->all[0] =
        (struct tenant){.name = "other", .weight = 1.0, .standing = -1.0};
    if (*path)
        rc = fields_read(&f, NULL, FILE_MAX_BYTES, tenants_read, t);
    if (rc)
        tenants_free(t);
    else
        *out = t;
    return rc;
}

void tenants_free(struct tenants *t)
{
    if (!t)
        return;
    tdestroy(t->open, free);
    free(t->keys);
    free(t);
}

static int compare_open(const void *a, const void *b)
{
    const struct tenant_open *x = a, *y = b;

    return (x->number > y->number) - (x->number < y->number);
}

static struct tenant_open *find_open(const struct tenants *t, uint64_t number)
{
    struct tenant_open **found =
        tfind(&(struct tenant_open){.number = number}, &t->open, compare_open);

    return found ? *found : NULL;
}

static uint32_t n_open(const struct tenants *t, uint64_t number)
{
    const struct tenant_open *open = find_open(t, number);

    return open ? open->n : 0;
}

/* Returns the tenant's index in `all`; 0 = unlisted. */
static size_t place_of(const struct tenants *t, uint64_t number)
{
    for (size_t i = 1; number && i <= t->n; i++)
        if (t->all[i].number == number)
            return i;
    return 0;
}

static void add(struct tenant *into, const struct tenant *from)
{
    for (size_t i = 0; i < METRICS_OUTCOMES; i++)
        into->requests[i] += from->requests[i];
    into->tokens_sent += from->tokens_sent;
    into->n_limited += from->n_limited;
    into->asks.taken += from->asks.taken;
    into->asks.at_us = from->asks.at_us;
    into->tokens.taken += from->tokens.taken;
    into->tokens.at_us = from->tokens.at_us;
}

/* Carries over the use of a tenant's joint limits. */
static void move_joint(const struct tenants *t, struct tenant *one)
{
    size_t place = place_of(t, one->number);

    if (place > 0)
        joint_move(&one->joint, &t->all[place].joint);
    else
        one->joint.open = n_open(t, one->number);
    one->joint.conductors = t->n > 0 ? t->all[1].joint.conductors : 0;
    one->joint.due = true;
}

void tenants_take(struct tenants *t, struct tenants *next)
{
    for (size_t i = 0; i <= t->n; i++)
        add(&next->all[place_of(next, t->all[i].number)], &t->all[i]);
    next->open = t->open;
    next->joint = t->joint;
    for (size_t i = 1; i <= next->n; i++)
        move_joint(t, &next->all[i]);
    free(t->keys);
    *t = *next;
    free(next);
}

void tenants_share(struct tenants *t)
{
    t->joint = true;
}

struct joint_key *tenants_joint(struct tenants *t, size_t i)
{
    return i < t->n ? &t->all[i + 1].joint : NULL;
}

size_t tenants_size(const struct tenants *t)
{
    return t->n;
}

/* Returns the index of a digest's tenant; 0 = unlisted. Compares all bytes of
 * all keys, so that the time reveals nothing. */
static size_t place_of_key(const struct tenants *t,
                           const uint8_t digest[DIGEST_BYTES])
{
    size_t place = 0;

    for (size_t i = 0; i < t->n_keys; i++)
        if (CRYPTO_memcmp(t->keys[i].digest, digest, DIGEST_BYTES) == 0)
            place = t->keys[i].tenant;
    return place;
}

void tenants_find(const struct tenants *t, const char *key, size_t n,
                  int32_t priority, struct dispatch_request *request)
{
    uint8_t digest[DIGEST_BYTES];
    size_t place;

    request->tenant = 0;
    request->weight = 1.0;
    request->priority = *t->path ? 0 : priority;
    if (n == 0 || secret_digest(key, n, digest))
        return;
    if (!*t->path)
        request->tenant = tenant_number(digest);
    place = place_of_key(t, digest);
    if (place == 0)
        return;
    request->tenant = t->all[place].number;
    request->weight = t->all[place].weight;
    request->priority = priority;
}

/* Returns how many more of its requests may begin; UINT32_MAX = unlimited. */
static uint32_t room_of(const struct tenants *t, const struct tenant *one)
{
    uint32_t open = n_open(t, one->number);

    if (t->joint)
        return joint_room(&one->joint);
    return !one->max_open         ? UINT32_MAX
           : open < one->max_open ? one->max_open - open
                                  : 0;
}

/* Returns which limit one more request would exceed. */
static enum tenant_refusal limit_of(const struct tenant *one, bool joint,
                                    uint32_t room, enum tenant_step step,
                                    int64_t now_us, int64_t *retry_us)
{
    if (step == TENANT_LOOKS)
        return TENANT_ENTERS;
    if (room == 0) {
        *retry_us = 1000000;
        return TENANT_IN_FLIGHT;
    }
    if (step == TENANT_GOES_ON)
        return TENANT_ENTERS;
    *retry_us = joint ? joint_asks_us(&one->joint, now_us)
                      : limit_wait_us(&one->asks, 1.0, now_us);
    if (*retry_us)
        return TENANT_ASKS;
    *retry_us = joint ? joint_tokens_us(&one->joint, now_us)
                      : limit_wait_us(&one->tokens, 1.0, now_us);
    return *retry_us ? TENANT_TOKENS : TENANT_ENTERS;
}

enum tenant_refusal tenants_enter(struct tenants *t, const char *key, size_t n,
                                  enum tenant_step step, int64_t now_us,
                                  struct tenant_terms *terms, int64_t *retry_us)
{
    enum tenant_refusal why;
    uint8_t digest[DIGEST_BYTES];
    struct tenant *one;
    size_t place;
    uint32_t room;

    place =
        n && secret_digest(key, n, digest) == 0 ? place_of_key(t, digest) : 0;
    if (place == 0)
        return TENANT_UNKNOWN;
    one = &t->all[place];
    room = room_of(t, one);
    *terms = (struct tenant_terms){.number = one->number,
                                   .room = room,
                                   .name = one->name,
                                   .slo_ttft_us = one->slo_ttft_us,
                                   .slo_tbt_us = one->slo_tbt_us};
    why = limit_of(one, t->joint, room, step, now_us, retry_us);
    if (why != TENANT_ENTERS) {
        terms->limit = why == TENANT_ASKS     ? one->asks.per_minute
                       : why == TENANT_TOKENS ? one->tokens.per_minute
                                              : (double)one->max_open;
        one->n_limited++;
    } else if (step == TENANT_BEGINS) {
        limit_take(&one->asks, 1.0, now_us);
        joint_ask(&one->joint, now_us);
    }
    return why;
}

void tenants_began(struct tenants *t, uint64_t tenant)
{
    struct tenant_open *open = tenant ? find_open(t, tenant) : NULL;

    if (tenant && !open && (open = calloc(1, sizeof(*open)))) {
        open->number = tenant;
        if (!tsearch(open, &t->open, compare_open)) {
            free(open);
            open = NULL;
        }
    }
    if (!open)
        return;
    open->n++;
    joint_open(&t->all[place_of(t, tenant)].joint, open->n);
}

void tenants_spent(struct tenants *t, uint64_t tenant, uint64_t tokens,
                   int64_t now_us)
{
    struct tenant *one = &t->all[place_of(t, tenant)];

    limit_take(&one->tokens, (double)tokens, now_us);
    joint_spend(&one->joint, (double)tokens, now_us);
}

const char *tenants_name(const struct tenants *t, uint64_t tenant)
{
    return t->all[place_of(t, tenant)].name;
}

void tenants_count(struct tenants *t, uint64_t tenant,
                   enum metrics_outcome outcome)
{
    struct tenant_open *open = find_open(t, tenant);

    t->all[place_of(t, tenant)].requests[outcome]++;
    if (open)
        joint_open(&t->all[place_of(t, tenant)].joint, open->n - 1);
    if (open && --open->n == 0) {
        tdelete(open, &t->open, compare_open);
        free(open);
    }
}

void tenants_sent(struct tenants *t, uint64_t tenant, uint64_t tokens)
{
    t->all[place_of(t, tenant)].tokens_sent += tokens;
}

void tenants_weigh(struct tenants *t, struct dispatch *d, int64_t now_us)
{
    struct share *share = &d->share;

    for (uint32_t i = 0; i < SHARE_TENANTS; i++) {
        struct tenant *one = &t->all[place_of(t, share->tenants[i].name)];
        double standing;

        one->waiting += share->tenants[i].waiting;
        if (!share_is_active(share, i, now_us))
            continue;
        standing = share_standing(share, i, now_us);
        if (one->standing < 0.0 || standing < one->standing)
            one->standing = standing;
    }
}
