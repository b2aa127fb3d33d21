/*
 * /metrics, in pieces: a text of some thousand instances takes longer to write
 * than the event loop may stand still. What service.h has of it is
 * models_report_new(), models_report_next() and models_report_free().
 */
#ifndef CONDUCTOR_SERVICE_REPORT_REPORT_H
#define CONDUCTOR_SERVICE_REPORT_REPORT_H

struct models;

/* report_lag_start(models): measures from now on how late the loop is. Returns
 * 0 or -ENOMEM. */
[[nodiscard]] int report_lag_start(struct models *models);

/* report_lag_stop(models): also where it was never started. */
void report_lag_stop(struct models *models);

#endif
