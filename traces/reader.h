/*
 * Reads a trace file request by request, plain or gzip, in bounded memory,
 * and checks the conditions between lines:
 *   - arrival_us never goes backward;
 *   - block_count == ceil(input_tokens / block_tokens);
 *   - an id always follows the same id (ids are prefix-chained); checked for
 *     the first 4 million ids.
 */
#ifndef TRACES_READER_H
#define TRACES_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "traces/trace.h"

struct trace_reader_options {
    uint32_t block_tokens; /* 0 = TRACE_BLOCK_TOKENS */
    /* Accept only a regular file, which can be read again. */
    bool regular_only;
};

/* A format of traces: one file, and one row in `formats` (reader.c). */
struct trace_format {
    /* Returns whether a file with this first line has the format. NULL = every
     * file has it: only for the last row. */
    bool (*begins)(const char *line, size_t bytes);
    /* As trace_scan_line(). May also return 1: the line is a header and holds
     * no request. */
    int (*scan)(const char *line, size_t bytes, struct trace_request *request,
                struct trace_error *error);
};

struct trace_reader;

/*
 * Opens `path`; options may be NULL. Returns 0 with *reader owned by the
 * caller, or a negative errno with `error` filled and *reader untouched;
 * -ESPIPE: not a regular file, with regular_only.
 */
[[nodiscard]] int trace_reader_open(const char *path,
                                    const struct trace_reader_options *options,
                                    struct trace_reader **reader,
                                    struct trace_error *error);

/*
 * Reads the next request into `request` ({0} or one filled before; its room is
 * reused). Empty lines are skipped. Returns 1; 0 at the end of the file;
 * -EINVAL for a bad line, -EIO for a damaged file or -ENOMEM, each with `error`
 * filled. After -EINVAL the next call ignores the bad line and continues with
 * the next; after other errors the reader can only be freed.
 */
[[nodiscard]] int trace_reader_next(struct trace_reader *reader,
                                    struct trace_request *request,
                                    struct trace_error *error);

/* Closes the file and frees the reader; NULL is a no-op. */
void trace_reader_free(struct trace_reader *reader);

#endif
