/* See joint.h. */
#include "conductor/core/share/joint.h"

#include <math.h>

#define MINUTE_US 60e6
#define ROUNDING 1e-9
/* Together, conductors may take a quarter of the rest ahead of the book. */
#define AHEAD 4.0
/* A round trip to the book. */
#define SOON_US 20000

static unsigned sharers(const struct joint_key *k)
{
    return k->conductors ? k->conductors : 1;
}

double joint_advance(double left, unsigned conductors)
{
    double each = left / conductors;

    if (conductors <= 1 || left <= 0.0)
        return left;
    return fmin(left,
                fmax(each / AHEAD, fmin(JOINT_FEW, fmax(1.0, 2.0 * each))));
}

bool joint_has(const struct joint_key *k)
{
    return k->number && (k->asks.per_minute > 0.0 ||
                         k->tokens.per_minute > 0.0 || k->max_open > 0);
}

double joint_seen(const struct joint_limit *l, int64_t now_us)
{
    const struct limit all = {l->per_minute, l->seen, l->seen_us};

    return limit_taken(&all, now_us);
}

/* Time until one more is within the limit, by the numbers known here. */
static int64_t wait_us(const struct joint_limit *l, bool alone, int64_t now_us)
{
    const struct limit all = {l->per_minute,
                              joint_seen(l, now_us) + l->own - l->told, now_us};

    return limit_wait_us(alone ? &l->alone : &all, 1.0, now_us);
}

int64_t joint_asks_us(const struct joint_key *k, int64_t now_us)
{
    const struct joint_limit *l = &k->asks;
    int64_t us = wait_us(l, k->alone, now_us);
    double left = l->per_minute - joint_seen(l, now_us);
    double after = l->own - l->told + fmin(1.0, l->per_minute);

    if (us || k->alone || l->per_minute <= 0.0 ||
        after <= joint_advance(left, sharers(k)) + l->per_minute * ROUNDING)
        return us;
    return SOON_US;
}

int64_t joint_tokens_us(const struct joint_key *k, int64_t now_us)
{
    return wait_us(&k->tokens, k->alone, now_us);
}

uint32_t joint_room(const struct joint_key *k)
{
    double left = (double)k->max_open - k->open_all;
    double ahead = (double)k->open - k->open_told, room;

    if (k->max_open == 0)
        return UINT32_MAX;
    if (k->alone)
        room = ceil((double)k->max_open / sharers(k)) - k->open;
    else if (ahead <= 0.0)
        room = left - ahead;
    else
        room = joint_advance(left, sharers(k)) - ahead;
    return room > 0.0 ? (uint32_t)room : 0;
}

static void take(struct joint_key *k, struct joint_limit *l, double amount,
                 int64_t now_us)
{
    l->own += amount;
    if (k->alone)
        limit_take(&l->alone, amount, now_us);
    k->due = true;
}

void joint_ask(struct joint_key *k, int64_t now_us)
{
    take(k, &k->asks, 1.0, now_us);
}

void joint_spend(struct joint_key *k, double tokens, int64_t now_us)
{
    take(k, &k->tokens, tokens, now_us);
}

void joint_open(struct joint_key *k, uint32_t open)
{
    k->open = open;
    k->due = true;
}

void joint_sent(struct joint_key *k, int64_t now_us)
{
    k->sent[0] = k->asks.own;
    k->sent[1] = k->tokens.own;
    k->sent_open = k->open;
    k->sent_us = now_us;
    k->due = false;
}

static void hear(struct joint_limit *l, double all, double own, int64_t sent_us)
{
    l->seen = all;
    l->seen_us = sent_us;
    l->told = own;
}

void joint_told(struct joint_key *k, double asks, double tokens, uint32_t open)
{
    hear(&k->asks, asks, k->sent[0], k->sent_us);
    hear(&k->tokens, tokens, k->sent[1], k->sent_us);
    k->open_told = k->sent_open;
    k->open_all = open;
    k->alone = false;
}

static void part(struct joint_limit *l, unsigned conductors, int64_t now_us)
{
    l->alone.per_minute = l->per_minute / conductors;
    l->alone.taken = joint_seen(l, now_us) / conductors + l->own - l->told;
    l->alone.at_us = now_us;
}

void joint_part(struct joint_key *k, int64_t now_us)
{
    if (k->alone)
        return;
    part(&k->asks, sharers(k), now_us);
    part(&k->tokens, sharers(k), now_us);
    k->alone = true;
}

static void move(struct joint_limit *to, const struct joint_limit *from,
                 unsigned conductors)
{
    double per_minute = to->per_minute;

    *to = *from;
    to->per_minute = per_minute;
    to->alone.per_minute = per_minute / conductors;
}

void joint_move(struct joint_key *to, const struct joint_key *from)
{
    struct joint_key moved = *from;

    moved.asks = to->asks;
    moved.tokens = to->tokens;
    moved.max_open = to->max_open;
    move(&moved.asks, &from->asks, sharers(from));
    move(&moved.tokens, &from->tokens, sharers(from));
    *to = moved;
}
