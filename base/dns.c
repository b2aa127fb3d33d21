/*
 * See dns.h.
 *
 * Each c-ares socket has a watch, and a timer calls c-ares at its requested
 * times. A question cannot be withdrawn: a cancelled look-up (`done` is NULL)
 * lives until c-ares has called back.
 */
#include "base/dns.h"

#include <ares.h>
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/address.h"
#include "base/loop/loop.h"

/* One of c-ares' sockets. */
struct wire {
    LIST_ENTRY(wire) entry;
    struct dns *dns;
    struct loop_watch watch;
};

struct dns {
    struct loop *loop;
    ares_channel channel;
    struct loop_timer timer;
    LIST_HEAD(, wire) wires;
};

/* A question of a look-up. */
struct question {
    struct dns_lookup *of;
    struct dns_half *half;
    bool pending; /* c-ares is still to call back */
};

struct dns_lookup {
    struct loop_timer timer; /* ends the look-up */
    dns_done *done;          /* NULL = called, or cancelled */
    void *arg;
    bool first; /* only dns_first() of the answer is used */
    struct question v4, v6;
    struct dns_answer answer;
};

/* Sets the timer to c-ares' next time-out. */
static void set_timer(struct dns *dns)
{
    struct timeval tv, *next = ares_timeout(dns->channel, NULL, &tv);

    if (next)
        loop_timer_start(&dns->timer, next->tv_sec * 1000000 + next->tv_usec);
    else
        loop_timer_stop(&dns->timer);
}

static void on_wire(void *arg, unsigned what)
{
    struct wire *w = arg;
    struct dns *dns = w->dns;
    int fd = w->watch.fd;

    /* This may call on_state(), which frees w. */
    ares_process_fd(dns->channel, what & LOOP_READ ? fd : ARES_SOCKET_BAD,
                    what & LOOP_WRITE ? fd : ARES_SOCKET_BAD);
    set_timer(dns);
}

static void on_time(void *arg)
{
    struct dns *dns = arg;

    ares_process_fd(dns->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    set_timer(dns);
}

static void drop_wire(struct wire *w)
{
    LIST_REMOVE(w, entry);
    loop_watch_stop(&w->watch);
    free(w);
}

/* Sets what to wait for on a socket; nothing: it will be closed. Without
 * memory for a watch the question is retried, and fails in the end. */
static void on_state(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct dns *dns = arg;
    unsigned what = (readable ? LOOP_READ : 0) | (writable ? LOOP_WRITE : 0);
    struct wire *w;

    LIST_FOREACH(w, &dns->wires, entry)
    {
        if (w->watch.fd == fd) {
            drop_wire(w);
            break;
        }
    }
    if (!what)
        return;
    w = calloc(1, sizeof(*w));
    if (!w)
        return;
    w->dns = dns;
    loop_watch_init(dns->loop, &w->watch, fd, what, on_wire, w);
    if (loop_watch_start(&w->watch, 0)) {
        free(w);
        return;
    }
    LIST_INSERT_HEAD(&dns->wires, w, entry);
}

/* Returns whether it is ADDRESS or ADDRESS:PORT. */
static bool is_server(const char *server)
{
    struct dns_address one;
    struct address at;

    return dns_numeric(server, &one) ||
           (address_parse(server, &at) == 0 && dns_numeric(at.host, &one));
}

static int open_channel(struct dns *dns, const char *server)
{
    struct ares_options options = {
        .flags = ARES_FLAG_EDNS,
        .ednspsz = DNS_UDP_BYTES,
        .timeout = DNS_TIMEOUT_MS,
        .tries = DNS_TRIES,
        .sock_state_cb = on_state,
        .sock_state_cb_data = dns,
    };

    if (*server && !is_server(server))
        return -1;
    if (ares_init_options(&dns->channel, &options,
                          ARES_OPT_FLAGS | ARES_OPT_EDNSPSZ |
                              ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
                              ARES_OPT_SOCK_STATE_CB) != ARES_SUCCESS) {
        dns->channel = NULL;
        return -1;
    }
    return *server && ares_set_servers_ports_csv(dns->channel, server) !=
                          ARES_SUCCESS
               ? -1
               : 0;
}

struct dns *dns_new(struct loop *loop, const char *server)
{
    struct dns *dns;

    if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS)
        return NULL;
    dns = calloc(1, sizeof(*dns));
    if (!dns) {
        ares_library_cleanup();
        return NULL;
    }
    dns->loop = loop;
    LIST_INIT(&dns->wires);
    loop_timer_init(loop, &dns->timer, on_time, dns);
    if (open_channel(dns, server) == 0)
        return dns;
    dns_free(dns);
    return NULL;
}

void dns_free(struct dns *dns)
{
    if (!dns)
        return;
    if (dns->channel)
        ares_destroy(dns->channel);
    while (!LIST_EMPTY(&dns->wires))
        drop_wire(LIST_FIRST(&dns->wires));
    loop_timer_stop(&dns->timer);
    free(dns);
    ares_library_cleanup();
}

/* Writes the address. Returns false for one of another family. */
static bool take_address(const struct sockaddr *sa, struct dns_address *out)
{
    const struct sockaddr_in *in4 = (const void *)sa;
    const struct sockaddr_in6 *in6 = (const void *)sa;

    *out = (struct dns_address){.family = sa->sa_family};
    if (sa->sa_family == AF_INET) {
        memcpy(out->bytes, &in4->sin_addr, 4);
    } else if (sa->sa_family == AF_INET6) {
        memcpy(out->bytes, &in6->sin6_addr, 16);
        out->scope = in6->sin6_scope_id;
    }
    return sa->sa_family == AF_INET || sa->sa_family == AF_INET6;
}

/* Returns the number of an interface, by name or in digits; 0 = none. */
static uint32_t scope_of(const char *interface)
{
    uint32_t scope = if_nametoindex(interface);
    char *end;

    if (scope)
        return scope;
    scope = (uint32_t)strtoul(interface, &end, 10);
    return *end ? 0 : scope;
}

bool dns_numeric(const char *host, struct dns_address *out)
{
    char text[INET6_ADDRSTRLEN];
    size_t n = strcspn(host, "%");

    if (n >= sizeof(text))
        return false;
    *(char *)mempcpy(text, host, n) = '\0';
    *out = (struct dns_address){.family = host[n] ? AF_INET6 : AF_INET};
    if (!host[n] && inet_pton(AF_INET, text, out->bytes) == 1)
        return true;
    out->family = AF_INET6;
    if (inet_pton(AF_INET6, text, out->bytes) != 1)
        return false;
    out->scope = host[n] ? scope_of(host + n + 1) : 0;
    return !host[n] || out->scope;
}

/* Frees a look-up that has no `done` and no pending question. */
static void release(struct dns_lookup *l)
{
    if (l->done || l->v4.pending || l->v6.pending)
        return;
    loop_timer_stop(&l->timer);
    free(l->answer.v4.all);
    free(l->answer.v6.all);
    free(l);
}

static void on_end(void *arg)
{
    struct dns_lookup *l = arg;
    struct dns_answer answer = l->answer;
    dns_done *done = l->done;

    if (l->v4.pending)
        answer.v4 = (struct dns_half){.why_not = "no answer in time"};
    if (l->v6.pending)
        answer.v6 = (struct dns_half){.why_not = "no answer in time"};
    l->done = NULL;
    done(l->arg, &answer);
    release(l);
}

static void take_nodes(struct dns_half *half, const struct ares_addrinfo *found)
{
    const struct ares_addrinfo_node *node;
    size_t n = 0;

    for (node = found->nodes; node; node = node->ai_next)
        n++;
    half->all = calloc(n + 1, sizeof(*half->all));
    if (!half->all) {
        half->why_not = "out of memory";
        return;
    }
    for (node = found->nodes; node; node = node->ai_next)
        half->n += take_address(node->ai_addr, &half->all[half->n]);
}

/* Ends the look-up at once when nothing that its owner uses can still come, or
 * DNS_SKEW_US after a question that found addresses. */
static void end_soon(struct dns_lookup *l)
{
    if (!l->v4.pending && (!l->v6.pending || (l->first && l->answer.v4.n > 0)))
        loop_defer(&l->timer);
    else if (l->answer.v4.n + l->answer.v6.n > 0)
        loop_timer_start(&l->timer, DNS_SKEW_US);
}

static void on_answer(void *arg, int status, int, struct ares_addrinfo *found)
{
    struct question *q = arg;
    struct dns_lookup *l = q->of;

    q->pending = false;
    if (l->done && status == ARES_SUCCESS)
        take_nodes(q->half, found);
    else if (status != ARES_SUCCESS && status != ARES_ENODATA &&
             status != ARES_ENOTFOUND)
        q->half->why_not = ares_strerror(status);
    if (found)
        ares_freeaddrinfo(found);
    if (l->done)
        end_soon(l);
    else
        release(l);
}

static void ask(struct dns *dns, struct question *q, const char *host,
                int family)
{
    /* Without sorting, which would open a socket for each address. */
    const struct ares_addrinfo_hints hints = {.ai_flags = ARES_AI_NOSORT,
                                              .ai_family = family,
                                              .ai_socktype = SOCK_STREAM};

    ares_getaddrinfo(dns->channel, host, NULL, &hints, on_answer, q);
}

/* Returns whether a name means this machine (RFC 6761, section 6.3). */
static bool is_localhost(const char *host)
{
    const char name[] = "localhost";
    size_t n = strlen(host), m = sizeof(name) - 1;

    return n >= m && strcasecmp(host + n - m, name) == 0 &&
           (n == m || host[n - m - 1] == '.');
}

/* Makes a numeric address its family's answer. Returns false for another
 * text. */
static bool answer_by(struct dns_lookup *l, const char *numbers)
{
    struct dns_address one;
    struct dns_half *half;

    if (!dns_numeric(numbers, &one))
        return false;
    half = one.family == AF_INET ? &l->answer.v4 : &l->answer.v6;
    half->all = calloc(1, sizeof(one));
    if (half->all)
        half->all[half->n++] = one;
    else
        half->why_not = "out of memory";
    return true;
}

static struct dns_lookup *look_up(struct dns *dns, const char *host, bool first,
                                  dns_done *done, void *arg)
{
    struct dns_lookup *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->done = done;
    l->arg = arg;
    l->first = first;
    loop_timer_init(dns->loop, &l->timer, on_end, l);
    /* c-ares (1.18) would lose memory with each "localhost". */
    if (is_localhost(host) ? answer_by(l, "127.0.0.1") && answer_by(l, "::1")
                           : answer_by(l, host)) {
        end_soon(l);
        return l;
    }
    /* ask() may call back at once, so set both first. */
    l->v4 = (struct question){l, &l->answer.v4, true};
    l->v6 = (struct question){l, &l->answer.v6, true};
    ask(dns, &l->v4, host, AF_INET);
    ask(dns, &l->v6, host, AF_INET6);
    set_timer(dns);
    return l;
}

struct dns_lookup *dns_look_up(struct dns *dns, const char *host,
                               dns_done *done, void *arg)
{
    return look_up(dns, host, false, done, arg);
}

struct dns_lookup *dns_look_up_first(struct dns *dns, const char *host,
                                     dns_done *done, void *arg)
{
    return look_up(dns, host, true, done, arg);
}

void dns_cancel(struct dns_lookup *lookup)
{
    if (!lookup)
        return;
    lookup->done = NULL;
    loop_timer_stop(&lookup->timer);
    release(lookup);
}

const struct dns_address *dns_first(const struct dns_answer *answer)
{
    return answer->v4.n ? answer->v4.all : answer->v6.n ? answer->v6.all : NULL;
}

const char *dns_why_not(const struct dns_answer *answer)
{
    if (dns_first(answer))
        return NULL;
    return answer->v4.why_not ? answer->v4.why_not : answer->v6.why_not;
}

socklen_t dns_sockaddr(const struct dns_address *address, uint16_t port,
                       struct sockaddr_storage *out)
{
    struct sockaddr_in *in4 = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)out;

    *out = (struct sockaddr_storage){.ss_family = (sa_family_t)address->family};
    if (address->family == AF_INET) {
        memcpy(&in4->sin_addr, address->bytes, 4);
        in4->sin_port = htons(port);
        return sizeof(*in4);
    }
    memcpy(&in6->sin6_addr, address->bytes, 16);
    in6->sin6_port = htons(port);
    in6->sin6_scope_id = address->scope;
    return sizeof(*in6);
}
