/*
 * The conductors that send this worker requests: given by --conductor, or named
 * by others (CONDUCTORS). Each has its own connection, gets the whole
 * inventory, and reports of its own requests only. Losing one costs its
 * requests; the cache and the other conductors' requests stay.
 *
 * A conductor may have two addresses: the one on the command line, and the one
 * it announces itself (`alias`).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/listener.h"
#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/service/internal.h"

/* An unreachable conductor that no other names for this long is forgotten. */
#define FORGET_US 30000000

static bool same(const struct address *a, const struct address *b)
{
    return a->port == b->port && strcasecmp(a->host, b->host) == 0;
}

static void conductor_free(struct conductor *c)
{
    struct worker *w = c->worker;

    worker_drop_all(w, c);
    conductor_link_free(c->link);
    TAILQ_REMOVE(&w->conductors, c, entry);
    w->n_conductors--;
    free(c);
}

bool worker_has_conductor(const struct worker *w)
{
    const struct conductor *c;

    TAILQ_FOREACH(c, &w->conductors, entry)
    {
        if (c->up)
            return true;
    }
    return false;
}

/* Returns the new conductor, or NULL: out of memory. */
static struct conductor *add(struct worker *w, const struct address *at,
                             const struct msg_hello *hello)
{
    struct conductor *c = calloc(1, sizeof(*c));
    struct conductor_link_config link = {
        .loop = w->loop,
        .stream_loop = w->stream_loop,
        .dns = w->dns,
        .secret = w->secret,
        .tls = w->tls,
        .at = *at,
        .hello = hello,
    };

    if (!c)
        return NULL;
    c->worker = w;
    c->at = c->alias = *at;
    TAILQ_INSERT_TAIL(&w->conductors, c, entry);
    w->n_conductors++;
    c->link = conductor_link_new(&link, w->link_ops, c);
    if (c->link)
        return c;
    conductor_free(c);
    return NULL;
}

int worker_conductors_start(struct worker *w, const struct msg_hello *hello)
{
    w->hello = *hello;
    for (uint32_t i = 0; i < w->options->n_conductors; i++) {
        struct conductor *c = add(w, &w->options->conductors[i], hello);

        if (!c)
            return -1;
        c->listed = true;
    }
    return 0;
}

static struct conductor *find(const struct worker *w, const struct address *at)
{
    struct conductor *c;

    TAILQ_FOREACH(c, &w->conductors, entry)
    {
        if (same(&c->at, at) || same(&c->alias, at))
            return c;
    }
    return NULL;
}

/* Handles an announcement of `c`, its address `at`: frees another entry for
 * this address. */
static void take_alias(struct worker *w, struct conductor *c,
                       const struct address *at)
{
    struct conductor *other, *next;

    c->alias = *at;
    for (other = TAILQ_FIRST(&w->conductors); other; other = next) {
        next = TAILQ_NEXT(other, entry);
        if (other != c && !other->listed && same(&other->at, at))
            conductor_free(other);
    }
}

/* Without a secret, only conductors on this machine are trusted. */
static bool may_trust(const struct worker *w, const struct address *at)
{
    return w->secret || host_is_loopback(at->host);
}

int worker_take_conductors(struct conductor *from, const uint8_t *payload,
                           size_t len)
{
    struct worker *w = from->worker;
    struct msg_conductors m;
    struct address at;

    if (msg_conductors_unpack(payload, len, &m))
        return -EBADMSG;
    for (uint8_t i = 0; i < m.n; i++) {
        snprintf(at.host, sizeof(at.host), "%s", m.at[i].host);
        at.port = m.at[i].port;
        if (i == 0) {
            take_alias(w, from, &at);
            continue;
        }
        struct conductor *c = find(w, &at);

        if (!c && w->n_conductors < MSG_CONDUCTORS_MAX && may_trust(w, &at))
            c = add(w, &at, &w->hello);
        if (c)
            c->named_us = loop_now_us(w->loop);
    }
    return 0;
}

static bool has_requests(const struct worker *w, const struct conductor *of)
{
    const struct request *r;

    for (uint32_t i = 0; i < REQUEST_BUCKETS; i++)
        LIST_FOREACH(r, &w->requests.buckets[i], by_id)
        {
            if (r->conductor == of)
                return true;
        }
    return false;
}

/* Reconnects to announce the new role once no request of `c` is left. */
static void turn(struct worker *w, struct conductor *c)
{
    if (!c->turns || c->leave_due || has_requests(w, c))
        return;
    c->turns = false;
    conductor_link_again(c->link, "this worker has another role");
}

/* Returns the highest leadership token of connected conductors; 0 = none. */
static uint64_t lead_token(const struct worker *w)
{
    const struct conductor *c;
    uint64_t token = 0;

    TAILQ_FOREACH(c, &w->conductors, entry)
    {
        if (c->up && c->lead > token)
            token = c->lead;
    }
    return token;
}

void worker_conductors_tick(struct worker *w, int64_t now_us)
{
    struct conductor *c, *next;

    if (lead_look(&w->lead, lead_token(w), now_us)) {
        if (w->lead.token == 0)
            log_info("no conductor leads any more: orders of all conductors "
                     "are followed");
        else
            log_info("the leading conductor is gone: orders with the lower "
                     "token %llu are followed",
                     (unsigned long long)w->lead.token);
    }
    for (c = TAILQ_FIRST(&w->conductors); c; c = next) {
        next = TAILQ_NEXT(c, entry);
        turn(w, c);
        if (!c->refuses &&
            (c->listed || c->up || now_us - c->named_us < FORGET_US))
            continue;
        log_info("conductor %s:%u: no longer looked for", c->at.host,
                 c->at.port);
        conductor_free(c);
    }
}

void worker_conductors_free(struct worker *w)
{
    while (!TAILQ_EMPTY(&w->conductors))
        conductor_free(TAILQ_FIRST(&w->conductors));
}

void worker_turn(struct conductor *c)
{
    struct worker *w = c->worker;

    c->turns = true;
    if (!c->up || c->leave_due)
        return;
    c->leave_due = true;
    msg_empty_pack(&w->out, FRAME_LEAVING, 0);
    worker_send(w, c);
}

void worker_set_role(struct conductor *from, uint8_t role)
{
    struct worker *w = from->worker;
    struct conductor *c;

    w->role = w->hello.role = from->role = role;
    TAILQ_FOREACH(c, &w->conductors, entry)
    {
        conductor_link_set_role(c->link, role);
        if (c != from && c->up)
            worker_turn(c);
    }
}

int worker_take_lead(struct conductor *from, const uint8_t *payload, size_t len)
{
    struct worker *w = from->worker;
    struct msg_lead m;

    if (msg_lead_unpack(payload, len, &m))
        return -EBADMSG;
    from->lead = m.token;
    lead_take(&w->lead, m.token, loop_now_us(w->loop));
    return 0;
}
