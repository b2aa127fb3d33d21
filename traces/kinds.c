/*
 * Workloads of sessions, which represent kinds of traffic, not one trace:
 * agents follow recorded coding sessions, the other kinds our assumptions about
 * such services. DESIGN.md has a table of measurements.
 */
#include "traces/sessions.h"

/* clang-format off */

/* Short chats: one of many system prompts, a few turns. */
static const struct session_kind chat = {
    .prefixes = 60,
    .prefix_blocks =
        {{{0, 1}, {100, 1}, {250, 1}, {500, 2}, {750, 3}, {850, 4},
          {900, 5}, {950, 6}, {990, 8}, {1000, 8}}},
    .first_tokens =
        {{{0, 10}, {100, 20}, {250, 45}, {500, 120}, {750, 350}, {900, 900},
          {950, 1500}, {990, 4000}, {995, 6000}, {1000, 8000}}},
    .turn_tokens =
        {{{0, 5}, {100, 10}, {250, 20}, {500, 45}, {750, 120}, {900, 400},
          {950, 800}, {990, 2000}, {995, 3000}, {1000, 4000}}},
    .output_tokens =
        {{{0, 1}, {50, 10}, {100, 25}, {250, 90}, {500, 220}, {750, 380},
          {900, 560}, {950, 700}, {990, 1100}, {1000, 2000}}},
    .turns =
        {{{0, 1}, {250, 1}, {400, 2}, {550, 3}, {700, 4}, {800, 6},
          {900, 9}, {950, 12}, {990, 20}, {1000, 30}}},
    .pause_ms =
        {{{0, 2000}, {100, 5000}, {250, 10000}, {500, 22000}, {750, 50000},
          {850, 80000}, {900, 120000}, {950, 180000}, {990, 400000},
          {1000, 600000}}},
    .input_max_tokens = 32768,
};

/* A sub-agent: its own prompt, then some turns with tool results. */
static const struct session_kind sub_agent = {
    .prefixes = 3,
    .prefix_blocks =
        {{{0, 10}, {100, 11}, {250, 12}, {500, 14}, {750, 17}, {850, 18},
          {900, 19}, {950, 20}, {990, 21}, {1000, 22}}},
    .first_tokens =
        {{{0, 100}, {100, 200}, {250, 350}, {500, 700}, {750, 1500},
          {900, 3000}, {950, 4500}, {990, 8000}, {995, 9000}, {1000, 12000}}},
    .turn_tokens =
        {{{0, 60}, {100, 150}, {250, 350}, {500, 900}, {750, 2200},
          {900, 4500}, {950, 7000}, {990, 12000}, {995, 14000},
          {1000, 18000}}},
    .output_tokens =
        {{{0, 20}, {50, 40}, {100, 60}, {250, 100}, {500, 170}, {750, 320},
          {900, 700}, {950, 1200}, {990, 2500}, {1000, 4000}}},
    .turns =
        {{{0, 2}, {100, 3}, {250, 4}, {500, 7}, {750, 11}, {850, 14},
          {900, 17}, {950, 22}, {990, 32}, {1000, 40}}},
    .pause_ms =
        {{{0, 200}, {100, 800}, {250, 2000}, {500, 4500}, {750, 9000},
          {850, 14000}, {900, 20000}, {950, 40000}, {990, 110000},
          {1000, 120000}}},
    .input_max_tokens = 122880,
};

/* A coding agent: 92 to 96 % of a prompt repeats the previous turn; tools
 * answer within 10 s in half of the turns and within 30 s in four of five. */
static const struct session_kind agent = {
    .prefixes = 6,
    .prefix_blocks =
        {{{0, 22}, {100, 24}, {250, 28}, {500, 32}, {750, 38}, {850, 40},
          {900, 42}, {950, 44}, {990, 46}, {1000, 48}}},
    .first_tokens =
        {{{0, 100}, {100, 300}, {250, 800}, {500, 2500}, {750, 7000},
          {900, 14000}, {950, 20000}, {990, 35000}, {995, 40000},
          {1000, 50000}}},
    .output_tokens =
        {{{0, 20}, {50, 40}, {100, 60}, {250, 110}, {500, 200}, {750, 400},
          {900, 850}, {950, 1400}, {990, 3000}, {1000, 5000}}},
    .turns =
        {{{0, 1}, {100, 4}, {250, 9}, {500, 20}, {750, 32}, {850, 40},
          {900, 46}, {950, 60}, {990, 90}, {1000, 120}}},
    .pause_ms =
        {{{0, 300}, {100, 1200}, {250, 3500}, {520, 10000}, {780, 30000},
          {850, 60000}, {900, 110000}, {950, 120000}, {990, 120000},
          {1000, 120000}}},
    .repeat_least = 920,
    .repeat_most = 960,
    .input_max_tokens = 122880,
    .children = &sub_agent,
    .children_per_mille = 20,
    .children_least = 1,
    .children_most = 4,
};

/* Questions about one of many documents. */
static const struct session_kind document = {
    .prefixes = 300,
    .prefix_blocks =
        {{{0, 4}, {100, 8}, {250, 14}, {500, 28}, {750, 55}, {850, 75},
          {900, 90}, {950, 110}, {990, 150}, {1000, 180}}},
    .turn_tokens =
        {{{0, 10}, {100, 15}, {250, 25}, {500, 50}, {750, 110}, {900, 250},
          {950, 400}, {990, 1000}, {995, 1500}, {1000, 2000}}},
    .output_tokens =
        {{{0, 5}, {50, 15}, {100, 30}, {250, 80}, {500, 160}, {750, 300},
          {900, 480}, {950, 620}, {990, 1000}, {1000, 1500}}},
    .turns =
        {{{0, 1}, {300, 1}, {500, 2}, {700, 3}, {800, 4}, {900, 5},
          {950, 6}, {980, 7}, {990, 8}, {1000, 10}}},
    .pause_ms =
        {{{0, 3000}, {100, 6000}, {250, 12000}, {500, 25000}, {750, 50000},
          {850, 80000}, {900, 110000}, {950, 160000}, {990, 300000},
          {1000, 400000}}},
    .asks = true,
    .input_max_tokens = 126976,
};

/* Prompts of all lengths that continue for some turns, as in conversation. */
static const struct session_kind talk = {
    .prefixes = 20,
    .prefix_blocks =
        {{{0, 1}, {100, 1}, {250, 2}, {500, 4}, {750, 8}, {850, 10},
          {900, 12}, {950, 14}, {990, 18}, {1000, 20}}},
    .first_tokens =
        {{{0, 60}, {100, 150}, {250, 500}, {500, 2200}, {750, 6500},
          {900, 15000}, {950, 25000}, {990, 60000}, {995, 80000},
          {1000, 110000}}},
    .turn_tokens =
        {{{0, 20}, {100, 40}, {250, 90}, {500, 260}, {750, 1200},
          {900, 4500}, {950, 8000}, {990, 18000}, {995, 25000},
          {1000, 40000}}},
    .output_tokens =
        {{{0, 1}, {50, 10}, {100, 24}, {250, 140}, {500, 320}, {750, 450},
          {900, 590}, {950, 690}, {990, 1100}, {1000, 2000}}},
    .turns =
        {{{0, 1}, {400, 1}, {550, 2}, {700, 3}, {800, 4}, {900, 6},
          {950, 8}, {980, 11}, {990, 14}, {1000, 20}}},
    .pause_ms =
        {{{0, 3000}, {100, 6000}, {250, 14000}, {500, 30000}, {750, 70000},
          {850, 110000}, {900, 150000}, {950, 240000}, {990, 500000},
          {1000, 600000}}},
    .input_max_tokens = 126976,
};

/* One prompt that shares no block with others. */
static const struct session_kind single = {
    .first_tokens =
        {{{0, 40}, {100, 200}, {250, 700}, {500, 2500}, {750, 7000},
          {900, 16000}, {950, 26000}, {990, 55000}, {995, 70000},
          {1000, 110000}}},
    .output_tokens =
        {{{0, 1}, {50, 8}, {100, 20}, {250, 80}, {500, 200}, {750, 380},
          {900, 600}, {950, 800}, {990, 1300}, {1000, 2000}}},
    .turns = QUANTILE_ALWAYS(1),
    .input_max_tokens = 126976,
};

/* A long text after one of a few instructions. */
static const struct session_kind batch_job = {
    .prefixes = 4,
    .prefix_blocks =
        {{{0, 1}, {100, 1}, {250, 2}, {500, 3}, {750, 4}, {850, 5},
          {900, 5}, {950, 6}, {990, 6}, {1000, 6}}},
    .first_tokens =
        {{{0, 1500}, {100, 3000}, {250, 6000}, {500, 12000}, {750, 22000},
          {900, 36000}, {950, 46000}, {990, 60000}, {995, 70000},
          {1000, 90000}}},
    .output_tokens =
        {{{0, 50}, {50, 90}, {100, 130}, {250, 220}, {500, 350}, {750, 500},
          {900, 650}, {950, 750}, {990, 900}, {1000, 1000}}},
    .turns = QUANTILE_ALWAYS(1),
    .input_max_tokens = 126976,
};

/* From 6 a.m. on; the mean is 1,000. */
static const uint16_t day_curve[CURVE_SLOTS] = {
    450, 700, 1000, 1350, 1600, 1700, 1650, 1500, 1600, 1700, 1700, 1500,
    1400, 1200, 1100, 1000, 900, 700, 450, 250, 150, 100, 100, 200};

/* From 1 to 4 a.m. of the same day. */
static const uint16_t night_curve[CURVE_SLOTS] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 12000, 8000, 4000, 0, 0};

static const struct session_workload workloads[] = {
    {
        .facts = {"chats", 6000, 2102, 274, 0.724, 20, true},
        .n_streams = 1,
        .streams = {{.kind = &chat, .share_per_mille = 1000}},
    },
    {
        .facts = {"agents", 6000, 37447, 381, 0.920, 4, true},
        .n_streams = 1,
        .streams = {{.kind = &agent, .share_per_mille = 1000}},
    },
    {
        .facts = {"crowds", 6000, 19587, 227, 0.948, 6, true},
        .n_streams = 2,
        .streams = {{.kind = &document, .share_per_mille = 500},
                    {.kind = &document, .share_per_mille = 500,
                     .burst = {{{0, 20}, {100, 25}, {250, 35}, {500, 60},
                                {750, 100}, {850, 130}, {900, 150}, {950, 180},
                                {990, 200}, {1000, 250}}},
                     .burst_gap_per_mille = 50, .burst_shares = true}},
    },
    {
        .facts = {"day", 6000, 12230, 328, 0.649, 5, true},
        .day_requests = 3000,
        .n_streams = 1,
        .streams = {{.kind = &talk, .share_per_mille = 1000,
                     .curve = day_curve}},
    },
    {
        .facts = {"bursts", 6000, 12038, 329, 0.644, 5, true},
        .n_streams = 1,
        .streams = {{.kind = &talk, .share_per_mille = 1000,
                     .burst = {{{0, 2}, {100, 4}, {250, 8}, {500, 16},
                                {750, 32}, {850, 45}, {900, 60}, {950, 80},
                                {990, 110}, {1000, 130}}},
                     .burst_gap_per_mille = 10}},
    },
    {
        .facts = {"singles", 6000, 6824, 282, 0.000, 5, true},
        .n_streams = 1,
        .streams = {{.kind = &single, .share_per_mille = 1000}},
    },
    {
        .facts = {"mixed", 6000, 8173, 298, 0.873, 8, true},
        .n_streams = 2,
        .streams = {{.kind = &agent, .share_per_mille = 300},
                    {.kind = &chat, .share_per_mille = 700}},
    },
    {
        .facts = {"nightly", 6000, 4667, 291, 0.348, 10, true},
        .day_requests = 3000,
        .n_streams = 2,
        .streams = {{.kind = &chat, .share_per_mille = 850,
                     .curve = day_curve},
                    {.kind = &batch_job, .share_per_mille = 150,
                     .curve = night_curve}},
    },
};
/* clang-format on */

const struct session_workload *session_workload_at(size_t i)
{
    return i < sizeof(workloads) / sizeof(workloads[0]) ? &workloads[i] : NULL;
}
