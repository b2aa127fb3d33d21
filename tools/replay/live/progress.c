/* See progress.h. */
#include "tools/replay/live/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "tools/replay/math.h"

void replay_progress_init(struct replay_progress *progress, size_t total)
{
    *progress = (struct replay_progress){
        .total = total, .on_terminal = isatty(STDERR_FILENO) == 1};
}

void replay_progress_add(struct replay_progress *p,
                         const struct replay_record *r)
{
    if (r->outcome == REPLAY_REJECTED) {
        p->rejected++;
    } else if (r->outcome == REPLAY_FAILED) {
        p->failed++;
    } else if (r->outcome == REPLAY_COMPLETED) {
        p->completed++;
        p->prompt_tokens += r->prompt_tokens;
        p->reused_tokens += r->reused_tokens;
        p->ttft_sum_us += r->first_token_us - r->intended_us;
        p->ttft_count++;
    }
}

void replay_progress_show(struct replay_progress *p, int64_t now_us,
                          size_t sent, size_t in_flight, bool last)
{
    if (!last && !p->on_terminal && now_us - p->shown_us < 5000000)
        return;
    p->shown_us = now_us;
    double ttft_s = p->ttft_count > 0
                        ? (double)p->ttft_sum_us / (double)p->ttft_count / 1e6
                        : 0.0;
    fprintf(stderr,
            "%s%6.1f s  sent %zu/%zu  in flight %zu  completed %zu  rejected "
            "%zu  failed %zu  reused %.1f%%  mean TTFT %.3f s%s",
            p->on_terminal ? "\r\033[K" : "", (double)now_us / 1e6, sent,
            p->total, in_flight, p->completed, p->rejected, p->failed,
            100 * replay_ratio(p->reused_tokens, p->prompt_tokens), ttft_s,
            p->on_terminal && !last ? "" : "\n");
    fflush(stderr);
}
