/* Whose orders count of those that only a leader gives. Conductors that share a
 * state tell the token of their lead, which grows with each; one without such a
 * state tells none. Pure. */
#ifndef WORKERS_SERVICE_LEAD_H
#define WORKERS_SERVICE_LEAD_H

#include <stdbool.h>
#include <stdint.h>

/* If nobody who told a token was connected for so long, conductors share no
 * state any more: then those without one count again. */
#define LEAD_FORGET_US 30000000

struct lead {
    uint64_t token;  /* the highest; 0: none was told */
    int64_t seen_us; /* when somebody who told one was connected */
};

/* lead_take(l, token, now_us): a conductor tells its token. */
static inline void lead_take(struct lead *l, uint64_t token, int64_t now_us)
{
    if (token > l->token)
        l->token = token;
    l->seen_us = now_us;
}

/* lead_look(l, told, now_us): whether one that told a token is connected.
 * Returns true if the lead was forgotten now. */
static inline bool lead_look(struct lead *l, bool told, int64_t now_us)
{
    if (told)
        l->seen_us = now_us;
    if (l->token == 0 || now_us - l->seen_us < LEAD_FORGET_US)
        return false;
    l->token = 0;
    return true;
}

/* lead_counts(l, token): whether orders of who told `token`, 0: none, count. */
static inline bool lead_counts(const struct lead *l, uint64_t token)
{
    return token >= l->token;
}

#endif
