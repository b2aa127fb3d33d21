/* Whose orders count of those that only a leader gives. Conductors that share a
 * state tell the token of their lead, which grows with each; one without such a
 * state tells none. Pure. */
#ifndef WORKERS_SERVICE_LEAD_H
#define WORKERS_SERVICE_LEAD_H

#include <stdbool.h>
#include <stdint.h>

/* If no conductor that told the highest token was connected for so long, that
 * token is forgotten: either conductors share no state any more, and those
 * without one count again, or the state is another one, which knows nothing of
 * that token and gives lower ones. */
#define LEAD_FORGET_US 30000000

struct lead {
    uint64_t token;  /* the highest; 0: none was told */
    int64_t seen_us; /* when a conductor that told it was connected */
};

/* lead_take(l, token, now_us): a conductor tells its token. */
static inline void lead_take(struct lead *l, uint64_t token, int64_t now_us)
{
    if (token < l->token)
        return;
    l->token = token;
    l->seen_us = now_us;
}

/* lead_look(l, told, now_us): `told` is the highest token of the conductors
 * that are connected; 0: none told one. Returns true if a higher one was
 * forgotten now. */
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

/* lead_counts(l, token): whether orders of who told `token`, 0: none, count. */
static inline bool lead_counts(const struct lead *l, uint64_t token)
{
    return token >= l->token;
}

#endif
