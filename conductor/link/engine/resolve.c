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
    struct evdns_request *question; /* for records of one kind; NULL: none */
    bool asking; /* the callback of either is still to come */
    bool dead;   /* and then frees it */
    unsigned jitter;
    struct resolver_address all[RESOLVE_ADDRESSES_MAX]; /* (n), sorted */
    size_t n;
    bool tell_again; /* as before the first answer, which may be empty */
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

/* Whether the answer is that there are no such records. */
static bool has_none(int result)
{
    return result == DNS_ERR_NODATA || result == DNS_ERR_NOTEXIST;
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

static const char *why_not(int result)
{
    return has_none(result)         ? NULL
           : result == DNS_ERR_NONE ? "two answers differ"
                                    : evdns_err_to_string(result);
}

/* The look-up ended, if why is NULL with these addresses. */
static void end(struct resolver *r, const char *why,
                const struct evutil_addrinfo *answer)
{
    r->ops->looked_up(r->arg, why);
    if (!why)
        take(r, answer);
    look_later(r);
}

static void on_ipv6(int result, char, int, int, void *, void *arg)
{
    struct resolver *r = arg;

    r->asking = false;
    r->question = NULL;
    if (r->dead)
        destroy(r);
    else
        end(r, why_not(result), NULL);
}

static void on_ipv4(int result, char, int, int, void *, void *arg)
{
    struct resolver *r = arg;

    r->question = NULL;
    if (!r->dead && has_none(result))
        r->question = evdns_base_resolve_ipv6(r->dns, r->host, 0, on_ipv6, r);
    r->asking = r->question;
    if (r->dead)
        destroy(r);
    else if (!r->asking)
        end(r, has_none(result) ? "out of memory" : why_not(result), NULL);
}

/* libevent calls a name without addresses a failure as any other: the name is
 * asked again for each kind of them. */
static void on_answer(int error, struct evutil_addrinfo *answer, void *arg)
{
    struct resolver *r = arg;

    r->asking = false;
    r->request = NULL;
    if (error == EVUTIL_EAI_FAIL && !r->dead)
        r->question = evdns_base_resolve_ipv4(r->dns, r->host, 0, on_ipv4, r);
    r->asking = r->question;
    if (r->dead)
        destroy(r);
    else if (!r->asking)
        end(r,
            error && error != EVUTIL_EAI_NONAME ? evutil_gai_strerror(error)
                                                : NULL,
            answer);
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
    r->tell_again = true;
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
    if (resolver->question)
        evdns_cancel_request(resolver->dns, resolver->question);
}
