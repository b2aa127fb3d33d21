/* See resolve.h. */
#include "conductor/link/upstream/resolve.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/dns.h"
#include "base/loop/loop.h"

struct resolver {
    struct dns *dns;
    char host[ADDRESS_HOST_MAX];
    int64_t every_us;
    size_t most;
    const struct resolver_ops *ops;
    void *arg;
    struct loop_timer timer;
    struct dns_lookup *lookup; /* NULL = none under way */
    unsigned jitter;
    struct resolver_address *all; /* (n), sorted */
    size_t n;
    size_t n_left_out;
    bool tell_again; /* call changed() even without a change */
};

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct resolver_address *)a)->text,
                  ((const struct resolver_address *)b)->text);
}

/* Appends the addresses as text to list[0 .. n). Returns the new n. */
static size_t append(struct resolver_address *list, size_t n,
                     const struct dns_half *half)
{
    for (size_t i = 0; i < half->n; i++) {
        list[n] = (struct resolver_address){.misses = 0};
        if (inet_ntop(half->all[i].family, half->all[i].bytes, list[n].text,
                      sizeof(list[n].text)))
            n++;
    }
    return n;
}

/* Whether the look-up of an address's family was answered. */
static bool was_answered(const struct resolver_address *a,
                         const struct dns_answer *answer)
{
    return strchr(a->text, ':') ? !answer->v6.why_not : !answer->v4.why_not;
}

/*
 * Merges an answer's n sorted addresses, perhaps with duplicates: removes
 * addresses that RESOLVE_MISSES answers in a row lacked, adds new ones while
 * there is room. Writes the result to `out`, sorted (at most r->n + n). Returns
 * whether anything changed.
 */
static bool merge(struct resolver *r, const struct dns_answer *answer,
                  const struct resolver_address *found, size_t n,
                  struct resolver_address *out, size_t *n_out)
{
    size_t kept = 0, room, left_out = 0;
    bool changed = false;

    for (size_t i = 0; i < r->n; i++) {
        struct resolver_address *a = &r->all[i];

        if (bsearch(a, found, n, sizeof(*found), compare))
            a->misses = 0;
        else if (was_answered(a, answer))
            a->misses++;
        if (a->misses < RESOLVE_MISSES)
            out[kept++] = *a;
    }
    changed = kept < r->n;
    room = r->most > kept ? r->most - kept : 0;
    *n_out = kept;
    for (size_t i = 0; i < n; i++) {
        if ((i && compare(&found[i - 1], &found[i]) == 0) ||
            bsearch(&found[i], out, kept, sizeof(*out), compare))
            continue;
        if (room == 0) {
            left_out++;
            continue;
        }
        out[(*n_out)++] = found[i];
        room--;
        changed = true;
    }
    qsort(out, *n_out, sizeof(*out), compare);
    changed |= left_out != r->n_left_out;
    r->n_left_out = left_out;
    return changed;
}

static void take(struct resolver *r, const struct dns_answer *answer)
{
    size_t most = answer->v4.n + answer->v6.n, n;
    struct resolver_address *found = calloc(most + 1, sizeof(*found));
    struct resolver_address *next = calloc(r->n + most + 1, sizeof(*next));
    bool changed = r->tell_again;

    if (!found || !next) {
        free(found);
        free(next);
        return;
    }
    n = append(found, append(found, 0, &answer->v4), &answer->v6);
    qsort(found, n, sizeof(*found), compare);
    changed |= merge(r, answer, found, n, next, &n);
    free(found);
    free(r->all);
    r->all = next;
    r->n = n;
    if (changed)
        r->tell_again = !r->ops->changed(r->arg, r->all, r->n, r->n_left_out);
}

static void look_later(struct resolver *r)
{
    /* 80 to 120 %, so that names are not all looked up at once. */
    loop_timer_start(&r->timer, r->every_us / 10 * 8 +
                                    r->every_us / 1000 *
                                        (int64_t)(rand_r(&r->jitter) % 401));
}

static void on_done(void *arg, const struct dns_answer *answer)
{
    struct resolver *r = arg;
    const char *why_not = dns_why_not(answer);

    r->lookup = NULL;
    r->ops->looked_up(r->arg, why_not);
    if (!why_not)
        take(r, answer);
    look_later(r);
}

static void on_time(void *arg)
{
    struct resolver *r = arg;

    r->lookup = dns_look_up(r->dns, r->host, on_done, r);
    if (r->lookup)
        return;
    r->ops->looked_up(r->arg, "out of memory");
    look_later(r);
}

struct resolver *resolver_new(struct loop *loop, struct dns *dns,
                              const char *host, int64_t every_us, size_t most,
                              const struct resolver_ops *ops, void *arg)
{
    struct resolver *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->dns = dns;
    snprintf(r->host, sizeof(r->host), "%s", host);
    r->every_us = every_us;
    r->most = most;
    r->ops = ops;
    r->arg = arg;
    r->tell_again = true;
    r->jitter = (unsigned)loop_now_us(loop);
    loop_timer_init(loop, &r->timer, on_time, r);
    if (loop_timer_start(&r->timer, 0) == 0)
        return r;
    resolver_free(r);
    return NULL;
}

void resolver_free(struct resolver *resolver)
{
    if (!resolver)
        return;
    dns_cancel(resolver->lookup);
    loop_timer_stop(&resolver->timer);
    free(resolver->all);
    free(resolver);
}
