/*
 * What transfers do to each other on the links of instances: pushes of KV to
 * decode instances slow fetches down, and wait for one another.
 */
#ifndef CONDUCTOR_CORE_PLAN_TRAFFIC_H
#define CONDUCTOR_CORE_PLAN_TRAFFIC_H

#include <stdint.h>

#include "conductor/core/pool/instance.h"

/*
 * How long a fetch takes that has a sender's link to itself but for the pushes
 * of the prefills that the sender has accepted. These leave while it computes:
 * they take an even share of the link as long as that lasts, or all of it where
 * they need longer.
 *   us  what it takes alone.
 */
double traffic_fetch_us(const struct pool_instance *sender, double us,
                        int64_t now_us);

/* KV on its way from a prefill to a decode instance. */
struct traffic_push {
    int64_t n_tokens;
    int64_t kv_bytes_per_token;
    uint32_t layers; /* it leaves layer by layer while it is computed; 0: at
                        once behind it */
    int64_t due_us;  /* absolute: when its prefill ends */
    int64_t now_us;
};

/* How long the link of an instance will yet send the KV of prefills that are
 * over: half of it is on the way, on average. */
double traffic_late_us(const struct pool_instance *instance,
                       int64_t kv_bytes_per_token);

/* How much later than its prefill the link of a prefill instance has sent the
 * KV of a request. It waits for pushes that are late, of which half is left on
 * average. */
double traffic_sent_us(const struct pool_instance *prefill,
                       const struct traffic_push *push);

/*
 * By how much later a request's KV has left the link of its prefill instance
 * because of the pushes that this has accepted, late and coming ones; its own
 * goes with them, behind half of the late ones' bytes. The link is taken for a
 * fluid that nothing wastes.
 *   n_tokens  of its prompt.
 *   ttft_us   when its prefill ends, from now.
 *   anywhere_us  that its KV waits for where it decodes, whoever sends it: what
 *                it waits no longer than that does not count; 0: all counts.
 * Returns max(ttft_us, pushes + own) - max(ttft_us, anywhere + own) in
 * microseconds, at least 0: it falls by at most as much as ttft_us grows. Cost:
 * O(1).
 */
double traffic_held_up_us(const struct pool_instance *prefill, int64_t n_tokens,
                          int64_t kv_bytes_per_token, int64_t ttft_us,
                          double anywhere_us);

/* By how much later a push has come to a decode instance because of all that
 * this was accepted to receive, whenever that is due; microseconds, at least 0,
 * 0 where the link's rate is not known, COST_MODEL_MAX_US at most. O(1). */
int64_t traffic_behind_us(const struct pool_instance *decode,
                          const struct traffic_push *push);

/* What a decode instance was accepted to receive, beside a push. */
struct traffic_beside {
    int64_t longest_us; /* the longest one of these pushes, alone on the link */
    int64_t late_us;    /* by how much later this one has come if all begin with
                           it and share the link evenly: each holds it up by its
                           own length, or by that of this one if that is less */
};

/* Saturates and counts links as traffic_behind_us(). O(decodes). */
struct traffic_beside traffic_beside(const struct pool_instance *decode,
                                     const struct traffic_push *push);

/*
 * By how much the KV of a request comes later to where it decodes than its
 * prefill ends. There it waits for those that are due before it, which begin
 * with the first of them; not for those that are late because their prefill has
 * not begun.
 *   sent_us  by traffic_sent_us().
 * Returns microseconds; what a link whose rate is not known does counts as 0.
 * Cost: O(1) where the links are fast enough, else O(decodes).
 */
int64_t traffic_gap_us(double sent_us, const struct pool_instance *decode,
                       const struct traffic_push *push);

#endif
