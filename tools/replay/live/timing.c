/* See timing.h. */
#include "tools/replay/live/timing.h"

#include <stdlib.h>

#include "tools/replay/math.h"

bool timing_take_cached(struct profile_point *point,
                        const struct replay_record *record,
                        uint32_t block_tokens)
{
    if (!record->tells_reused)
        return true;
    int64_t less = (int64_t)point->b - record->reused_tokens;
    uint32_t n = point->a + point->b;

    if (llabs(less) >= block_tokens || record->reused_tokens >= n)
        return false;
    point->b = record->reused_tokens;
    point->a = n - point->b;
    return true;
}

double timing_step_us(const struct replay_record *records, size_t n)
{
    double steps_us[TIMING_BATCH_MAX];
    int64_t from_us = INT64_MAX, all_us = 0, any_us = INT64_MAX, to_us = 0;

    for (size_t i = 0; i < n; i++) {
        const struct replay_record *r = &records[i];

        if (r->generated_tokens < 2)
            return -1;
        steps_us[i] =
            (double)(r->end_us - r->first_token_us) / (r->generated_tokens - 1);
        from_us = r->first_token_us < from_us ? r->first_token_us : from_us;
        all_us = r->first_token_us > all_us ? r->first_token_us : all_us;
        any_us = r->end_us < any_us ? r->end_us : any_us;
        to_us = r->end_us > to_us ? r->end_us : to_us;
    }
    replay_sort(steps_us, n);
    return 2 * (any_us - all_us) < to_us - from_us
               ? -1
               : (steps_us[(n - 1) / 2] + steps_us[n / 2]) / 2;
}
