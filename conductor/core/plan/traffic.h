/*
 * Transfers that share instances' links: pushes of KV to decode instances slow
 * fetches down, and wait for one another.
 */
#ifndef CONDUCTOR_CORE_PLAN_TRAFFIC_H
#define CONDUCTOR_CORE_PLAN_TRAFFIC_H

#include <stdint.h>

#include "conductor/core/pool/instance.h"

/*
 * Returns how long (us) a fetch takes beside the pushes of prefills that the
 * sender has accepted. Pushes leave while it computes: they take an even share
 * of its link for that time, or all of it if they need longer.
 *   us  the time of the fetch alone.
 */
double traffic_fetch_us(const struct pool_instance *sender, double us,
                        int64_t now_us);

/* KV on its way from a prefill to a decode instance. */
struct traffic_push {
    int64_t n_tokens;
    int64_t kv_bytes_per_token;
    uint32_t layers; /* it leaves layer by layer during the prefill; 0 = all of
                        it after the prefill */
    int64_t due_us;  /* absolute: when its prefill ends */
    int64_t now_us;
};

/* Returns how long (us) an instance's link still sends the KV of finished
 * prefills, of which half is left on average. */
double traffic_late_us(const struct pool_instance *instance,
                       int64_t kv_bytes_per_token);

/* Returns how long (us) after the end of its prefill a request's KV has left
 * the prefill instance, behind the KV of finished prefills. */
double traffic_sent_us(const struct pool_instance *prefill,
                       const struct traffic_push *push);

/*
 * Returns by how much (us) all pushes that a prefill instance has accepted
 * delay a request's KV on its link. Half of the KV of finished prefills is
 * taken as still to send. The link is modelled as a fluid that never idles.
 *   n_tokens     of its prompt.
 *   ttft_us      when its prefill ends, from now.
 *   anywhere_us  wait of its KV for the decode instance, whichever instance
 *                sends it: only a longer delay counts; 0 = all of it counts.
 * Returns max(ttft_us, pushes + own) - max(ttft_us, anywhere + own), at least
 * 0: it falls by at most as much as ttft_us grows. Cost: O(1).
 */
double traffic_held_up_us(const struct pool_instance *prefill, int64_t n_tokens,
                          int64_t kv_bytes_per_token, int64_t ttft_us,
                          double anywhere_us);

/* Returns by how much (us) all pushes booked to a decode instance, whenever
 * they are due, delay a push there: 0 .. COST_MODEL_MAX_US, 0 if the link's
 * rate is unknown. O(1). */
int64_t traffic_behind_us(const struct pool_instance *decode,
                          const struct traffic_push *push);

/* A push among all pushes booked to a decode instance. */
struct traffic_beside {
    int64_t longest_us; /* the longest booked push, alone on the link */
    int64_t late_us;    /* delay of this push if all begin with it and share the
                           link evenly: each delays it by its own length, at
                           most by the length of this push */
};

/* Returns these times, in the range of traffic_behind_us(). O(decodes). */
struct traffic_beside traffic_beside(const struct pool_instance *decode,
                                     const struct traffic_push *push);

/*
 * Returns how long (us) after the end of its prefill a request's KV has come to
 * its decode instance. It waits there for the pushes that are due before it,
 * but not for overdue ones whose prefill has not begun. A link of unknown rate
 * takes no time.
 *   sent_us  of traffic_sent_us().
 * Cost: O(1) if the links are fast enough, else O(decodes).
 */
int64_t traffic_gap_us(double sent_us, const struct pool_instance *decode,
                       const struct traffic_push *push);

#endif
