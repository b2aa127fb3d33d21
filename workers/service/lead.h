/* Decides which conductor may give the leader's orders. Conductors with a
 * shared state announce a leadership token, larger than every earlier leader's;
 * a conductor without shared state announces none. Pure. */
#ifndef WORKERS_SERVICE_LEAD_H
#define WORKERS_SERVICE_LEAD_H

#include <stdbool.h>
#include <stdint.h>

/* The highest token is forgotten when no conductor with it was connected for
 * this long: the conductors have lost their shared state, or use a new one
 * whose tokens are lower. */
#define LEAD_FORGET_US 30000000

struct lead {
    uint64_t token;  /* highest announced; 0 = none */
    int64_t seen_us; /* last time a conductor with this token was connected */
};

/* lead_take(l, token, now_us): notes the token of a conductor. */
static inline void lead_take(struct lead *l, uint64_t token, int64_t now_us)
{
    if (token < l->token)
        return;
    l->token = token;
    l->seen_us = now_us;
}

/* lead_look(l, told, now_us): takes `told`, the highest token of the connected
 * conductors; 0 = none. Returns true if it now forgot a higher token. */
static inline bool lead_look(struct lead *l, uint64_t told, int64_t now_us)
{
    if (told >= l->token)
        l->seen_us = now_us;
    if (now_us - l->seen_us < LEAD_FORGET_US)
        return false;
    l->token = told;
    l->seen_us = now_us;
    return true;
}

/* lead_counts(l, token): returns whether a conductor that announced `token` (0
 * = none) may give the leader's orders. */
static inline bool lead_counts(const struct lead *l, uint64_t token)
{
    return token >= l->token;
}

#endif
