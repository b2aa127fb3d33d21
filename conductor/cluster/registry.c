/*
 * The list of live conductors. One script, by the clock of Redis alone, renews
 * this conductor's lease, removes leases that are over, makes it the leader of
 * its model if there is none, and returns the conductors that are left.
 *
 * Each new lease and each new lead gets a higher token, at least the time in ms
 * and above all tokens that conductors had or heard of: so tokens rise even if
 * Redis was restarted empty, or is another one whose clock is behind.
 *
 * A key of ours that has another type is deleted. No lease is longer than
 * LONGEST_MS: a longer one was given by a server whose clock was ahead.
 */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "conductor/cluster/internal.h"

/* The largest state_lease_ms, for the script and for C. */
#define LONGEST_MS "60000"
#define LEASE_MAX_MS 60000

/*
 * KEYS: conductors by the end of their lease, their texts, the last token, the
 * leader, then streams to keep. ARGV: id, text, lease in ms, this conductor's
 * last token, the highest leader's token that it heard of.
 * Returns token, whether it is new, the leader's token, whether this conductor
 * leads, then each conductor's id, text and ms left of its lease.
 */
const char registry_script[] =
    "local kinds = {'zset', 'hash', 'string', 'string'}\n"
    "for i, key in ipairs(KEYS) do\n"
    "  local kind = redis.call('TYPE', key).ok\n"
    "  if kind ~= 'none' and kind ~= (kinds[i] or 'stream') then\n"
    "    redis.call('DEL', key)\n"
    "  end\n"
    "end\n"
    "local t = redis.call('TIME')\n"
    "local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "local lease = tonumber(ARGV[3])\n"
    "local function number(text)\n"
    "  local n = tonumber(text)\n"
    "  return n and n > 0 and n < 9007199254740992 and n or 0\n"
    "end\n"
    "local own, led = number(ARGV[4]), number(ARGV[5])\n"
    "local function fence()\n"
    "  local last = tonumber(redis.call('GET', KEYS[3]) or '0') or 0\n"
    "  if not (last >= 0 and last < 9e15) then last = 0 end\n"
    "  local f = math.max(last + 1, own + 1, led + 1, now)\n"
    "  f = string.format('%.0f', f)\n"
    "  redis.call('SET', KEYS[3], f, 'PX', 86400000)\n"
    "  return f\n"
    "end\n"
    "for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) "
    "do\n"
    "  redis.call('ZREM', KEYS[1], id)\n"
    "  redis.call('HDEL', KEYS[2], id)\n"
    "end\n"
    "local had = redis.call('HGET', KEYS[2], ARGV[1])\n"
    "local token = had and string.match(had, '^%d+')\n"
    "if number(token) == 0 or number(token) < own then\n"
    "  had = false\n"
    "  token = fence()\n"
    "end\n"
    "redis.call('ZADD', KEYS[1], now + lease, ARGV[1])\n"
    "redis.call('HSET', KEYS[2], ARGV[1], token .. ' ' .. ARGV[2])\n"
    "redis.call('PEXPIRE', KEYS[1], lease * 10)\n"
    "redis.call('PEXPIRE', KEYS[2], lease * 10)\n"
    "for i = 5, #KEYS do redis.call('PEXPIRE', KEYS[i], lease * 20) end\n"
    "local left = redis.call('PTTL', KEYS[4])\n"
    "if left == -1 or left > " LONGEST_MS " then\n"
    "  left = lease\n"
    "end\n"
    "local leader, lead = string.match(redis.call('GET', KEYS[4]) or '',\n"
    "                                  '^(%S+) (%d+)$')\n"
    "if not leader then leader = ARGV[1] end\n"
    "if leader == ARGV[1] then left = lease end\n"
    /* Workers refuse orders with a lower token than they have seen. */
    "if number(lead) == 0 or number(lead) < led then lead = fence() end\n"
    "redis.call('SET', KEYS[4], leader .. ' ' .. lead, 'PX',\n"
    "  math.max(left, 1))\n"
    "local out = {token, had and 0 or 1, lead, leader == ARGV[1] and 1 or 0}\n"
    "for _, id in ipairs(redis.call('HKEYS', KEYS[2])) do\n"
    "  local till = redis.call('ZSCORE', KEYS[1], id)\n"
    "  if till then\n"
    "    till = till - now\n"
    "    if till > " LONGEST_MS " then\n"
    "      till = lease\n"
    "      redis.call('ZADD', KEYS[1], now + lease, id)\n"
    "    end\n"
    "    out[#out + 1] = id\n"
    "    out[#out + 1] = redis.call('HGET', KEYS[2], id)\n"
    "    out[#out + 1] = till\n"
    "  else\n"
    "    redis.call('HDEL', KEYS[2], id)\n" /* the sorted set was evicted */
    "  end\n"
    "end\n"
    "return out\n";

/* Words of a renewal, beside the pools' streams. */
#define RENEWAL_WORDS 12u
#define HEAD_WORDS 4u /* of its answer, in front of the conductors */

static uint64_t number_at(const redisReply *reply, size_t i)
{
    const redisReply *r = reply->element[i];

    return r->type == REDIS_REPLY_STRING    ? strtoull(r->str, NULL, 10)
           : r->type == REDIS_REPLY_INTEGER ? (uint64_t)r->integer
                                            : 0;
}

/* Sets the lead, which ends at until_us at the latest; token 0 = none. */
static void set_leads(struct cluster *c, uint64_t token, int64_t until_us,
                      int64_t now_us)
{
    bool leads = token != 0 && now_us < until_us;

    bool is_new = leads && token != c->lead_token;

    c->lead_until_us = leads ? until_us : 0;
    c->lead_token = leads ? token : c->lead_token;
    if (leads == c->leads && !is_new)
        return;
    c->counts.led += leads && !c->leads;
    c->leads = leads;
    log_info(leads ? "state: this conductor leads: it replicates and switches "
                     "roles (token %llu)"
                   : "state: this conductor no longer leads (token %llu)",
             (unsigned long long)c->lead_token);
    if (c->ops->leads)
        c->ops->leads(c->arg, leads);
}

static void let_live(struct cluster *c, uint64_t id, int64_t until_us)
{
    struct cluster_pool *p;

    LIST_FOREACH(p, &c->pools, entry)
    {
        foreign_lives(p->foreign, id, until_us);
    }
}

/* Orders members in a way that does not depend on Redis. */
static int by_id(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

/* Takes over the members; an owner lives as long as its lease. */
static void take_members(struct cluster *c, const redisReply *reply)
{
    uint64_t digest = 0;

    c->n_members = 0;
    for (size_t i = HEAD_WORDS;
         i + 2 < reply->elements && c->n_members < CLUSTER_MEMBERS_MAX;
         i += 3) {
        const redisReply *id = reply->element[i], *text = reply->element[i + 1];
        const redisReply *left_ms = reply->element[i + 2];
        struct member *m = &c->members[c->n_members];

        if (id->type != REDIS_REPLY_STRING ||
            text->type != REDIS_REPLY_STRING ||
            left_ms->type != REDIS_REPLY_INTEGER ||
            member_read(id->str, id->len, text->str, text->len, m))
            continue;
        c->n_members++;
        if (left_ms->integer > 0 && left_ms->integer <= LEASE_MAX_MS)
            let_live(c, m->id, c->renew_us + left_ms->integer * 1000);
    }
    qsort(c->members, c->n_members, sizeof(*c->members), by_id);
    for (size_t i = 0; i < c->n_members; i++)
        digest = digest * 31 + names_of_text(c->members[i].at.host) +
                 c->members[i].at.port + c->members[i].id;
    if (digest == c->members_digest)
        return;
    c->members_digest = digest;
    log_info(c->n_members == 1 ? "state: %zu conductor holds a lease"
                               : "state: %zu conductors hold leases",
             c->n_members);
    if (c->ops->members)
        c->ops->members(c->arg);
}

/* Takes the token. A new lease voids all events that were sent before. */
static void take_token(struct cluster *c, uint64_t token, bool is_new)
{
    struct cluster_pool *p;

    if (!is_new && token == c->self.token)
        return;
    c->self.token = token;
    c->counts.leases++;
    LIST_FOREACH(p, &c->pools, entry)
    {
        p->all_due = p->ask_due = true;
        p->all_us = p->ask_us = 0;
    }
}

static void refuse_lease(struct cluster *c, const char *why)
{
    if (!c->unleased)
        log_warn("state: redis gives no lease: %s", why);
    c->unleased = true;
}

static void on_renewed(void *arg, const struct redisReply *reply)
{
    struct cluster *c = arg;
    int64_t now_us = loop_now_us(c->loop);
    /* Redis renewed it after that: the lease lasts at least until then. */
    int64_t until_us = c->renew_us + c->options.lease_us;
    struct cluster_pool *p;

    c->renewing = false;
    if (!reply || reply->type != REDIS_REPLY_ARRAY ||
        reply->elements < HEAD_WORDS) {
        if (reply && reply->type == REDIS_REPLY_ERROR)
            refuse_lease(c, reply->str);
        return;
    }
    if (c->unleased)
        log_info("state: redis gives leases again");
    c->unleased = false;
    take_token(c, number_at(reply, 0), number_at(reply, 1) == 1);
    if (number_at(reply, 2) > c->led_token)
        c->led_token = number_at(reply, 2);
    set_leads(c, number_at(reply, 3) == 1 ? number_at(reply, 2) : 0, until_us,
              now_us);
    take_members(c, reply);
    limits_among(c->limits, c->n_members);
    LIST_FOREACH(p, &c->pools, entry)
    {
        p->ask_due = true;
        tell_due(p, now_us);
        tell_beat(p);
    }
}

void registry_renew(struct cluster *c)
{
    char text[MEMBER_TEXT_MAX], lease[24], own[24], led[24];
    const char **words;
    char n_keys[16];
    int n = 3;
    struct cluster_pool *p;

    if (c->renewing || !redis_is_up(c->redis))
        return;
    if (!*c->self.at.host && c->options.workers_at.port > 0) {
        c->self.at.port = c->options.workers_at.port;
        if (redis_local_host(c->redis, c->self.at.host,
                             sizeof(c->self.at.host)))
            return;
    }
    words = calloc(RENEWAL_WORDS + (size_t)c->n_pools, sizeof(*words));
    if (!words)
        return; /* the tick tries again */
    words[0] = "EVAL";
    words[1] = registry_script;
    words[n++] = CLUSTER_PREFIX "conductors";
    words[n++] = CLUSTER_PREFIX "about";
    words[n++] = CLUSTER_PREFIX "token";
    words[n++] = c->leader_key;
    LIST_FOREACH(p, &c->pools, entry)
    {
        words[n++] = p->key;
    }
    snprintf(n_keys, sizeof(n_keys), "%d", n - 3);
    words[2] = n_keys;
    member_write(&c->self, text);
    snprintf(lease, sizeof(lease), "%lld",
             (long long)(c->options.lease_us / 1000));
    words[n++] = c->id;
    words[n++] = text;
    words[n++] = lease;
    snprintf(own, sizeof(own), "%" PRIu64, c->self.token);
    snprintf(led, sizeof(led), "%" PRIu64, c->led_token);
    words[n++] = own;
    words[n++] = led;
    c->renew_us = loop_now_us(c->loop);
    c->renewing = redis_command(c->redis, (struct redis_done){on_renewed, c}, n,
                                words, NULL) == 0;
    free(words);
}

void registry_tick(struct cluster *c, int64_t now_us)
{
    struct cluster_pool *p;

    if (c->leads && now_us >= c->lead_until_us)
        set_leads(c, 0, 0, now_us);
    LIST_FOREACH(p, &c->pools, entry)
    {
        if (foreign_expire(p->foreign, now_us))
            p->ops->freed(p->arg);
    }
}
