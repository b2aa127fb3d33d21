/* Shared by the files of this folder. */
#ifndef CONDUCTOR_SERVICE_REPORT_INTERNAL_H
#define CONDUCTOR_SERVICE_REPORT_INTERNAL_H

#include "conductor/service/internal.h"
#include "conductor/service/models.h"
#include "conductor/service/report/report.h"

struct text_buf;

/* Sums over all models. */
struct report_sums {
    struct metrics metrics;
    uint64_t in_flight, warm_jobs, pending_dropped, interrupted;
    int64_t overhead_us; /* of the model with the longest */
    uint64_t keys, holders, bytes, bytes_max, evicted, unindexed;
};

/* totals.c: report_sums_begin() starts with the removed services;
 * report_sums_add() adds a service. The writers here return 0, or not 0: out of
 * memory. */
void report_sums_begin(const struct models *models, struct report_sums *sums);
void report_sums_add(struct report_sums *sums, const struct service *s);
[[nodiscard]] int report_sums_write(const struct models *models,
                                    const struct report_sums *sums,
                                    struct text_buf *out);

/* instances.c: report_gauges() returns the number of gauges, _gauge_begin()
 * writes the head of one, _gauge_line() its line for the instance in a slot, if
 * there is one. */
size_t report_gauges(void);
[[nodiscard]] int report_gauge_begin(size_t gauge, struct text_buf *out);
[[nodiscard]] int report_gauge_line(const struct service *s, uint32_t slot,
                                    size_t gauge, int64_t now_us,
                                    struct text_buf *out);

/* Writes the lines of a gauge for engines that have not told their model: they
 * are not ready, and have no slot. */
[[nodiscard]] int report_gauge_scouts(const struct models *models, size_t gauge,
                                      struct text_buf *out);

/* process.c: writes the metrics of the process, and the version.
 *   start_s  start of the process, Unix time */
[[nodiscard]] int report_process(double start_s, struct text_buf *out);

/* peers.c: writes the metrics of the exchange with other conductors; nothing
 * without a cluster. */
[[nodiscard]] int report_peers(const struct cluster *cluster,
                               struct text_buf *out);

#endif
