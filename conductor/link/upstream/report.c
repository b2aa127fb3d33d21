/* Samples of Prometheus's text format: name{labels} value [time]. */
#include "conductor/link/upstream/report.h"

#include <stdlib.h>
#include <string.h>

enum told { SUM, MOST, CACHE, PAGES, PAGE };

/* The names of vLLM (old and new), SGLang and llama.cpp's server. */
static const struct {
    const char *name;
    enum told told;
    size_t at;
} samples[] = {
#define AT(field) offsetof(struct engine_report, field)
    {"vllm:num_requests_running", SUM, AT(running)},
    {"vllm:num_requests_waiting", SUM, AT(waiting)},
    {"vllm:kv_cache_usage_perc", MOST, AT(kv_usage_ratio)},
    {"vllm:gpu_cache_usage_perc", MOST, AT(kv_usage_ratio)},
    {"vllm:cache_config_info", CACHE, 0},
    {"sglang:num_running_reqs", SUM, AT(running)},
    {"sglang:num_queue_reqs", SUM, AT(waiting)},
    {"sglang:token_usage", MOST, AT(kv_usage_ratio)},
    {"sglang:cache_config_info", CACHE, 0},
    {"sglang:num_pages", PAGES, 0}, /* SGLang 0.5.23 has this one instead */
    {"sglang:page_size", PAGE, 0},
    {"llamacpp:requests_processing", SUM, AT(running)},
    {"llamacpp:requests_deferred", SUM, AT(waiting)},
    {"process_start_time_seconds", MOST, AT(start_s)},
#undef AT
};

void report_begin(struct report_scan *scan, int64_t rank)
{
    memset(scan, 0, sizeof(*scan));
    scan->rank = rank;
    scan->report = (struct engine_report){-1, -1, -1, -1, -1, -1};
}

/* Returns the whole number in label="..."; -1 = none. */
static int64_t label_number(const char *labels, const char *label)
{
    size_t n = strlen(label);

    for (const char *at = labels; (at = strstr(at, label)); at += n) {
        char *end;

        if (at[-1] != '{' && at[-1] != ',' && at[-1] != ' ')
            continue;
        if (at[n] != '=' || at[n + 1] != '"')
            continue;
        int64_t number = strtoll(at + n + 2, &end, 10);
        if (end > at + n + 2 && *end == '"' && number >= 0 &&
            number <= UINT32_MAX)
            return number;
    }
    return -1;
}

static void add_blocks(struct engine_report *r, int64_t blocks)
{
    r->kv_blocks = (r->kv_blocks > 0 ? r->kv_blocks : 0) + blocks;
}

/* Label names differ between engines. Values are per rank: they are added up,
 * and replace sglang:num_pages, which counts the same blocks. */
static void take_cache(struct report_scan *scan, const char *labels)
{
    struct engine_report *r = &scan->report;
    int64_t block = label_number(labels, "block_size");
    int64_t blocks = label_number(labels, "num_gpu_blocks");

    if (block <= 0)
        block = label_number(labels, "page_size");
    if (blocks <= 0)
        blocks = label_number(labels, "num_pages");
    if (block > 0)
        r->block_tokens = block;
    if (blocks <= 0)
        return;
    if (!scan->any_cache)
        r->kv_blocks = -1;
    scan->any_cache = true;
    add_blocks(r, blocks);
}

static void take_pages(struct report_scan *scan, enum told told, double value)
{
    if (!(value >= 1 && value <= UINT32_MAX))
        return;
    if (told == PAGE)
        scan->report.block_tokens = (int64_t)value;
    else if (!scan->any_cache)
        add_blocks(&scan->report, (int64_t)value);
}

static void take_value(double *into, enum told told, double value)
{
    if (!(value >= 0 && value < 1e15)) /* NaN, infinite, or a lie */
        return;
    if (*into < 0)
        *into = value;
    else if (told == SUM)
        *into += value;
    else if (value > *into)
        *into = value;
}

/* Returns where the value begins, after the name and its labels; a quoted label
 * value may hold any byte. NULL = not a sample. */
static char *value_of(char *at)
{
    bool quoted = false;

    if (*at == ' ')
        return at + 1;
    if (*at != '{')
        return NULL;
    for (; *at; at++)
        if (quoted && *at == '\\' && at[1])
            at++;
        else if (*at == '"')
            quoted = !quoted;
        else if (!quoted && *at == '}')
            return at[1] == ' ' ? at + 2 : NULL;
    return NULL;
}

/* Whether a sample is another rank's: label "engine" (vLLM) or "dp_rank". */
static bool of_other_rank(const struct report_scan *scan, const char *labels)
{
    int64_t rank = label_number(labels, "engine");

    if (rank < 0)
        rank = label_number(labels, "dp_rank");
    return scan->rank >= 0 && rank >= 0 && rank != scan->rank;
}

static void take_line(struct report_scan *scan)
{
    scan->line[scan->n] = '\0';
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        size_t n = strlen(samples[i].name);
        char *value, *end;

        if (strncmp(scan->line, samples[i].name, n) != 0)
            continue;
        value = value_of(scan->line + n);
        if (!value)
            continue;
        if (of_other_rank(scan, scan->line + n))
            return;
        if (samples[i].told == CACHE) {
            take_cache(scan, scan->line + n);
            return;
        }
        double number = strtod(value, &end);
        if (end > value && samples[i].told >= PAGES)
            take_pages(scan, samples[i].told, number);
        else if (end > value)
            take_value(
                (double *)(void *)((char *)&scan->report + samples[i].at),
                samples[i].told, number);
        return;
    }
}

void report_end(struct report_scan *scan)
{
    if (!scan->too_long && scan->n)
        take_line(scan);
    scan->n = 0;
    scan->too_long = false;
}

void report_feed(struct report_scan *scan, const char *bytes, size_t n)
{
    while (n) {
        const char *newline = memchr(bytes, '\n', n);
        size_t some = newline ? (size_t)(newline - bytes) : n;

        if (some > REPORT_LINE_BYTES - 1 - scan->n)
            scan->too_long = true;
        if (!scan->too_long) {
            memcpy(scan->line + scan->n, bytes, some);
            scan->n += some;
        }
        if (!newline)
            return;
        report_end(scan);
        bytes += some + 1;
        n -= some + 1;
    }
}
