/* See commands.h. Checks, heads, index; read.c and put.c move block data. */
#include "workers/shared/commands.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/entropy.h"
#include "workers/shared/internal.h"

/* Largest answer to ZSCAN in bytes, even from a store configured to return a
 * whole compact set at once. */
#define LIST_BYTES (8u << 20)

/* Commands pipelined at once. */
#define ASKED_MAX 64u

void shared_ask(struct shared_store *s, int n, const char *const *words)
{
    shared_line_add(s->line, n, (const char **)(uintptr_t)words, NULL);
}

int shared_refused(struct shared_store *s, const redisReply *reply)
{
    if (!reply)
        return -ENOTCONN;
    if (reply->type != REDIS_REPLY_ERROR)
        return 0;
    snprintf(s->why, sizeof(s->why), "%.150s", reply->str);
    return strncmp(reply->str, "OOM", 3) == 0         ? -ENOSPC
           : strncmp(reply->str, "WRONGTYPE", 9) == 0 ? -EBADMSG
                                                      : -EPROTO;
}

int shared_take(struct shared_store *s, long long *value)
{
    redisReply *reply = shared_line_get(s->line);
    int rc = shared_refused(s, reply);

    if (rc == 0 && value)
        *value = reply->type == REDIS_REPLY_INTEGER ? reply->integer
                 : reply->type == REDIS_REPLY_NIL   ? -1
                                                    : 0;
    shared_reply_free(reply);
    return rc;
}

int shared_take_all(struct shared_store *s, uint32_t n)
{
    int first = 0;

    for (uint32_t i = 0; i < n; i++) {
        int rc = shared_take(s, NULL);

        if (rc == -ENOTCONN)
            return rc;
        first = first ? first : rc;
    }
    return first;
}

void shared_now(const struct shared_store *s, int64_t less_s,
                char out[SHARED_NUMBER_MAX])
{
    snprintf(out, SHARED_NUMBER_MAX, "%" PRId64,
             s->ahead_us + clock_now_us() - less_s * 1000000);
}

uint32_t shared_part_layers(const struct shared_store *s)
{
    uint64_t n = SHARED_PART_BYTES / (s->shape.block_bytes / s->shape.layers);

    return n < 1 ? 1 : n < s->shape.layers ? (uint32_t)n : s->shape.layers;
}

size_t shared_answer_bytes(const struct shared_shape *shape)
{
    size_t layer = shape->block_bytes / shape->layers;

    return (layer > SHARED_PART_BYTES ? layer : SHARED_PART_BYTES) + LIST_BYTES;
}

/* --- which contents ----------------------------------------------------- */

static int learn_time(struct shared_store *s)
{
    shared_ask(s, 1, (const char *const[]){"TIME"});
    redisReply *reply = shared_line_get(s->line);
    int rc = shared_refused(s, reply);

    if (rc == 0 && (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
                    reply->element[0]->type != REDIS_REPLY_STRING ||
                    reply->element[1]->type != REDIS_REPLY_STRING))
        rc = -EPROTO;
    if (rc == 0)
        s->ahead_us = strtoll(reply->element[0]->str, NULL, 10) * 1000000 +
                      strtoll(reply->element[1]->str, NULL, 10) -
                      clock_now_us();
    shared_reply_free(reply);
    return rc;
}

/* The first worker sets the contents id; later ones keep it. */
static int learn_id(struct shared_store *s, uint64_t *id)
{
    char name[SHARED_NAME_MAX];
    char mine[SHARED_NUMBER_MAX];
    char ttl[SHARED_NUMBER_MAX];

    shared_name(&s->shape, "id", name);
    snprintf(mine, sizeof(mine), "%016" PRIx64, entropy_u64() | 1);
    snprintf(ttl, sizeof(ttl), "%u", s->ttl_s);
    shared_ask(s, 6, (const char *const[]){"SET", name, mine, "NX", "EX", ttl});
    shared_ask(s, 3, (const char *const[]){"EXPIRE", name, ttl});
    shared_ask(s, 2, (const char *const[]){"GET", name});
    int rc = shared_take_all(s, 2);
    redisReply *reply = rc == -ENOTCONN ? NULL : shared_line_get(s->line);
    if (rc == -ENOSPC)
        rc = 0; /* an id may be there already */
    if (rc == 0)
        rc = shared_refused(s, reply);
    if (rc == 0)
        *id = reply->type == REDIS_REPLY_STRING
                  ? strtoull(reply->str, NULL, 16) | 1
                  : 1;
    shared_reply_free(reply);
    if (rc == -EBADMSG) { /* not an id; the next check sets one */
        shared_ask(s, 2, (const char *const[]){"UNLINK", name});
        rc = shared_take(s, NULL) == -ENOTCONN ? -ENOTCONN : -EPROTO;
    }
    return rc;
}

/* Checks that reads work: a replica without its primary, and a server that is
 * still loading, also answer PING. */
static int learn_reads(struct shared_store *s)
{
    char name[SHARED_NAME_MAX];

    shared_name(&s->shape, "id", name);
    shared_ask(s, 2, (const char *const[]){"EXISTS", name});
    return shared_take(s, NULL);
}

int shared_check(struct shared_store *s, bool writes, uint64_t *id)
{
    int rc = shared_line_open(s->line);

    *id = 0;
    if (rc == 0 && writes) {
        rc = learn_time(s);
        if (rc == 0)
            rc = learn_id(s, id);
    } else if (rc == 0) {
        rc = learn_reads(s);
    }
    if (rc == -EPROTO)
        shared_line_leave(s->line, s->why); /* try again later */
    return rc == 0 ? 0 : -ENOTCONN;
}

/* --- heads -------------------------------------------------------------- */

static void ask_head(struct shared_store *s, uint64_t key)
{
    char name[SHARED_NAME_MAX];

    shared_block_name(&s->shape, key, name);
    shared_ask(s, 3, (const char *const[]){"HGET", name, "h"});
}

/* Returns 0, -ENOENT (no head, or not of this key), or an error as in
 * commands.h. */
static int take_head(struct shared_store *s, uint64_t key,
                     struct shared_head *head)
{
    redisReply *reply = shared_line_get(s->line);
    int rc = shared_refused(s, reply);

    if (rc == -EBADMSG ||
        (rc == 0 && (reply->type != REDIS_REPLY_STRING ||
                     shared_head_decode(&s->shape, reply->str,
                                        (size_t)reply->len, head) < 0 ||
                     head->key != key)))
        rc = -ENOENT;
    shared_reply_free(reply);
    return rc;
}

int shared_heads(struct shared_store *s, const uint64_t *keys, uint32_t n,
                 struct shared_head *heads, uint32_t *found)
{
    int rc = 0;

    *found = 0;
    for (uint32_t at = 0; at < n && rc == 0; at += ASKED_MAX) {
        uint32_t end = n - at < ASKED_MAX ? n : at + ASKED_MAX;

        for (uint32_t i = at; i < end; i++)
            ask_head(s, keys[i]);
        for (uint32_t i = at; i < end; i++) {
            int one = take_head(s, keys[i], &heads[i]);

            if (one == -ENOTCONN)
                return one;
            rc = rc ? rc : one;
            *found += rc == 0;
        }
    }
    return rc == -ENOENT ? 0 : rc;
}

/* --- the index ---------------------------------------------------------- */

static void ask_touch(struct shared_store *s, const struct shared_known *b)
{
    char name[SHARED_NAME_MAX];
    char index[SHARED_NAME_MAX];
    char member[SHARED_MEMBER_BYTES + 1];
    char now[SHARED_NUMBER_MAX];
    char ttl[SHARED_NUMBER_MAX];

    shared_block_name(&s->shape, b->key, name);
    shared_name(&s->shape, "index", index);
    shared_member_encode(b->key, b->parent_key, member);
    shared_now(s, 0, now);
    snprintf(ttl, sizeof(ttl), "%u", s->ttl_s);
    shared_ask(s, 3, (const char *const[]){"EXPIRE", name, ttl});
    shared_ask(s, 4, (const char *const[]){"ZADD", index, now, member});
}

int shared_touch(struct shared_store *s, const struct shared_known *blocks,
                 uint32_t n)
{
    int rc = 0;

    for (uint32_t at = 0; at < n && rc != -ENOTCONN; at += ASKED_MAX) {
        uint32_t end = n - at < ASKED_MAX ? n : at + ASKED_MAX;

        for (uint32_t i = at; i < end; i++)
            ask_touch(s, &blocks[i]);
        int one = shared_take_all(s, 2 * (end - at));
        rc = one == -ENOTCONN || rc == 0 ? one : rc;
    }
    return rc;
}

int shared_remove(struct shared_store *s, const struct shared_known *known)
{
    char name[SHARED_NAME_MAX];
    char index[SHARED_NAME_MAX];
    char member[SHARED_MEMBER_BYTES + 1];

    shared_block_name(&s->shape, known->key, name);
    shared_name(&s->shape, "index", index);
    shared_member_encode(known->key, known->parent_key, member);
    shared_ask(s, 2, (const char *const[]){"UNLINK", name});
    shared_ask(s, 3, (const char *const[]){"ZREM", index, member});
    return shared_take_all(s, 2);
}

/* Reads the members from a ZSCAN answer; each is followed by its score. */
static void read_members(const redisReply *list, struct shared_known *out,
                         uint32_t *n)
{
    for (size_t i = 0; i < list->elements && *n < SHARED_LIST_MAX; i += 2) {
        const redisReply *m = list->element[i];

        if (m->type == REDIS_REPLY_STRING &&
            shared_member_decode(m->str, (size_t)m->len, &out[*n].key,
                                 &out[*n].parent_key) == 0)
            ++*n;
    }
}

int shared_list(struct shared_store *s, uint64_t *cursor,
                struct shared_known *out, uint32_t *n)
{
    char index[SHARED_NAME_MAX];
    char from[SHARED_NUMBER_MAX];

    *n = 0;
    shared_name(&s->shape, "index", index);
    snprintf(from, sizeof(from), "%" PRIu64, *cursor);
    shared_ask(s, 5,
               (const char *const[]){"ZSCAN", index, from, "COUNT", "1000"});
    redisReply *reply = shared_line_get(s->line);
    int rc = shared_refused(s, reply);
    if (rc == 0 && (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
                    reply->element[0]->type != REDIS_REPLY_STRING ||
                    reply->element[1]->type != REDIS_REPLY_ARRAY))
        rc = -EPROTO;
    if (rc == 0) {
        read_members(reply->element[1], out, n);
        *cursor = strtoull(reply->element[0]->str, NULL, 10);
    }
    shared_reply_free(reply);
    return rc;
}
