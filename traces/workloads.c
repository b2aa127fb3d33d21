/*
 * Conversation follows the quantiles of the public trace. For the other two
 * the paper gives only means and ratios; their distributions are our
 * interpretation of its description, fitted to those numbers. DESIGN.md has the
 * measured fit.
 */
#include "traces/workloads.h"

/* clang-format off */
static const struct trace_workload workloads[] = {
    {
        .facts = {"conversation", 12031, 12035.0, 343.0, 0.40, 3.4, false},
        .gap_us = 294000,
        .tick_us = 3000000,
        .continue_per_mille = 388,
        .branch_per_mille = 0,
        .popular_per_mille = 30,
        .popular_count = 20,
        .pause_us = 12000000,
        .input_max_tokens = 126195,
        .popular_blocks =
            {{{0, 2}, {100, 3}, {250, 5}, {500, 8}, {750, 11}, {850, 12},
              {900, 13}, {950, 14}, {990, 16}, {1000, 20}}},
        .first_tokens =
            {{{0, 380}, {100, 400}, {250, 830}, {500, 4300}, {750, 10700},
              {900, 21500}, {950, 33000}, {990, 76000}, {995, 110000},
              {1000, 125600}}},
        .turn_tokens =
            {{{0, 20}, {100, 40}, {250, 100}, {500, 350}, {750, 2000},
              {900, 7300}, {950, 11800}, {990, 22000}, {995, 40000},
              {1000, 60000}}},
        .output_tokens =
            {{{0, 1}, {50, 10}, {100, 24}, {250, 156}, {500, 350},
              {750, 472}, {900, 597}, {950, 698}, {990, 1115}, {1000, 2000}}},
        .recency =
            {{{0, 0}, {100, 90}, {250, 170}, {500, 340}, {750, 720},
              {900, 1300}, {950, 1700}, {990, 3500}, {995, 3800},
              {1000, 4000}}},
    },
    {
        .facts = {"toolagent", 23608, 8596.0, 182.0, 0.59, 6.7, false},
        .gap_us = 150000,
        .tick_us = 3000000,
        .continue_per_mille = 256,
        .branch_per_mille = 0,
        .popular_per_mille = 750,
        .popular_count = 24,
        .pause_us = 6000000,
        .input_max_tokens = 126195,
        .popular_blocks =
            {{{0, 3}, {100, 5}, {250, 8}, {500, 11}, {750, 13}, {850, 14},
              {900, 15}, {950, 17}, {990, 19}, {1000, 22}}},
        .first_tokens =
            {{{0, 80}, {100, 150}, {250, 350}, {500, 1000}, {750, 3300},
              {900, 8600}, {950, 15500}, {990, 42000}, {995, 60000},
              {1000, 110000}}},
        .turn_tokens =
            {{{0, 20}, {100, 60}, {250, 150}, {500, 400}, {750, 1200},
              {900, 3500}, {950, 6000}, {990, 15000}, {995, 20000},
              {1000, 40000}}},
        .output_tokens =
            {{{0, 1}, {50, 10}, {100, 18}, {250, 28}, {500, 60}, {750, 230},
              {900, 460}, {950, 650}, {990, 1200}, {1000, 2000}}},
        .recency =
            {{{0, 0}, {100, 40}, {250, 90}, {500, 200}, {750, 500},
              {900, 1000}, {950, 1500}, {990, 3000}, {995, 3500},
              {1000, 4000}}},
    },
    {
        .facts = {"synthetic", 3993, 15325.0, 149.0, 0.66, 3.9, false},
        .gap_us = 256000,
        .tick_us = 1000,
        .continue_per_mille = 684,
        .branch_per_mille = 700,
        .popular_per_mille = 0,
        .popular_count = 1,
        .pause_us = 5000000,
        .input_max_tokens = 126195,
        .popular_blocks = QUANTILE_ALWAYS(1),
        .first_tokens =
            {{{0, 100}, {100, 400}, {250, 3000}, {500, 9000}, {750, 19500},
              {900, 32200}, {950, 42000}, {990, 69000}, {995, 79000},
              {1000, 110000}}},
        .turn_tokens =
            {{{0, 15}, {100, 25}, {250, 50}, {500, 120}, {750, 350},
              {900, 900}, {950, 1500}, {990, 4000}, {995, 5000},
              {1000, 8000}}},
        .output_tokens =
            {{{0, 1}, {50, 6}, {100, 12}, {250, 30}, {500, 75}, {750, 185},
              {900, 350}, {950, 480}, {990, 900}, {1000, 1500}}},
        .recency =
            {{{0, 0}, {100, 10}, {250, 30}, {500, 90}, {750, 250},
              {900, 500}, {950, 700}, {990, 1500}, {995, 1800}, {1000, 2500}}},
    },
};
/* clang-format on */

const struct trace_workload *trace_workload_at(size_t i)
{
    return i < sizeof workloads / sizeof workloads[0] ? &workloads[i] : NULL;
}
