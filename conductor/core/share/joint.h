/*
 * A limit that several conductors keep together. A book that all reach has what
 * all have taken of it; each counts its own, tells the book, and goes by what
 * it was told last. Nobody asks the book before he takes something:
 *
 *   taken here, and not yet in the book, is at most joint_advance() of what the
 *     book had left; the book has the rest of it a round trip later
 *   without the book each has the limit over the number of conductors
 *
 * So where c conductors reach the book, all together are never more than c
 * advances above the limit, and what is above drains away before more is let
 * in.
 */
#ifndef CONDUCTOR_CORE_SHARE_JOINT_H
#define CONDUCTOR_CORE_SHARE_JOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "conductor/core/share/limit.h"

/* So much may each take ahead of the book, where so much is left. */
#define JOINT_FEW 4.0

struct joint_limit {
    double per_minute; /* 0: no limit */
    double own;        /* taken here, ever */
    double told;       /* of it, in `seen` */
    double seen;       /* taken by all and not drained, as of seen_us */
    int64_t seen_us;
    struct limit alone; /* while there is no book: of this one's share */
};

/* What one client may, as one conductor knows it. */
struct joint_key {
    uint64_t number; /* names it in the book; 0: nobody */
    struct joint_limit asks, tokens;
    uint32_t max_open;   /* most in work at a time; 0: any number */
    uint32_t open;       /* in work here */
    uint32_t open_told;  /* as the book has it */
    uint32_t open_all;   /* in the book, of all; open_told is among them */
    unsigned conductors; /* that share; 0: not known yet, as 1 */
    bool alone;          /* there is no book */
    bool due;            /* the book does not have all that was done here */
    double sent[2];      /* asks, tokens: of the report that is under way */
    uint32_t sent_open;  /* likewise */
    int64_t sent_us;
};

/* joint_advance(left, conductors): of `left` that the book had, what one of so
 * many conductors may take before the book says more; all of it if there is but
 * one. left <= 0: left. */
double joint_advance(double left, unsigned conductors);

/* joint_has(k): whether any limit is set. */
bool joint_has(const struct joint_key *k);

/* joint_asks_us(k, now_us), joint_tokens_us(k, now_us): in how long another
 * request is within that limit; 0: it is now. */
int64_t joint_asks_us(const struct joint_key *k, int64_t now_us);
int64_t joint_tokens_us(const struct joint_key *k, int64_t now_us);

/* joint_room(k): how many requests may begin, UINT32_MAX: any number. All that
 * is left, for a batch, where the book knows all of here. */
uint32_t joint_room(const struct joint_key *k);

/* A request was let in, had so many tokens, or so many are in work now. */
void joint_ask(struct joint_key *k, int64_t now_us);
void joint_spend(struct joint_key *k, double tokens, int64_t now_us);
void joint_open(struct joint_key *k, uint32_t open);

/* joint_seen(l, now_us): of what all had taken, what has not drained away. */
double joint_seen(const struct joint_limit *l, int64_t now_us);

/* joint_sent(k, now_us): what is here goes to the book now. */
void joint_sent(struct joint_key *k, int64_t now_us);

/* joint_told(k, asks, tokens, open): the book has what was sent, and of all
 * together so much. */
void joint_told(struct joint_key *k, double asks, double tokens, uint32_t open);

/* joint_part(k, now_us): there is no book: each goes on with its share of what
 * was left. Once again changes nothing. */
void joint_part(struct joint_key *k, int64_t now_us);

/* joint_move(to, from): another file has this client, with other limits. */
void joint_move(struct joint_key *to, const struct joint_key *from);

#endif
