/*
 * Connects: from an address to a primary that takes commands. hiredis blocks on
 * name look-ups, so it gets only numeric addresses.
 */
#include <event2/dns.h>
#include <event2/util.h>
#include <hiredis/adapters/libevent.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop/libevent.h"
#include "base/loop/loop.h"
#include "base/redis/internal.h"
#include "base/redis/tls.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/tls.h"

static const redisReply *element(const redisReply *reply, size_t i)
{
    return reply->type == REDIS_REPLY_ARRAY && i < reply->elements &&
                   reply->element[i]->type == REDIS_REPLY_STRING
               ? reply->element[i]
               : NULL;
}

/* Answer to AUTH and SELECT. */
static void on_entry(void *arg, const struct redisReply *reply)
{
    if (reply && reply->type == REDIS_REPLY_ERROR)
        redis_leave(arg, reply->str);
}

/* Ignores the answer to AUTH: most Sentinels have no password although their
 * servers do. A Sentinel with another password refuses the next command. */
static void on_sentinel_entry(void *, const struct redisReply *)
{
}

/* Handles the answer to ROLE, the last command of the greeting. If ROLE is
 * forbidden, any server is accepted. */
static void on_role(void *arg, const struct redisReply *reply)
{
    struct redis *r = arg;
    const redisReply *role = reply ? element(reply, 0) : NULL;

    if (!reply || loop_timer_pending(&r->leave))
        return;
    if (role && strcmp(role->str, "master") != 0)
        redis_leave(r, "it is a replica");
    else if (reply->type == REDIS_REPLY_ERROR &&
             strncmp(reply->str, "NOPERM", 6) != 0)
        redis_leave(r, reply->str);
    else
        redis_come_up(r);
}

/* Handles a Sentinel's answer: host and port of the primary, or nil. */
static void on_primary(void *arg, const struct redisReply *reply)
{
    struct redis *r = arg;
    const redisReply *host = reply ? element(reply, 0) : NULL;
    const redisReply *port = reply ? element(reply, 1) : NULL;

    if (!reply)
        return;
    if (!host || !port || host->len >= sizeof(r->to.host)) {
        redis_leave(r, reply->type == REDIS_REPLY_ERROR
                           ? reply->str
                           : "this Sentinel knows no such primary");
        return;
    }
    text_copy(r->to.host, sizeof(r->to.host), host->str);
    r->to.port = (uint16_t)strtoul(port->str, NULL, 10);
    r->directed = true;
    redis_leave(r, "asked");
}

static void greet_with(struct redis *r,
                       void (*fn)(void *, const struct redisReply *), int argc,
                       const char *const argv[])
{
    if (redis_send(r, (struct redis_done){fn, r}, argc, argv, NULL))
        redis_leave(r, "out of memory");
}

static void greet(struct redis *r)
{
    const struct redis_url *url = &r->url;
    void (*entry)(void *, const struct redisReply *) =
        r->asks ? on_sentinel_entry : on_entry;
    char database[16];

    r->step = GREETING;
    if (*url->user)
        greet_with(r, entry, 3,
                   (const char *[]){"AUTH", url->user, url->password});
    else if (*url->password)
        greet_with(r, entry, 2, (const char *[]){"AUTH", url->password});
    if (r->asks) {
        greet_with(r, on_primary, 3,
                   (const char *[]){"SENTINEL", "get-master-addr-by-name",
                                    url->primary});
        return;
    }
    if (url->database) {
        snprintf(database, sizeof(database), "%u", url->database);
        greet_with(r, on_entry, 2, (const char *[]){"SELECT", database});
    }
    greet_with(r, on_role, 1, (const char *[]){"ROLE"});
}

/* Leaves with OpenSSL's reason: hiredis tells little about TLS failures. */
static void leave_with(struct redis *r, const char *why)
{
    char text[sizeof(r->why)];

    if (tls_explain(r->ssl, ERR_peek_last_error(), text, sizeof(text)))
        why = text;
    ERR_clear_error();
    r->ssl = NULL;
    redis_leave(r, why);
}

static void on_connect(const redisAsyncContext *ac, int status)
{
    struct redis *r = ac->data;

    if (!r)
        return;
    if (status == REDIS_OK) {
        greet(r);
        return;
    }
    r->ac = NULL; /* hiredis frees it */
    leave_with(r, ac->errstr);
}

static void on_disconnect(const redisAsyncContext *ac, int)
{
    struct redis *r = ac->data;

    if (!r || r->ac != ac)
        return;
    r->ac = NULL; /* hiredis frees it */
    leave_with(r, *ac->errstr ? ac->errstr : "closed");
}

static void connect_to(struct redis *r, const char *numbers)
{
    redisAsyncContext *ac = redisAsyncConnect(numbers, r->to.port);
    char why[sizeof(r->why)] = "out of memory";

    r->ssl = NULL;
    r->step = CONNECTING;
    if (ac && !ac->err && r->url.tls)
        r->ssl = redis_tls_begin(&ac->c, r->options.tls, r->to.host, why,
                                 sizeof(why));
    if (!ac || ac->err || (r->url.tls && !r->ssl) ||
        redisLibeventAttach(ac, loop_event_base(r->loop))) {
        redis_leave(r, ac && ac->err ? ac->errstr : why);
        r->ssl = NULL;
        if (ac)
            redisAsyncFree(ac);
        return;
    }
    socket_tune(r->loop, ac->c.fd);
    ac->data = r;
    r->ac = ac;
    redisAsyncSetDisconnectCallback(ac, on_disconnect);
    redisAsyncSetConnectCallback(ac, on_connect);
}

static void on_resolved(int rc, struct evutil_addrinfo *found, void *arg)
{
    struct redis *r = arg;
    char numbers[NI_MAXHOST];
    bool was_cancelled = rc == EVUTIL_EAI_CANCEL;

    if (!was_cancelled)
        r->look_up = NULL;
    if (!was_cancelled && !rc)
        rc = getnameinfo(found->ai_addr, (socklen_t)found->ai_addrlen, numbers,
                         sizeof(numbers), NULL, 0, NI_NUMERICHOST);
    if (found)
        evutil_freeaddrinfo(found);
    if (was_cancelled)
        return;
    if (rc)
        redis_leave(r, evutil_gai_strerror(rc));
    else
        connect_to(r, numbers);
}

void redis_connect(struct redis *r)
{
    const struct evutil_addrinfo hints = {.ai_family = AF_UNSPEC,
                                          .ai_socktype = SOCK_STREAM};
    struct evdns_getaddrinfo_request *look_up;

    r->asks = *r->url.primary && !r->directed;
    if (!r->directed)
        r->to = r->url.at[r->turn++ % r->url.n];
    r->directed = false;
    r->step = RESOLVING;
    redis_deadline(r, r->options.timeout_us);
    look_up = evdns_getaddrinfo(loop_dns_base(r->dns), r->to.host, NULL, &hints,
                                on_resolved, r);
    if (look_up && r->step == RESOLVING)
        r->look_up = look_up;
}
