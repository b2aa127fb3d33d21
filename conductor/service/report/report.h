/*
 * /metrics, in pieces: the text of some thousand instances takes longer than
 * the event loop may be blocked. The front calls models_report_new(),
 * models_report_next() and models_report_free() (service.h).
 */
#ifndef CONDUCTOR_SERVICE_REPORT_REPORT_H
#define CONDUCTOR_SERVICE_REPORT_REPORT_H

struct models;

/* report_lag_start(models): begins to measure the event loop's lag. Returns 0
 * or -ENOMEM. */
[[nodiscard]] int report_lag_start(struct models *models);

/* report_lag_stop(models): stops the measuring of lag; a no-op if it was never
 * started. */
void report_lag_stop(struct models *models);

#endif
