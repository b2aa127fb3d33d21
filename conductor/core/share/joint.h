/*
 * A limit that several conductors keep together. A book that all reach has what
 * all have taken; each conductor counts its own, reports it to the book, and
 * goes by the book's last answer. None asks the book before it takes something:
 *
 *   what is taken here and not yet in the book is at most joint_advance() of
 *     what the book had left; the rest is in the book a round trip later
 *   without the book each has the limit over the number of conductors
 *
 * So where c conductors reach the book, together they are never more than c
 * advances above the limit, and any excess drains away before more is let in.
 */
#ifndef CONDUCTOR_CORE_SHARE_JOINT_H
#define CONDUCTOR_CORE_SHARE_JOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/share/limit.h"

/* What each conductor may take ahead of the book, if so much is left. */
#define JOINT_FEW 4.0

struct joint_limit {
    double per_minute; /* 0 = no limit */
    double own;        /* taken here, in all */
    double told;       /* part of own that is in `seen` */
    double seen;       /* taken by all and not drained, as of seen_us */
    int64_t seen_us;
    struct limit alone; /* this conductor's share while there is no book */
};

/* The limits of one client, as one conductor knows them. */
struct joint_key {
    uint64_t number; /* names the client in the book; 0 = none */
    struct joint_limit asks, tokens;
    uint32_t max_open;   /* most requests in work; 0 = unlimited */
    uint32_t open;       /* requests in work here */
    uint32_t open_told;  /* part of open that is in open_all */
    uint32_t open_all;   /* requests in work everywhere, by the book */
    unsigned conductors; /* that share it; 0 = unknown, as 1 */
    bool alone;          /* there is no book */
    bool due;            /* the book lacks something that was done here */
    double sent[2];      /* asks, tokens in the report under way */
    uint32_t sent_open;  /* likewise */
    int64_t sent_us;
};

/* joint_advance(left, conductors): returns how much of `left` in the book one
 * conductor may take before the book answers again; all of it if it is the only
 * one, and left if that is 0 or less. */
double joint_advance(double left, unsigned conductors);

/* joint_has(k): whether any limit is set. */
bool joint_has(const struct joint_key *k);

/* joint_asks_us(k, now_us), joint_tokens_us(k, now_us): return the time until
 * another request is within that limit; 0 = now. */
int64_t joint_asks_us(const struct joint_key *k, int64_t now_us);
int64_t joint_tokens_us(const struct joint_key *k, int64_t now_us);

/* joint_room(k): returns how many requests may begin, UINT32_MAX = unlimited:
 * for a batch all that is left, if the book has all of this conductor's. */
uint32_t joint_room(const struct joint_key *k);

/* Count a request let in, tokens that one took, requests in work now. */
void joint_ask(struct joint_key *k, int64_t now_us);
void joint_spend(struct joint_key *k, double tokens, int64_t now_us);
void joint_open(struct joint_key *k, uint32_t open);

/* joint_seen(l, now_us): returns what all have taken and has not drained. */
double joint_seen(const struct joint_limit *l, int64_t now_us);

/* joint_sent(k, now_us): a report with all counts goes to the book now. */
void joint_sent(struct joint_key *k, int64_t now_us);

/* joint_told(k, asks, tokens, open): the book has that report, and answers with
 * the totals of all conductors. */
void joint_told(struct joint_key *k, double asks, double tokens, uint32_t open);

/* joint_part(k, now_us): there is no book: goes on with this conductor's share
 * of what was left. A second call changes nothing. */
void joint_part(struct joint_key *k, int64_t now_us);

/* joint_move(to, from): a new file has this client: `to` keeps its new limits
 * and takes over the counts. */
void joint_move(struct joint_key *to, const struct joint_key *from);

#endif
