/*
 * See limits.h. The book has a hash for each client: the total of all
 * conductors that has not yet drained away, as of a time of Redis's clock, and
 * for each conductor the amount that it has reported so far.
 *
 * A report has a conductor's total since its start, and how much of that was in
 * the book by its last answer, so a lost or repeated report changes nothing. It
 * also has that answer's totals, for a book that lost them.
 */
#include "conductor/cluster/limits.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "base/redis/redis.h"
#include "base/text.h"
#include "conductor/cluster/internal.h"

/* KEYS: one for each client. ARGV: this conductor, its lease in ms, then for
 * each client: its limits of requests and of tokens a minute; requests taken
 * here in all, and how many of them the book has; tokens likewise; the book's
 * totals of requests and of tokens; requests in work here. Returns for each
 * client the requests, tokens and requests in work of all conductors. */
const char limits_script[] =
    "local t = redis.call('TIME')\n"
    "local now = t[1] * 1000 + t[2] / 1000\n"
    "local me, lease = ARGV[1], tonumber(ARGV[2])\n"
    "local out = {}\n"
    "local function number(text)\n"
    "  local n = tonumber(text)\n"
    "  return n and n >= 0 and n < 1e15 and n\n"
    "end\n"
    "for k = 1, #KEYS do\n"
    "  local v, all, others = {}, {}, 0\n"
    "  for i = 1, 9 do v[i] = tonumber(ARGV[2 + (k - 1) * 9 + i]) end\n"
    "  local h = redis.pcall('HGETALL', KEYS[k])\n"
    "  if h.err then\n" /* a key of another type */
    "    redis.call('DEL', KEYS[k])\n"
    "    h = {}\n"
    "  end\n"
    "  for i = 1, #h, 2 do all[h[i]] = h[i + 1] end\n"
    "  for id, text in pairs(all) do\n"
    "    if #id == 16 and id ~= me then\n"
    "      local open, till = string.match(text, '(%S+) (%S+)$')\n"
    "      open, till = number(open), number(till)\n"
    "      if not open or not till or till < now or till > now + 60000 then\n"
    "        redis.call('HDEL', KEYS[k], id)\n"
    "      else others = others + open end\n"
    "    end\n"
    "  end\n"
    "  if not (number(all.at) and number(all.asks) and number(all.tokens)) "
    "then\n"
    "    all = {at = now, asks = 0, tokens = 0}\n"
    "  end\n"
    "  local had = {string.match(all[me] or '', '^(%S+) (%S+)')}\n"
    "  local passed = math.max(0, now - all.at)\n"
    "  local longest = 0\n"
    "  for i, name in ipairs({'asks', 'tokens'}) do\n"
    "    local own, told = v[1 + 2 * i], v[2 + 2 * i]\n"
    "    local in_book = number(had[i]) or -1\n"
    "    local taken = all[name] - v[i] / 60000 * passed\n"
    "    taken = math.max(0, taken)\n"
    "    if in_book < told then taken = math.max(taken, v[6 + i]) end\n"
    "    if in_book < told or in_book > own then in_book = told end\n"
    "    taken = v[i] > 0 and taken + own - in_book or 0\n"
    "    if v[i] > 0 then longest = math.max(longest, taken / v[i]) end\n"
    "    all[name] = string.format('%.9f', taken)\n"
    "  end\n"
    "  redis.call('HSET', KEYS[k], 'asks', all.asks, 'tokens', all.tokens,\n"
    "    'at', string.format('%.3f', now), me, string.format(\n"
    "    '%.17g %.17g %d %.0f', v[3], v[5], v[9], now + lease))\n"
    "  redis.call('PEXPIRE', KEYS[k], math.floor(\n"
    "    math.min(longest * 60000, 864e5) + 60000 + lease))\n"
    "  out[#out + 1] = all.asks\n"
    "  out[#out + 1] = all.tokens\n"
    "  out[#out + 1] = others + v[9]\n"
    "end\n"
    "return out\n";

#define VALUES 9
#define VALUE_BYTES 32
#define TAKEN_MAX 2e15
#define SHA_BYTES 48
/* Least time between two reports of a conductor, times the number of
 * conductors: all together send at most a thousand a second. */
#define APART_US 1000
/* Polls in a lease, by each conductor. */
#define POLLS 12
/* The book is unreachable after 1 / PATIENCE of a lease without answer. */
#define PATIENCE 2

struct limits {
    struct redis *redis; /* borrowed */
    const char *id;      /* borrowed */
    int64_t lease_us;
    limits_at *at;
    void *arg;
    struct loop *loop;
    struct loop_timer poll, soon;
    char sha[SHA_BYTES];        /* of the script in this Redis; "" = unknown */
    bool asking;                /* an answer is due */
    bool all_due;               /* clients without news are reported, too */
    uint64_t asked[LIMITS_MAX]; /* clients of the report under way */
    size_t n_asked;
    unsigned conductors;
    int64_t sent_us, heard_us;
    struct limits_counts counts;
};

/* The memory of a report. */
struct report {
    const char *words[3 + LIMITS_MAX + 2 + LIMITS_MAX * VALUES];
    char n_keys[16], lease[24];
    char keys[LIMITS_MAX][CLUSTER_KEY_MAX];
    char values[LIMITS_MAX * VALUES][VALUE_BYTES];
};

static struct joint_key *find(struct limits *l, uint64_t number)
{
    struct joint_key *k;

    for (size_t i = 0; (k = l->at(l->arg, i)); i++)
        if (k->number == number)
            return k;
    return NULL;
}

/* Notes that the book is unreachable, or answers again. */
static void set_alone(struct limits *l, bool alone)
{
    if (alone == l->counts.alone)
        return;
    l->counts.alone = alone;
    if (alone)
        log_warn("state: redis does not answer in time; this conductor applies "
                 "1/%u of each client's limits",
                 l->conductors ? l->conductors : 1);
    else
        log_info("state: clients' limits count over all conductors again");
}

/* Reads a total of the book. Returns false if it is no such number. */
static bool read_taken(const redisReply *r, double *taken)
{
    *taken = r->type == REDIS_REPLY_STRING ? strtod(r->str, NULL) : -1.0;
    return *taken >= 0.0 && *taken <= TAKEN_MAX;
}

static void hear(struct limits *l, const redisReply *reply)
{
    for (size_t i = 0; i < l->n_asked && 3 * i + 2 < reply->elements; i++) {
        const redisReply *const *r =
            (const redisReply *const *)&reply->element[3 * i];
        struct joint_key *k = find(l, l->asked[i]);
        double asks, tokens;

        if (k && read_taken(r[0], &asks) && read_taken(r[1], &tokens) &&
            r[2]->type == REDIS_REPLY_INTEGER && r[2]->integer >= 0)
            joint_told(k, asks, tokens,
                       r[2]->integer > UINT32_MAX ? UINT32_MAX
                                                  : (uint32_t)r[2]->integer);
    }
    l->counts.told++;
    l->heard_us = loop_now_us(l->loop);
    set_alone(l, false);
}

static void report(struct limits *l);

/* Amounts that the book does not have yet go into the next report, too. */
static void on_told(void *arg, const struct redisReply *reply)
{
    struct limits *l = arg;

    l->asking = false;
    if (reply && reply->type == REDIS_REPLY_ARRAY) {
        hear(l, reply);
        limits_due(l);
        return;
    }
    if (reply && reply->type == REDIS_REPLY_ERROR &&
        strncmp(reply->str, "NOSCRIPT", 8) == 0)
        l->sha[0] = '\0';
    l->all_due = true; /* the poll tries again */
}

static void on_loaded(void *arg, const struct redisReply *reply)
{
    struct limits *l = arg;

    l->asking = false;
    if (!reply || reply->type != REDIS_REPLY_STRING)
        return;
    text_copy(l->sha, sizeof(l->sha), reply->str);
    l->all_due = true;
    report(l);
}

static void put_values(const struct joint_key *k, int64_t now_us,
                       char out[VALUES][VALUE_BYTES])
{
    const double values[VALUES] = {k->asks.per_minute,
                                   k->tokens.per_minute,
                                   k->asks.own,
                                   k->asks.told,
                                   k->tokens.own,
                                   k->tokens.told,
                                   joint_seen(&k->asks, now_us),
                                   joint_seen(&k->tokens, now_us),
                                   k->open};

    for (size_t i = 0; i < VALUES; i++)
        snprintf(out[i], VALUE_BYTES, "%.17g", values[i]);
}

/* Fills in the clients with news, or all. Returns their number. */
static size_t gather(struct limits *l, struct report *r, int64_t now_us)
{
    struct joint_key *k;
    size_t n = 0;

    for (size_t i = 0; n < LIMITS_MAX && (k = l->at(l->arg, i)); i++) {
        if (!joint_has(k) || (!k->due && !l->all_due))
            continue;
        snprintf(r->keys[n], CLUSTER_KEY_MAX,
                 CLUSTER_PREFIX "limit:%016" PRIx64, k->number);
        put_values(k, now_us, &r->values[n * VALUES]);
        joint_sent(k, now_us);
        l->asked[n++] = k->number;
    }
    l->n_asked = n;
    l->all_due = false;
    return n;
}

static bool send_words(struct limits *l,
                       void (*fn)(void *, const struct redisReply *), int n,
                       const char *const words[])
{
    return redis_command(l->redis, (struct redis_done){fn, l}, n, words,
                         NULL) == 0;
}

static void send_report(struct limits *l, struct report *r, int64_t now_us)
{
    size_t clients = gather(l, r, now_us);
    int n = 0;

    if (clients == 0)
        return;
    snprintf(r->n_keys, sizeof(r->n_keys), "%zu", clients);
    snprintf(r->lease, sizeof(r->lease), "%lld",
             (long long)(l->lease_us / 1000));
    r->words[n++] = "EVALSHA";
    r->words[n++] = l->sha;
    r->words[n++] = r->n_keys;
    for (size_t i = 0; i < clients; i++)
        r->words[n++] = r->keys[i];
    r->words[n++] = l->id;
    r->words[n++] = r->lease;
    for (size_t i = 0; i < clients * VALUES; i++)
        r->words[n++] = r->values[i];
    l->sent_us = now_us;
    l->asking = send_words(l, on_told, n, r->words);
    l->all_due = !l->asking;
}

/* One report at a time: requests that come meanwhile are in the next. */
static void report(struct limits *l)
{
    struct report *r;

    if (l->asking || !redis_is_up(l->redis))
        return;
    if (!*l->sha) {
        l->asking = send_words(
            l, on_loaded, 3, (const char *[]){"SCRIPT", "LOAD", limits_script});
        return;
    }
    r = malloc(sizeof(*r));
    if (r)
        send_report(l, r, loop_now_us(l->loop));
    free(r);
}

static void on_soon(void *arg)
{
    report(arg);
}

static void on_poll(void *arg)
{
    struct limits *l = arg;
    int64_t now_us = loop_now_us(l->loop);
    struct joint_key *k;
    bool limited = false;

    for (size_t i = 0; (k = l->at(l->arg, i)); i++)
        limited = limited || joint_has(k);
    if (!limited) {
        l->heard_us = now_us;
        set_alone(l, false);
        return;
    }
    if (!redis_is_up(l->redis) ||
        now_us - l->heard_us >= l->lease_us / PATIENCE) {
        set_alone(l, true);
        for (size_t i = 0; (k = l->at(l->arg, i)); i++)
            joint_part(k, now_us);
    }
    l->all_due = true;
    report(l);
}

struct limits *limits_new(struct loop *loop, const char *id, int64_t lease_us,
                          limits_at *at, void *arg)
{
    struct limits *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->loop = loop;
    l->id = id;
    l->lease_us = lease_us;
    l->at = at;
    l->arg = arg;
    l->heard_us = loop_now_us(l->loop);
    loop_timer_init(loop, &l->poll, on_poll, l);
    loop_timer_init(loop, &l->soon, on_soon, l);
    if (loop_timer_repeat(&l->poll, lease_us / POLLS) == 0)
        return l;
    limits_free(l);
    return NULL;
}

void limits_free(struct limits *l)
{
    if (!l)
        return;
    loop_timer_stop(&l->poll);
    loop_timer_stop(&l->soon);
    free(l);
}

void limits_use(struct limits *l, struct redis *redis)
{
    l->redis = redis;
}

void limits_up(struct limits *l)
{
    l->sha[0] = '\0';
    l->all_due = true;
    report(l);
}

void limits_among(struct limits *l, size_t conductors)
{
    struct joint_key *k;

    l->conductors = (unsigned)conductors;
    for (size_t i = 0; (k = l->at(l->arg, i)); i++)
        k->conductors = l->conductors;
}

void limits_due(struct limits *l)
{
    int64_t apart_us = APART_US * (l->conductors ? l->conductors : 1);
    int64_t left_us = l->sent_us + apart_us - loop_now_us(l->loop);
    struct joint_key *k;
    bool due = false;

    if (l->asking || loop_timer_pending(&l->soon))
        return;
    for (size_t i = 0; !due && (k = l->at(l->arg, i)); i++)
        due = k->due && joint_has(k);
    if (due)
        loop_timer_start(&l->soon, left_us > 0 ? left_us : 0);
}

struct limits_counts limits_counts(const struct limits *l)
{
    return l ? l->counts : (struct limits_counts){0};
}
