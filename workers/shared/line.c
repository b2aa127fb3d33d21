/* See line.h. */
#include "workers/shared/line.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/redis/tls.h"

#define WHY_MAX 200

struct shared_line {
    const struct redis_url *url;
    struct tls *tls;
    struct timeval timeout;
    size_t most_bytes;
    redisContext *context; /* NULL = closed */
    unsigned next;         /* address to begin with */
    char why[WHY_MAX];
};

struct shared_line *shared_line_new(const struct redis_url *url,
                                    struct tls *tls, int64_t timeout_us,
                                    size_t most_bytes)
{
    struct shared_line *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->url = url;
    l->tls = tls;
    l->most_bytes = most_bytes;
    l->timeout.tv_sec = timeout_us / 1000000;
    l->timeout.tv_usec = timeout_us % 1000000;
    return l;
}

void shared_line_free(struct shared_line *l)
{
    if (!l)
        return;
    if (l->context)
        redisFree(l->context);
    free(l);
}

bool shared_line_is_open(const struct shared_line *l)
{
    return l->context;
}

const char *shared_line_why(const struct shared_line *l)
{
    return l->why;
}

void shared_line_close(struct shared_line *l, const char *why)
{
    if (!l->context)
        return;
    snprintf(l->why, sizeof(l->why), "%s", why); /* may be the context's */
    redisFree(l->context);
    l->context = NULL;
}

void shared_line_leave(struct shared_line *l, const char *why)
{
    shared_line_close(l, why);
    l->next = (l->next + 1) % l->url->n;
}

/* Closes the line with hiredis's error, which is EAGAIN for a time-out. */
static void fail(struct shared_line *l)
{
    const redisContext *c = l->context;
    char why[WHY_MAX];

    if (c->err == REDIS_ERR_IO && errno == EAGAIN)
        snprintf(why, sizeof(why), "no answer for %lld ms",
                 (long long)l->timeout.tv_sec * 1000 +
                     l->timeout.tv_usec / 1000);
    else
        snprintf(why, sizeof(why), "%s", c->errstr);
    shared_line_close(l, why);
}

/* Runs a command; an error closes the line. */
static int demand(struct shared_line *l, int argc, const char **argv)
{
    shared_line_add(l, argc, argv, NULL);
    redisReply *reply = shared_line_get(l);

    if (reply && reply->type == REDIS_REPLY_ERROR)
        shared_line_close(l, reply->str);
    shared_reply_free(reply);
    return l->context ? 0 : -ENOTCONN;
}

static int log_in(struct shared_line *l)
{
    const struct redis_url *u = l->url;
    const char *auth[] = {"AUTH", *u->user ? u->user : u->password,
                          u->password};
    char database[16];
    const char *select[] = {"SELECT", database};

    if (*u->password && demand(l, *u->user ? 3 : 2, auth) < 0)
        return -ENOTCONN;
    snprintf(database, sizeof(database), "%u", u->database);
    return u->database ? demand(l, 2, select) : 0;
}

static int open_one(struct shared_line *l, const struct address *at)
{
    char why[WHY_MAX];

    l->context = redisConnectWithTimeout(at->host, at->port, l->timeout);
    if (!l->context)
        return -ENOTCONN;
    if (l->context->err) {
        shared_line_close(l, l->context->errstr);
        return -ENOTCONN;
    }
    redisSetTimeout(l->context, l->timeout);
    redisEnableKeepAlive(l->context);
    if (l->url->tls &&
        !redis_tls_begin(l->context, l->tls, at->host, why, sizeof(why))) {
        shared_line_close(l, why);
        return -ENOTCONN;
    }
    return log_in(l);
}

int shared_line_open(struct shared_line *l)
{
    if (l->context)
        return 0;
    snprintf(l->why, sizeof(l->why), "out of memory");
    for (unsigned i = 0; i < l->url->n; i++) {
        if (open_one(l, &l->url->at[l->next]) == 0)
            return 0;
        l->next = (l->next + 1) % l->url->n;
    }
    return -ENOTCONN;
}

void shared_line_add(struct shared_line *l, int argc, const char **argv,
                     const size_t *lens)
{
    if (l->context &&
        redisAppendCommandArgv(l->context, argc, argv, lens) != REDIS_OK)
        fail(l);
}

void shared_line_send(struct shared_line *l)
{
    int done = 0;

    while (l->context && !done)
        if (redisBufferWrite(l->context, &done) != REDIS_OK)
            fail(l);
}

/* Reads available bytes. Returns false if the line is closed now. */
static bool read_some(struct shared_line *l, size_t *bytes)
{
    size_t before = l->context->reader->len;
    char why[WHY_MAX];

    if (redisBufferRead(l->context) != REDIS_OK) {
        fail(l);
        return false;
    }
    *bytes += l->context->reader->len - before;
    if (*bytes <= l->most_bytes)
        return true;
    snprintf(why, sizeof(why),
             "an answer is longer than the expected %zu bytes", l->most_bytes);
    shared_line_close(l, why);
    return false;
}

struct redisReply *shared_line_get(struct shared_line *l)
{
    void *reply = NULL;
    size_t bytes = 0;

    shared_line_send(l);
    while (l->context && !reply)
        if (redisGetReplyFromReader(l->context, &reply) != REDIS_OK)
            fail(l);
        else if (!reply)
            (void)!read_some(l, &bytes); /* an error leaves no context */
    return reply;
}

void shared_reply_free(struct redisReply *reply)
{
    if (reply)
        freeReplyObject(reply);
}
