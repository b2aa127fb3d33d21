/*
 * Reads an engine's load and cache size from its /metrics, Prometheus text, as
 * it arrives: only one line is kept in memory. Pure.
 */
#ifndef CONDUCTOR_LINK_UPSTREAM_REPORT_H
#define CONDUCTOR_LINK_UPSTREAM_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPORT_LINE_BYTES 4096

/* Sums over the engine's ranks, or one rank's values. -1 = not reported. */
struct engine_report {
    double running, waiting; /* requests */
    double kv_usage_ratio;   /* of the fullest rank */
    double start_s;          /* process start, Unix time */
    int64_t block_tokens, kv_blocks;
};

/* State of a text being read. */
struct report_scan {
    struct engine_report report;
    int64_t rank; /* data-parallel rank to read; -1 = all */
    char line[REPORT_LINE_BYTES];
    size_t n;       /* bytes in line */
    bool too_long;  /* the line is skipped */
    bool any_cache; /* a cache_config_info set kv_blocks */
};

/* Begins a text.
 *   rank  skips samples that name another data-parallel rank (label "engine" or
 *         "dp_rank"); -1 = skips none. */
void report_begin(struct report_scan *scan, int64_t rank);

/* Reads the next n bytes, borrowed. Lines that are no sample, or longer than
 * REPORT_LINE_BYTES, are skipped. O(n). */
void report_feed(struct report_scan *scan, const char *bytes, size_t n);

/* Ends the text; its last line may lack a newline. */
void report_end(struct report_scan *scan);

#endif
