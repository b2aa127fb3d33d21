/*
 * What an engine's /metrics tells of itself, out of Prometheus's text, line by
 * line as it comes: whatever its length, one line is kept. Pure.
 */
#ifndef CONDUCTOR_LINK_ENGINE_REPORT_H
#define CONDUCTOR_LINK_ENGINE_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPORT_LINE_BYTES 4096

/* Sums over the engine's ranks, or of one of them. -1: not told. */
struct engine_report {
    double running, waiting; /* requests */
    double kv_usage_ratio;   /* of the fullest rank */
    double start_s;          /* when the process began, Unix time */
    int64_t block_tokens, kv_blocks;
};

/* A text that is coming in. */
struct report_scan {
    struct engine_report report;
    int64_t rank; /* the only one that counts; -1: all */
    char line[REPORT_LINE_BYTES];
    size_t n;       /* of line */
    bool too_long;  /* the line is skipped */
    bool any_cache; /* a cache_config_info told the blocks */
};

/* Nothing is told yet.
 *   rank  samples that name another data-parallel rank (label "engine" or
 *         "dp_rank") are skipped; -1: none are. */
void report_begin(struct report_scan *scan, int64_t rank);

/* The next n bytes, borrowed. Lines that are no sample, or longer than
 * REPORT_LINE_BYTES, are skipped. O(n). */
void report_feed(struct report_scan *scan, const char *bytes, size_t n);

/* The text is over: its last line may lack an end. */
void report_end(struct report_scan *scan);

#endif
