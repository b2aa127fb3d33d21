/* The script of conductor/cluster/registry.c: a conductor's lease. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/redis/internal.h"

#define LONGEST_MS 60000.0
#define TOKENS_END 9007199254740992.0

#define CONDUCTORS l->keys[0]
#define ABOUT l->keys[1]
#define TOKEN l->keys[2]
#define LEADER l->keys[3]
#define ID l->args[0]

struct renewal {
    struct mr_lua *l;
    double now, lease, own, led;
    struct mr_bytes token, leader, lead; /* owned */
    bool had;                            /* a lease, of that token */
};

/* The script's number(): 0 = it is none. */
static double number(struct mr_bytes b)
{
    double n;

    return mr_lua_number(b, &n) && n > 0 && n < TOKENS_END ? n : 0.0;
}

static struct mr_bytes word(double value)
{
    char room[MR_NUMBER_MAX];

    return mr_bytes_copy(mr_lua_word(value, room));
}

/* Joins two words, owned. */
static struct mr_bytes join(struct mr_bytes a, struct mr_bytes b)
{
    struct mr_buf joined = {0};

    mr_put(&joined, a.data, a.n);
    mr_put(&joined, " ", 1);
    mr_put(&joined, b.data, b.n);
    return (struct mr_bytes){joined.data, joined.n};
}

static void remove_others(struct mr_lua *l)
{
    static const char *const kinds[] = {"zset", "hash", "string", "string"};

    for (size_t i = 0; i < l->n_keys; i++) {
        struct mr_reply r =
            MR_CALL(l, "redis.call('TYPE', key)", MR_LIT("TYPE"), l->keys[i]);

        if (r.kind == MR_R_STATUS && strcmp(r.text.data, "none") != 0 &&
            strcmp(r.text.data, i < 4 ? kinds[i] : "stream") != 0)
            MR_DO(l, "redis.call('DEL', key)", MR_LIT("DEL"), l->keys[i]);
        mr_reply_free(&r);
    }
}

/* The next token, owned. */
static struct mr_bytes fence(struct renewal *n)
{
    struct mr_lua *l = n->l;
    struct mr_reply r =
        MR_CALL(l, "redis.call('GET', KEYS[3])", MR_LIT("GET"), TOKEN);
    double last = 0.0;
    char text[MR_NUMBER_MAX];

    if (r.kind == MR_R_BULK && !mr_lua_number(r.text, &last))
        last = 0.0;
    mr_reply_free(&r);
    if (!(last >= 0 && last < 9e15))
        last = 0.0;
    double next = last + 1;

    next = n->own + 1 > next ? n->own + 1 : next;
    next = n->led + 1 > next ? n->led + 1 : next;
    next = n->now > next ? n->now : next;
    snprintf(text, sizeof(text), "%.0f", next);
    MR_DO(l, "redis.call('SET', KEYS[3], f", MR_LIT("SET"), TOKEN,
          mr_bytes_of(text), MR_LIT("PX"), MR_LIT("86400000"));
    return mr_bytes_copy(mr_bytes_of(text));
}

static void remove_ended(struct renewal *n)
{
    struct mr_lua *l = n->l;
    char room[MR_NUMBER_MAX];
    struct mr_reply ended =
        MR_CALL(l, "redis.call('ZRANGEBYSCORE'", MR_LIT("ZRANGEBYSCORE"),
                CONDUCTORS, MR_LIT("-inf"), mr_lua_word(n->now, room));

    for (size_t i = 0; i < ended.n; i++) {
        MR_DO(l, "redis.call('ZREM'", MR_LIT("ZREM"), CONDUCTORS,
              ended.at[i].text);
        MR_DO(l, "redis.call('HDEL', KEYS[2], id)", MR_LIT("HDEL"), ABOUT,
              ended.at[i].text);
    }
    mr_reply_free(&ended);
}

static void find_token(struct renewal *n)
{
    struct mr_lua *l = n->l;
    struct mr_reply r = MR_CALL(l, "redis.call('HGET', KEYS[2], ARGV[1])",
                                MR_LIT("HGET"), ABOUT, ID);
    size_t digits = 0;

    n->had = r.kind == MR_R_BULK;
    while (digits < r.text.n && r.text.data[digits] >= '0' &&
           r.text.data[digits] <= '9')
        digits++;
    n->token = mr_bytes_copy((struct mr_bytes){r.text.data, digits});
    mr_reply_free(&r);
    double had = number(n->token);

    if (had > 0 && had >= n->own)
        return;
    n->had = false;
    mr_bytes_free(n->token);
    n->token = fence(n);
}

static void renew_lease(struct renewal *n)
{
    struct mr_lua *l = n->l;
    struct mr_bytes until = word(n->now + n->lease);
    struct mr_bytes about = join(n->token, l->args[1]);
    struct mr_bytes ten = word(n->lease * 10), twenty = word(n->lease * 20);

    MR_DO(l, "redis.call('ZADD', KEYS[1], now + lease, ARGV[1])",
          MR_LIT("ZADD"), CONDUCTORS, until, ID);
    MR_DO(l, "redis.call('HSET', KEYS[2]", MR_LIT("HSET"), ABOUT, ID, about);
    MR_DO(l, "redis.call('PEXPIRE', KEYS[1]", MR_LIT("PEXPIRE"), CONDUCTORS,
          ten);
    MR_DO(l, "redis.call('PEXPIRE', KEYS[2]", MR_LIT("PEXPIRE"), ABOUT, ten);
    for (size_t i = 4; i < l->n_keys; i++)
        MR_DO(l, "redis.call('PEXPIRE', KEYS[i]", MR_LIT("PEXPIRE"), l->keys[i],
              twenty);
    mr_bytes_free(until);
    mr_bytes_free(about);
    mr_bytes_free(ten);
    mr_bytes_free(twenty);
}

/* Reads who leads: '^(%S+) (%d+)$'. */
static void read_leader(struct renewal *n)
{
    struct mr_lua *l = n->l;
    struct mr_reply r =
        MR_CALL(l, "redis.call('GET', KEYS[4])", MR_LIT("GET"), LEADER);
    struct mr_bytes part[2];
    bool found = mr_lua_pair(r.text, false, part) &&
                 part[0].n + 1 + part[1].n == r.text.n;

    for (size_t i = 0; found && i < part[1].n; i++)
        found = part[1].data[i] >= '0' && part[1].data[i] <= '9';
    n->leader = mr_bytes_copy(found ? part[0] : ID);
    n->lead = mr_bytes_copy(found ? part[1] : MR_LIT(""));
    mr_reply_free(&r);
}

static void renew_lead(struct renewal *n)
{
    struct mr_lua *l = n->l;
    struct mr_reply r = MR_CALL(l, "redis.call('PTTL'", MR_LIT("PTTL"), LEADER);
    double left = (double)r.value;

    mr_reply_free(&r);
    if (r.value == -1 || left > LONGEST_MS)
        left = n->lease;
    read_leader(n);
    if (mr_bytes_equal(n->leader, ID))
        left = n->lease;
    double lead = number(n->lead);

    if (!(lead > 0) || lead < n->led) {
        mr_bytes_free(n->lead);
        n->lead = fence(n);
    }
    struct mr_bytes both = join(n->leader, n->lead);
    struct mr_bytes ms = word(left > 1 ? left : 1);

    MR_DO(l, "redis.call('SET', KEYS[4]", MR_LIT("SET"), LEADER, both,
          MR_LIT("PX"), ms);
    mr_bytes_free(both);
    mr_bytes_free(ms);
}

/* Puts a conductor whose lease has a time. */
static void put_one(struct renewal *n, struct mr_bytes id, double till,
                    struct mr_buf *out, size_t *count)
{
    struct mr_lua *l = n->l;

    till -= n->now;
    if (till > LONGEST_MS) {
        struct mr_bytes until = word(n->now + n->lease);

        till = n->lease;
        MR_DO(l, "redis.call('ZADD', KEYS[1], now + lease, id)", MR_LIT("ZADD"),
              CONDUCTORS, until, id);
        mr_bytes_free(until);
    }
    struct mr_reply about = MR_CALL(l, "redis.call('HGET', KEYS[2], id)",
                                    MR_LIT("HGET"), ABOUT, id);

    mr_out_bulk(out, id);
    mr_out_bulk(out, about.text);
    mr_out_int(out, (long long)till);
    *count += 3;
    mr_reply_free(&about);
}

static void put_all(struct renewal *n, struct mr_buf *out, size_t *count)
{
    struct mr_lua *l = n->l;
    struct mr_reply ids =
        MR_CALL(l, "redis.call('HKEYS'", MR_LIT("HKEYS"), ABOUT);

    for (size_t i = 0; i < ids.n; i++) {
        struct mr_bytes id = ids.at[i].text;
        struct mr_reply till =
            MR_CALL(l, "redis.call('ZSCORE'", MR_LIT("ZSCORE"), CONDUCTORS, id);
        double score;

        if (till.kind == MR_R_BULK && mr_lua_number(till.text, &score))
            put_one(n, id, score, out, count);
        else
            MR_DO(l, "redis.call('HDEL', KEYS[2], id)", MR_LIT("HDEL"), ABOUT,
                  id);
        mr_reply_free(&till);
    }
    mr_reply_free(&ids);
}

static void answer(struct renewal *n)
{
    struct mr_lua *l = n->l;
    struct mr_buf conductors = {0};
    size_t count = 0;

    put_all(n, &conductors, &count);
    if (!l->failed) {
        mr_out_array(l->call->out, 4 + count);
        mr_out_bulk(l->call->out, n->token);
        mr_out_int(l->call->out, n->had ? 0 : 1);
        mr_out_bulk(l->call->out, n->lead);
        mr_out_int(l->call->out, mr_bytes_equal(n->leader, ID));
        mr_put(l->call->out, conductors.data, conductors.n);
    }
    free(conductors.data);
}

void mr_script_renew(struct mr_lua *l)
{
    struct renewal n = {.l = l};
    double s, us;

    if (l->n_keys < 4 || l->n_args < 5 ||
        !mr_lua_number(l->args[2], &n.lease)) {
        mr_out_lacks(l->call->out, "renewal without its keys and arguments");
        return;
    }
    remove_others(l);
    mr_lua_time(l, &s, &us);
    n.now = s * 1000 + floor(us / 1000);
    n.own = number(l->args[3]);
    n.led = number(l->args[4]);
    remove_ended(&n);
    find_token(&n);
    renew_lease(&n);
    renew_lead(&n);
    answer(&n);
    mr_bytes_free(n.token);
    mr_bytes_free(n.leader);
    mr_bytes_free(n.lead);
}
