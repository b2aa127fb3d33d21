/*
 * The last 5 minutes in points of 5 s, the last hour in points of 10 s and the
 * last 24 hours in points of 4 minutes: ended requests, those in time,
 * promises, reused tokens, TTFT predicted and real. 780 points of about 850
 * bytes, however long the daemon runs.
 */
#ifndef CONDUCTOR_SERVICE_HISTORY_HISTORY_H
#define CONDUCTOR_SERVICE_HISTORY_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

/* Points of the hour, and the length of each. */
#define HISTORY_POINTS 360
#define HISTORY_POINT_US INT64_C(10000000)

struct history;
struct text_buf;

enum history_span { HISTORY_5M, HISTORY_1H, HISTORY_24H, HISTORY_SPANS };

/* How a request ended. */
enum history_end {
    HISTORY_IN_TIME, /* completed, within its SLOs */
    HISTORY_LATE,    /* completed, not within its SLOs */
    HISTORY_REJECTED,
    HISTORY_FAILED,
    HISTORY_ENDS,
};

/* history_new(): returns an empty history, owned, or NULL: out of memory. */
[[nodiscard]] struct history *history_new(void);

/* history_free(history): NULL is a no-op. */
void history_free(struct history *history);

/* history_first_token(history, predicted_us, ttft_us, now_us): counts a first
 * token. predicted_us 0 = not predicted. now_us never falls. O(1); NULL is a
 * no-op. */
void history_first_token(struct history *history, int64_t predicted_us,
                         int64_t ttft_us, int64_t now_us);

/* history_promise(history, kept, now_us): counts the first token of a request
 * that was accepted with a limit on TTFT: kept or late. As above. */
void history_promise(struct history *history, bool kept, int64_t now_us);

/* history_ended(history, end, now_us): counts the end of a request; as above.
 */
void history_ended(struct history *history, enum history_end end,
                   int64_t now_us);

/* history_prompt(history, tokens, reused, guessed, now_us): counts a prompt's
 * tokens and the reused ones among them. guessed: = tokens if either number is
 * a guess, else 0. As above. */
void history_prompt(struct history *history, uint64_t tokens, uint64_t reused,
                    uint64_t guessed, int64_t now_us);

/*
 * history_write(history, span, now_us, out): appends the members of a JSON
 * object, without its braces, for the span's points until now, the oldest
 * first: "step_s": 10, "last_s": 3.5, "in_time": [..], "late": [..],
 * "rejected": [..], "failed": [..], "promises_kept": [..], "promises_late":
 * [..], "prompt_tokens": [..], "reused_tokens": [..], "guessed_tokens": [..],
 *   "ttft_mean_ms": [..], "ttft_p50_ms": [..], "ttft_p90_ms": [..],
 *   "ttft_p99_ms": [..], "predicted_p50_ms": [..]
 * The last point is incomplete: it covers last_s so far. null = no first token
 * in that time. Returns 0 or -ENOMEM. O(points).
 */
[[nodiscard]] int history_write(const struct history *history,
                                enum history_span span, int64_t now_us,
                                struct text_buf *out);

/*
 * history_write_last(history, n, now_us, out): appends members with totals over
 * the last n points of the hour: "seconds": .., and the members of
 * history_write(), each with one number or null.
 */
[[nodiscard]] int history_write_last(const struct history *history, unsigned n,
                                     int64_t now_us, struct text_buf *out);

#endif
