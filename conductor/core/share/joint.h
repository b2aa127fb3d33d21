/*
 * A limit that several conductors keep together. A shared book has the total of
 * all; each conductor reports its own count to the book, and uses the book's
 * last answer. No conductor asks the book before it lets a request in:
 *
 *   a conductor is ahead of the book by at most joint_advance() of the book's
 *     rest; its own count is in the book a round trip later
 *   without the book each has the limit divided by the number of conductors
 *
 * So where c conductors reach the book, together they are never more than c
 * advances above the limit, and any excess drains away before more is let in.
 */
#ifndef CONDUCTOR_CORE_SHARE_JOINT_H
#define CONDUCTOR_CORE_SHARE_JOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/share/limit.h"

/* Most that a conductor may take ahead of the book where little is left. */
#define JOINT_FEW 4.0

struct joint_limit {
    double per_minute; /* 0 = no limit */
    double own;        /* taken here, in all */
    double told;       /* part of own that `seen` includes */
    double seen;       /* taken by all and not drained, as of seen_us */
    int64_t seen_us;
    struct limit alone; /* this conductor's part of the limit without a book */
};

/* One conductor's state of the limits of one client. */
struct joint_key {
    uint64_t number; /* names the client in the book; 0 = none */
    struct joint_limit asks, tokens;
    uint32_t max_open;   /* most requests in work; 0 = unlimited */
    uint32_t open;       /* requests in work here */
    uint32_t open_told;  /* part of open that open_all includes */
    uint32_t open_all;   /* requests in work everywhere, from the book */
    unsigned conductors; /* sharing the limits; 0 = unknown, as 1 */
    bool alone;          /* the book is out of reach */
    bool due;            /* something done here is not in the book yet */
    double sent[2];      /* asks, tokens in the report under way */
    uint32_t sent_open;  /* requests in work in the report under way */
    int64_t sent_us;
};

/* joint_advance(left, conductors): returns how much of `left` in the book one
 * conductor may take before the book answers again; all of it for a single
 * conductor; `left` itself if that is 0 or less. */
double joint_advance(double left, unsigned conductors);

/* joint_has(k): returns whether any limit is set. */
bool joint_has(const struct joint_key *k);

/* joint_asks_us(k, now_us), joint_tokens_us(k, now_us): return the time until
 * another request is within the limit of requests or of tokens; 0 = now. */
int64_t joint_asks_us(const struct joint_key *k, int64_t now_us);
int64_t joint_tokens_us(const struct joint_key *k, int64_t now_us);

/* joint_room(k): returns how many requests may begin, UINT32_MAX = unlimited; a
 * batch may take all once the book has this conductor's requests. */
uint32_t joint_room(const struct joint_key *k);

/* Count a request let in, tokens that a request took, requests in work now. */
void joint_ask(struct joint_key *k, int64_t now_us);
void joint_spend(struct joint_key *k, double tokens, int64_t now_us);
void joint_open(struct joint_key *k, uint32_t open);

/* joint_seen(l, now_us): returns the total taken that has not drained. */
double joint_seen(const struct joint_limit *l, int64_t now_us);

/* joint_sent(k, now_us): notes that a report with all counts is sent. */
void joint_sent(struct joint_key *k, int64_t now_us);

/* joint_told(k, asks, tokens, open): notes that the book has this report, and
 * the totals of all conductors in its answer. */
void joint_told(struct joint_key *k, double asks, double tokens, uint32_t open);

/* joint_part(k, now_us): notes that the book is out of reach: continues with
 * this conductor's part of the rest. A second call changes nothing. */
void joint_part(struct joint_key *k, int64_t now_us);

/* joint_move(to, from): moves a client's counts to its limits in a new file:
 * `to` keeps its new limits. */
void joint_move(struct joint_key *to, const struct joint_key *from);

#endif
