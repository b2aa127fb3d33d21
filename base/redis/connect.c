/*
 * Connects: from an address to a primary that takes commands. hiredis blocks on
 * name look-ups, so it gets only numeric addresses.
 */
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "base/dns.h"
#include "base/log.h"
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

/* --- hiredis on the loop: it says for what to wait --- */

static void on_readable(void *arg, unsigned)
{
    struct redis *r = arg;

    redisAsyncHandleRead(r->attached);
}

static void on_writable(void *arg, unsigned)
{
    struct redis *r = arg;

    redisAsyncHandleWrite(r->attached);
}

/* Starts a watch. Without memory for it no answer comes, and the deadline ends
 * the connection. */
static void begin(struct loop_watch *w)
{
    if (!loop_watch_pending(w) && loop_watch_start(w, 0))
        log_error("redis: out of memory");
}

static void add_read(void *arg)
{
    begin(&((struct redis *)arg)->readable);
}

static void del_read(void *arg)
{
    loop_watch_stop(&((struct redis *)arg)->readable);
}

static void add_write(void *arg)
{
    begin(&((struct redis *)arg)->writable);
}

static void del_write(void *arg)
{
    loop_watch_stop(&((struct redis *)arg)->writable);
}

/* hiredis will close the socket. */
static void detach(void *arg)
{
    struct redis *r = arg;

    del_read(r);
    del_write(r);
    r->attached = NULL;
}

static void attach(struct redis *r, redisAsyncContext *ac)
{
    r->attached = ac;
    loop_watch_init(r->loop, &r->readable, ac->c.fd, LOOP_READ, on_readable, r);
    loop_watch_init(r->loop, &r->writable, ac->c.fd, LOOP_WRITE, on_writable,
                    r);
    ac->ev.data = r;
    ac->ev.addRead = add_read;
    ac->ev.delRead = del_read;
    ac->ev.addWrite = add_write;
    ac->ev.delWrite = del_write;
    ac->ev.cleanup = detach;
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
    if (!ac || ac->err || (r->url.tls && !r->ssl)) {
        redis_leave(r, ac && ac->err ? ac->errstr : why);
        r->ssl = NULL;
        if (ac)
            redisAsyncFree(ac);
        return;
    }
    attach(r, ac);
    socket_tune(r->loop, ac->c.fd);
    ac->data = r;
    r->ac = ac;
    redisAsyncSetDisconnectCallback(ac, on_disconnect);
    redisAsyncSetConnectCallback(ac, on_connect); /* begins to wait */
}

static void on_looked_up(void *arg, const struct dns_answer *answer)
{
    struct redis *r = arg;
    const struct dns_address *first = dns_first(answer);
    const char *why = dns_why_not(answer);
    struct sockaddr_storage at;
    char numbers[NI_MAXHOST];

    r->lookup = NULL;
    if (!first)
        redis_leave(r, why ? why : "the host has no address");
    else if (getnameinfo((struct sockaddr *)&at, dns_sockaddr(first, 0, &at),
                         numbers, sizeof(numbers), NULL, 0, NI_NUMERICHOST))
        redis_leave(r, "out of memory");
    else
        connect_to(r, numbers);
}

void redis_connect(struct redis *r)
{
    r->asks = *r->url.primary && !r->directed;
    if (!r->directed)
        r->to = r->url.at[r->turn++ % r->url.n];
    r->directed = false;
    r->step = RESOLVING;
    redis_deadline(r, r->options.timeout_us);
    r->lookup = dns_look_up_first(r->dns, r->to.host, on_looked_up, r);
    if (!r->lookup)
        redis_leave(r, "out of memory");
}
