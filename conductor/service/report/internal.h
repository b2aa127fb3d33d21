/* What the files of this folder share. */
#ifndef CONDUCTOR_SERVICE_REPORT_INTERNAL_H
#define CONDUCTOR_SERVICE_REPORT_INTERNAL_H

#include "conductor/service/models.h"
#include "conductor/service/report/report.h"
#include "conductor/service/state.h"

struct evbuffer;

/* What all models have in flight, in memory, and in their indexes. */
struct report_sums {
    struct metrics metrics;
    uint64_t in_flight, warm_jobs, pending_dropped, interrupted;
    int64_t overhead_us; /* the longest */
    uint64_t keys, holders, bytes, bytes_max, evicted, unindexed;
};

/* totals.c: begins with the services that are gone; adds one; writes all of
 * it. The writers return 0, or not 0: out of memory. */
void report_sums_begin(const struct models *models, struct report_sums *sums);
void report_sums_add(struct report_sums *sums, const struct service *s);
[[nodiscard]] int report_sums_write(const struct models *models,
                                    const struct report_sums *sums,
                                    struct evbuffer *out);

/* instances.c: how many gauges an instance has; the head of one; its line of
 * the instance in a slot, if there is one. */
size_t report_gauges(void);
[[nodiscard]] int report_gauge_begin(size_t gauge, struct evbuffer *out);
[[nodiscard]] int report_gauge_line(const struct service *s, uint32_t slot,
                                    size_t gauge, int64_t now_us,
                                    struct evbuffer *out);

/* process.c: what the system says of the process, and what was built.
 *   start_s  when it was started, Unix time */
[[nodiscard]] int report_process(double start_s, struct evbuffer *out);

/* peers.c: what is told and heard of other conductors; nothing where there are
 * none. */
[[nodiscard]] int report_peers(const struct cluster *cluster,
                               struct evbuffer *out);

#endif
