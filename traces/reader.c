/* See reader.h. */
#include "traces/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traces/id_map.h"
#include "traces/lines.h"
#include "traces/scan.h"

/* Most ids whose predecessor is remembered, 24 to 48 bytes each; further ids
 * are not checked. */
#define CHAIN_IDS_MAX ((size_t)4 << 20)

/* A file has the first of these formats whose begins() accepts the first
 * line. */
static const struct trace_format formats[] = {
    {NULL, trace_scan_line},
};

struct trace_reader {
    struct trace_lines *lines;
    const struct trace_format *format; /* NULL = no line is read yet */
    struct id_map *before;             /* id -> the id before it */
    uint32_t block_tokens;
    int64_t last_arrival_us;
};

int trace_reader_open(const char *path,
                      const struct trace_reader_options *options,
                      struct trace_reader **reader, struct trace_error *error)
{
    static const struct trace_reader_options defaults = {0};
    const struct trace_reader_options *o = options ? options : &defaults;

    *error = (struct trace_error){0};
    struct trace_reader *r = calloc(1, sizeof *r);
    trace_error_set(error, "", "", 0, "out of memory");
    if (!r)
        return -ENOMEM;
    r->block_tokens =
        o->block_tokens != 0 ? o->block_tokens : TRACE_BLOCK_TOKENS;
    r->before = id_map_new(CHAIN_IDS_MAX);
    int rc = r->before
                 ? trace_lines_open(path, o->regular_only, &r->lines, error)
                 : -ENOMEM;
    if (rc != 0) {
        trace_reader_free(r);
        return rc;
    }
    *reader = r;
    return 0;
}

void trace_reader_free(struct trace_reader *reader)
{
    if (!reader)
        return;
    trace_lines_free(reader->lines);
    id_map_free(reader->before);
    free(reader);
}

/* Checks that every known id follows its known predecessor; with `learn`,
 * records new ids. */
static int check_chain(struct trace_reader *r, const struct trace_request *q,
                       bool learn, struct trace_error *error)
{
    uint64_t before = ID_MAP_NONE;

    for (size_t i = 0; i < q->block_count && !learn; i++)
        id_map_prefetch(r->before, q->hash_ids[i]);
    for (size_t i = 0; i < q->block_count; i++) {
        uint64_t id = q->hash_ids[i];
        const uint64_t *known = id_map_get(r->before, id);

        if (known && *known != before) {
            char text[24];
            int n = snprintf(text, sizeof text, "%" PRIu64, id);

            return trace_error_set(
                error, "hash_ids", text, (size_t)n,
                "at index %zu follows another id than before, "
                "so it cannot stand for one prefix",
                i);
        }
        if (!known && learn && id_map_put(r->before, id, before) == -ENOMEM)
            return -ENOMEM;
        before = id;
    }
    return 0;
}

static int check_request(struct trace_reader *r, const struct trace_request *q,
                         struct trace_error *error)
{
    char text[24];

    if (q->arrival_us < r->last_arrival_us) {
        int n = snprintf(text, sizeof text, "%" PRId64, q->arrival_us / 1000);

        return trace_error_set(error, "timestamp", text, (size_t)n,
                               "goes backward, the line before has %" PRId64,
                               r->last_arrival_us / 1000);
    }
    size_t blocks =
        (q->input_tokens + (size_t)r->block_tokens - 1) / r->block_tokens;
    if (q->block_count != blocks) {
        int n = snprintf(text, sizeof text, "[%zu ids]", q->block_count);

        return trace_error_set(error, "hash_ids", text, (size_t)n,
                               "%u tokens in blocks of %u need %zu ids",
                               (unsigned)q->input_tokens,
                               (unsigned)r->block_tokens, blocks);
    }
    /* First checks the whole line, then records its ids, so that a bad line
     * records none. Only an id that occurs twice in a line is found at the
     * second step. */
    int rc = check_chain(r, q, false, error);
    rc = rc == 0 ? check_chain(r, q, true, error) : rc;
    if (rc == 0)
        r->last_arrival_us = q->arrival_us;
    return rc;
}

static const struct trace_format *format_of(const char *line, size_t bytes)
{
    const struct trace_format *f = formats;

    while (f->begins && !f->begins(line, bytes))
        f++;
    return f;
}

int trace_reader_next(struct trace_reader *reader,
                      struct trace_request *request, struct trace_error *error)
{
    const char *line = NULL;
    size_t bytes = 0;
    int rc;

    do {
        rc = trace_lines_next(reader->lines, &line, &bytes, error);
        if (rc <= 0)
            return rc;
        if (!reader->format)
            reader->format = format_of(line, bytes);
        rc = reader->format->scan(line, bytes, request, error);
    } while (rc > 0);
    if (rc == 0)
        rc = check_request(reader, request, error);
    if (rc == -ENOMEM)
        trace_error_set(error, "", "", 0, "out of memory");
    if (rc != 0)
        error->line = trace_lines_number(reader->lines);
    return rc != 0 ? rc : 1;
}
