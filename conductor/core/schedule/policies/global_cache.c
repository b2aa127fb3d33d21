/*
 * global_cache: Algorithm 1 of the Mooncake paper (FAST'25, section 4). For
 * every prefill instance, if best_len / prefix_len is above
 * kvcache_balancing_threshold (or prefix_len is 0 and best_len is not), the
 * missing blocks are fetched from the instance with the longest match, else it
 * uses what it has; the smallest T_transfer + T_queue + T_prefill wins, and is
 * refused if that sum is over the TTFT SLO.
 */
#include "conductor/core/schedule/internal.h"

static const struct policy_option options[] = {
    {"kvcache_balancing_threshold", NULL, 1, 1e9, false, 1,
     "fetch blocks if the longest match elsewhere is more than this many times "
     "as long as the local one"},
    {"rescue", NULL, 0, 1, true, 0,
     "1: if the chosen instance misses the TTFT SLO, take the instance with "
     "the lowest TTFT if it meets the SLO, and let transfers overlap the "
     "queue; 0: as in the paper, compare the sum of transfer, queue and "
     "prefill with the SLO"},
    {POLICY_PRICE(0)},
    {POLICY_RHO(NULL)},
    {POLICY_RHO_EASES(NULL)},
    {POLICY_PRICE_FLOOR(NULL)},
};

static void rules(const double *values, struct schedule_rules *out)
{
    out->by_score = !(values[1] > 0.0);
    policy_price_rules(values + 2, out);
}

static size_t estimate(struct scheduler *s,
                       const struct schedule_request *request,
                       uint32_t usable_blocks)
{
    return schedule_estimate_fetching(s, request, usable_blocks, s->options[0]);
}

static int64_t score_of(const struct prefill_estimate *candidate)
{
    return candidate->score_us;
}

static size_t choose(const struct policy_choice *choice)
{
    return policy_choose_lowest(choice, score_of);
}

const struct schedule_policy policy_global_cache = {
    .name = "global_cache",
    .help = "Mooncake's Algorithm 1: the lowest TTFT, with the local prefix or "
            "the longest one fetched",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .rules = rules,
    .estimate = estimate,
    .choose = choose,
};
