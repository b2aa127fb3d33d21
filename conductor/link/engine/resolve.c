/* See resolve.h. */
#include "conductor/link/engine/resolve.h"

#include <arpa/inet.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <event2/util.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/event_loop.h"

struct resolver {
    struct event_base *base;
    struct evdns_base *dns;
    char host[ADDRESS_HOST_MAX];
    int64_t every_us;
    const struct resolver_ops *ops;
    void *arg;
    struct event *timer;
    struct evdns_getaddrinfo_request *request; /* NULL: none under way */
    bool asking; /* its callback is still to come */
    bool dead;   /* and then frees it */
    unsigned jitter;
    struct resolver_address all[RESOLVE_ADDRESSES_MAX]; /* (n), sorted */
    size_t n;
    bool tell_again;
};

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct resolver_address *)a)->text,
                  ((const struct resolver_address *)b)->text);
}

/* The answer's address is in the table; true: it is new there. */
static bool note(struct resolver *r, const struct resolver_address *a)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->all[i].text, a->text) == 0) {
            r->all[i].misses = 0;
            return false;
        }
    if (r->n == RESOLVE_ADDRESSES_MAX)
        return false;
    r->all[r->n++] = *a;
    return true;
}

/* Those that too many answers were without; true: there were some. */
static bool drop_missing(struct resolver *r)
{
    size_t kept = 0, n = r->n;

    for (size_t i = 0; i < n; i++)
        if (r->all[i].misses < RESOLVE_MISSES)
            r->all[kept++] = r->all[i];
    r->n = kept;
    return kept < n;
}

static bool text_of(const struct sockaddr *sa, struct resolver_address *out)
{
    const void *in4 = &((const struct sockaddr_in *)(const void *)sa)->sin_addr;
    const void *in6 =
        &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;

    *out = (struct resolver_address){0};
    if (sa->sa_family != AF_INET && sa->sa_family != AF_INET6)
        return false;
    return inet_ntop(sa->sa_family, sa->sa_family == AF_INET ? in4 : in6,
                     out->text, sizeof(out->text));
}

static void take(struct resolver *r, const struct evutil_addrinfo *answer)
{
    struct resolver_address a;
    bool changed = r->tell_again;

    for (size_t i = 0; i < r->n; i++)
        r->all[i].misses++;
    for (; answer; answer = answer->ai_next)
        if (text_of(answer->ai_addr, &a))
            changed |= note(r, &a);
    changed |= drop_missing(r);
    if (!changed)
        return;
    qsort(r->all, r->n, sizeof(r->all[0]), compare);
    r->tell_again = !r->ops->changed(r->arg, r->all, r->n);
}

static void look_later(struct resolver *r)
{
    /* 80 to 120 %, so that many names are not asked for at once. */
    (void)event_loop_wait(
        r->timer, r->every_us / 10 * 8 +
                      r->every_us / 1000 * (int64_t)(rand_r(&r->jitter) % 401));
}

static void destroy(struct resolver *r)
{
    event_loop_drop(r->timer);
    free(r);
}

static void on_answer(int error, struct evutil_addrinfo *answer, void *arg)
{
    struct resolver *r = arg;
    bool none = error == EVUTIL_EAI_NONAME || error == EVUTIL_EAI_NODATA;

    r->asking = false;
    r->request = NULL;
    if (r->dead) {
        destroy(r);
    } else {
        r->ops->looked_up(r->arg,
                          error && !none ? evutil_gai_strerror(error) : NULL);
        if (!error || none)
            take(r, answer);
        look_later(r);
    }
    if (answer)
        evutil_freeaddrinfo(answer);
}

static void on_time(evutil_socket_t, short, void *arg)
{
    struct resolver *r = arg;
    const struct evutil_addrinfo hints = {.ai_family = AF_UNSPEC,
                                          .ai_socktype = SOCK_STREAM,
                                          .ai_protocol = IPPROTO_TCP};
    struct evdns_getaddrinfo_request *request;

    r->asking = true;
    /* It may call back before it returns, with r->request left at NULL. */
    request = evdns_getaddrinfo(r->dns, r->host, NULL, &hints, on_answer, r);
    if (r->asking)
        r->request = request;
}

struct resolver *resolver_new(struct event_base *base, struct evdns_base *dns,
                              const char *host, int64_t every_us,
                              const struct resolver_ops *ops, void *arg)
{
    struct resolver *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->base = base;
    r->dns = dns;
    snprintf(r->host, sizeof(r->host), "%s", host);
    r->every_us = every_us;
    r->ops = ops;
    r->arg = arg;
    r->jitter = (unsigned)clock_now_us();
    r->timer = event_new(base, -1, 0, on_time, r);
    if (r->timer && event_loop_wait(r->timer, 0) == 0)
        return r;
    destroy(r);
    return NULL;
}

void resolver_free(struct resolver *resolver)
{
    if (!resolver)
        return;
    if (!resolver->asking) {
        destroy(resolver);
        return;
    }
    resolver->dead = true;
    event_del(resolver->timer);
    if (resolver->request)
        evdns_getaddrinfo_cancel(resolver->request);
}
