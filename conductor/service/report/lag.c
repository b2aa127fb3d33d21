/* Measures the event loop's lag: how late it calls a timer. */
#include "base/loop/loop.h"
#include "conductor/service/report/internal.h"

#define EACH_US 100000

static void on_timer(void *arg)
{
    struct models *models = arg;
    int64_t now_us = loop_now_us(models->loop),
            late_us = now_us - models->lag_due_us;

    /* The loop belongs to no service, so its lag is counted with the removed
     * services. A timer may fire early by a turn's length: libevent counts from
     * the turn's begin. */
    histogram_observe(&models->past.metrics.loop_lag_s,
                      late_us > 0 ? (double)late_us / 1e6 : 0.0);
    models->lag_due_us = now_us + EACH_US;
    loop_timer_start(&models->lag, EACH_US);
}

int report_lag_start(struct models *models)
{
    loop_timer_init(models->loop, &models->lag, on_timer, models);
    models->lag_due_us = loop_now_us(models->loop) + EACH_US;
    return loop_timer_start(&models->lag, EACH_US);
}

void report_lag_stop(struct models *models)
{
    loop_timer_stop(&models->lag);
}
