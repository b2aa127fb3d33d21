/*
 * Judges messages by number: publishers count from 0 (some from 1), so a
 * skipped number is a lost message, a lower number another process. Pure.
 *
 * A message may come twice: live, and in a replay of missing ones.
 */
#ifndef CONDUCTOR_LINK_EVENTS_SEQUENCE_H
#define CONDUCTOR_LINK_EVENTS_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

struct kv_sequence {
    bool any_live, any_applied;
    uint64_t live;    /* number of the last live message */
    uint64_t first;   /* of the first one applied since the last forget */
    uint64_t applied; /* number of the last one applied, live or replayed */
    double time_s;    /* when the sender's clock sent it; 0 = unknown */
};

enum kv_verdict {
    KV_SEQUENCE_NEXT,      /* apply it */
    KV_SEQUENCE_DUPLICATE, /* a replay had it already */
    KV_SEQUENCE_GAP,       /* messages from kv_sequence_wanted() on are lost */
    KV_SEQUENCE_RESTART,   /* the publisher began anew */
};

/*
 * Judges a live message, and notes its arrival (not that it was applied).
 *   time_s  when it was sent, by the sender's clock; 0 = unknown.
 */
enum kv_verdict kv_sequence_live(struct kv_sequence *s, uint64_t number,
                                 double time_s);

/* Returns the number of the first missing message. */
uint64_t kv_sequence_wanted(const struct kv_sequence *s);

/* Notes that a message was applied. */
void kv_sequence_applied(struct kv_sequence *s, uint64_t number, double time_s);

/* Forgets what was applied, but not the last live number. */
void kv_sequence_forget(struct kv_sequence *s);

/* Forgets all numbers: messages of another process may follow, and a replay may
 * bring its first ones. */
void kv_sequence_begin(struct kv_sequence *s);

#endif
