/* Reads the events of other conductors: the streams of all pools, over a
 * connection that waits for them. */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "base/text.h"
#include "conductor/cluster/internal.h"

#define BLOCK_MS "500"
#define READ_ENTRIES "256"
#define FENCED_LOG_US 60000000

static const redisReply *at(const redisReply *r, size_t i, int type)
{
    return r && r->type == REDIS_REPLY_ARRAY && i < r->elements &&
                   r->element[i]->type == type
               ? r->element[i]
               : NULL;
}

static struct cluster_pool *pool_of(struct cluster *c, const redisReply *key)
{
    struct cluster_pool *p;

    LIST_FOREACH(p, &c->pools, entry)
    {
        if (key && strcmp(p->key, key->str) == 0)
            return p;
    }
    return NULL;
}

/* Logs once a minute for each pool. */
static void complain(struct cluster_pool *p, const struct foreign_news *news)
{
    int64_t now_us = loop_now_us(p->cluster->loop);

    if (p->fenced_us != 0 && now_us - p->fenced_us < FENCED_LOG_US)
        return;
    p->fenced_us = now_us;
    log_warn("state: events of conductor %016" PRIx64
             " are ignored: its lease is older than its previous one; was the "
             "clock of Redis set back?",
             news->owner);
}

static void take_entry(struct cluster_pool *p, const redisReply *entry)
{
    const redisReply *id = at(entry, 0, REDIS_REPLY_STRING);
    const redisReply *fields = at(entry, 1, REDIS_REPLY_ARRAY);
    const redisReply *batch = at(fields, 1, REDIS_REPLY_STRING);
    struct foreign_news news;

    if (id)
        text_copy(p->place, sizeof(p->place), id->str);
    if (!batch)
        return;
    news = foreign_take(p->foreign, batch->str, batch->len,
                        p->cluster->options.lease_us,
                        loop_now_us(p->cluster->loop));
    if (news.fenced)
        complain(p, &news);
    if (news.own)
        tell_echo(p, news.number, loop_now_us(p->cluster->loop));
    p->ask_due = p->ask_due || news.gap;
    p->asked = p->asked || news.asks;
    if (news.freed)
        p->ops->freed(p->arg);
}

static void take_stream(struct cluster *c, const redisReply *stream)
{
    struct cluster_pool *p = pool_of(c, at(stream, 0, REDIS_REPLY_STRING));
    const redisReply *entries = at(stream, 1, REDIS_REPLY_ARRAY);

    for (size_t i = 0; p && entries && i < entries->elements; i++)
        take_entry(p, entries->element[i]);
    if (p)
        tell_due(p, loop_now_us(p->cluster->loop));
}

static void on_read(void *arg, const struct redisReply *reply)
{
    struct cluster *c = arg;

    c->reading = false;
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        return; /* the tick tries again */
    if (reply->type == REDIS_REPLY_ARRAY)
        for (size_t i = 0; i < reply->elements; i++)
            take_stream(c, reply->element[i]);
    hear_on(c);
}

/* Reads on behind the last entry of a stream, if there is one. In place of
 * earlier entries, asks others for their full state, and publishes the own one,
 * since a question may be among them. */
static void on_place(void *arg, const struct redisReply *reply)
{
    struct cluster *c = arg;
    struct cluster_pool *p = c->placing;
    const redisReply *last = at(reply, 0, REDIS_REPLY_ARRAY);
    const redisReply *id = at(last, 0, REDIS_REPLY_STRING);

    c->reading = false;
    c->placing = NULL;
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        return;
    if (p) {
        text_copy(p->place, sizeof(p->place), id ? id->str : "0-0");
        p->echoed = p->number;
        p->ask_due = p->asked = true;
        tell_due(p, loop_now_us(p->cluster->loop));
    }
    hear_on(c);
}

static void ask(struct cluster *c,
                void (*fn)(void *, const struct redisReply *), int n,
                const char *const words[])
{
    c->reading = redis_command(c->reader, (struct redis_done){fn, c}, n, words,
                               NULL) == 0;
}

/* Waits for what is behind the places of all pools, at least one. */
static void read_all(struct cluster *c)
{
    const char *const head[] = {"XREAD", "BLOCK",      BLOCK_MS,
                                "COUNT", READ_ENTRIES, "STREAMS"};
    const int n_head = sizeof(head) / sizeof(head[0]);
    int n = c->n_pools, i = n_head;
    const char **words = calloc((size_t)n_head + 2 * (size_t)n, sizeof(*words));
    struct cluster_pool *p;

    if (!words)
        return; /* the tick tries again */
    memcpy(words, head, sizeof(head));
    LIST_FOREACH(p, &c->pools, entry)
    {
        words[i] = p->key;
        words[n + i++] = p->place;
    }
    ask(c, on_read, n_head + 2 * n, words);
    free(words);
}

void hear_on(struct cluster *c)
{
    struct cluster_pool *p;

    if (c->reading || !redis_is_up(c->reader))
        return;
    LIST_FOREACH(p, &c->pools, entry)
    {
        if (!*p->place) {
            c->placing = p;
            ask(c, on_place, 6,
                (const char *[]){"XREVRANGE", p->key, "+", "-", "COUNT", "1"});
            return;
        }
    }
    if (c->n_pools > 0)
        read_all(c);
}

void hear_anew(struct cluster *c)
{
    struct cluster_pool *p;

    LIST_FOREACH(p, &c->pools, entry)
    {
        p->place[0] = '\0';
    }
    hear_on(c);
}
