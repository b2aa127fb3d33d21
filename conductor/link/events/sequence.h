/*
 * What the number of a message says: publishers count theirs from 0 (some from
 * 1), so a number that is left out is a message that was lost, and one that
 * goes down is another process. Pure.
 *
 * A message may come twice: live, and once more in a replay of what was
 * missing.
 */
#ifndef CONDUCTOR_LINK_EVENTS_SEQUENCE_H
#define CONDUCTOR_LINK_EVENTS_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

struct kv_sequence {
    bool any_live, any_applied;
    uint64_t live;    /* number of the last live message */
    uint64_t first;   /* of the first one that was, since all was forgotten */
    uint64_t applied; /* of the last one that was applied, however it came */
    double time_s;    /* of that one, by its sender's clock; 0: unknown */
};

enum kv_verdict {
    KV_SEQUENCE_NEXT,      /* apply it */
    KV_SEQUENCE_DUPLICATE, /* a replay had it */
    KV_SEQUENCE_GAP,       /* those from kv_sequence_wanted() on are missing */
    KV_SEQUENCE_RESTART,   /* the publisher began anew */
};

/*
 * A live message has come: judges it, and remembers that it came, not that it
 * was applied.
 *   time_s  when it was sent, by its sender's clock; 0: unknown.
 */
enum kv_verdict kv_sequence_live(struct kv_sequence *s, uint64_t number,
                                 double time_s);

/* The number of the first message that is missing. */
uint64_t kv_sequence_wanted(const struct kv_sequence *s);

/* A message was applied. */
void kv_sequence_applied(struct kv_sequence *s, uint64_t number, double time_s);

/* All that was applied is forgotten; what was live is not. */
void kv_sequence_forget(struct kv_sequence *s);

/* Another process may follow: nothing is known of its numbers. A replay may
 * have its first live messages. */
void kv_sequence_begin(struct kv_sequence *s);

#endif
