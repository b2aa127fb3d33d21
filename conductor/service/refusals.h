/*
 * Why requests are refused: a row for each reason of core/dispatch, with the
 * answer that a client gets and the counter of conductor_rejections_total.
 */
#ifndef CONDUCTOR_SERVICE_REFUSALS_H
#define CONDUCTOR_SERVICE_REFUSALS_H

/*
 *   refused(REASON, metric, code, say, text)  status 429; counts as "metric"
 *   also(REASON, metric, code, say, text)     the same, with the counter of an
 *                                             earlier row
 *   failed(REASON, status, code, say, text)   another status; counts by its
 *                                             code (metrics_count_failure())
 *   early(REASON, metric)                     429 before there is a request:
 *                                             service_submit() counts
 *
 * REASON is the member DISPATCH_REASON of enum dispatch_reason; `say` writes
 * the message (request/refuse.c), NULL = the message is `text`. The order of
 * rows is that of the metrics.
 */
#define REFUSALS(refused, also, failed, early)                                \
    failed(NO_REASON, 500, "internal_error", NULL, "no decision was reached") \
        refused(MISSES_TTFT, slo_ttft, "slo_ttft_exceeded", say_ttft,         \
                "") refused(MISSES_TBT, slo_tbt, "slo_tbt_exceeded", say_tbt, \
                            "") refused(PRICE, price, "price", say_price, "") \
            refused(SHARE, share, "share", say_share, "") refused(            \
                NO_ROOM, no_room, "no_capacity", NULL,                        \
                "no instance will have room in its KV cache within this "     \
                "request's time to first token limit")                        \
                also(WAITED_TOO_LONG, no_room, "no_capacity", say_waited, "") \
                    refused(LINK_BUSY, link, "link_busy", say_link, "")       \
                        early(TICKETS, tickets)                               \
                            failed(NO_PREFILL, 503, "no_prefill_instance",    \
                                   say_none, "")                              \
                                failed(NO_DECODE, 503, "no_decode_instance",  \
                                       say_none, "")                          \
                                    failed(TOO_LONG, 400,                     \
                                           "prompt_exceeds_kv_capacity",      \
                                           say_too_long, "")

/* For the kinds of rows that a use leaves out. */
#define REFUSALS_NONE(...)

#endif
