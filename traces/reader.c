/* Lines out of a file, requests out of lines; see reader.h. */
#include "traces/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/array.h"
#include "traces/id_map.h"
#include "traces/scan.h"

#define READ_BYTES ((size_t)64 << 10)
/* Ids whose predecessor is remembered, 24 to 48 bytes each; ids beyond the
 * bound go unchecked. */
#define CHAIN_IDS_MAX ((size_t)4 << 20)

struct trace_reader {
    gzFile file;
    struct id_map *before; /* id -> the id before it */
    uint32_t block_tokens;
    int64_t last_arrival_us;
    uint64_t line;
    bool at_end;
    bool discards; /* what is left of a line that was too long */
    char *buffer;  /* unread bytes are buffer[begin .. end) */
    size_t capacity;
    size_t begin;
    size_t end;
};

/* What cannot be opened is gzopen()'s to tell. */
static int check_regular(const char *path, struct trace_error *error)
{
    struct stat status;

    if (stat(path, &status) != 0 || S_ISREG(status.st_mode))
        return 0;
    trace_error_set(error, "", "", 0,
                    "not a regular file, and it is read more than once");
    return -ESPIPE;
}

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
    int rc = -ENOMEM;
    r->block_tokens =
        o->block_tokens != 0 ? o->block_tokens : TRACE_BLOCK_TOKENS;
    r->capacity = 2 * READ_BYTES;
    r->buffer = malloc(r->capacity);
    r->before = id_map_new(CHAIN_IDS_MAX);
    if (!r->buffer || !r->before)
        goto free_reader;
    rc = o->regular_only ? check_regular(path, error) : 0;
    if (rc != 0)
        goto free_reader;
    errno = 0;
    r->file = gzopen(path, "rb");
    if (!r->file) {
        rc = errno != 0 ? -errno : -ENOMEM;
        trace_error_set(error, "", "", 0, "%s", strerror(-rc));
        goto free_reader;
    }
    *error = (struct trace_error){0};
    *reader = r;
    return 0;

free_reader:
    trace_reader_free(r);
    return rc;
}

void trace_reader_free(struct trace_reader *reader)
{
    if (!reader)
        return;
    if (reader->file)
        gzclose(reader->file);
    id_map_free(reader->before);
    free(reader->buffer);
    free(reader);
}

/* Reads more bytes behind the unread ones; sets at_end when there are none. */
static int fill(struct trace_reader *r, struct trace_error *error)
{
    size_t unread = r->end - r->begin;

    if (r->begin > 0) {
        memmove(r->buffer, r->buffer + r->begin, unread);
        r->begin = 0;
        r->end = unread;
    }
    if (r->capacity - r->end < READ_BYTES) {
        if (r->capacity > TRACE_LINE_BYTES_MAX) {
            trace_error_set(error, "", "", 0, "the line exceeds %zu bytes",
                            TRACE_LINE_BYTES_MAX);
            r->discards = true;
            r->begin = r->end;
            return -EINVAL;
        }
        if (array_reserve(r->buffer, r->capacity, r->capacity + 1))
            return -ENOMEM;
    }
    int n = gzread(r->file, r->buffer + r->end, (unsigned)READ_BYTES);
    int status = Z_OK;
    const char *why = gzerror(r->file, &status);
    if (n < 0 || (n == 0 && status != Z_OK && status != Z_STREAM_END)) {
        trace_error_set(error, "", "", 0, "cannot read: %s",
                        status == Z_ERRNO ? strerror(errno) : why);
        return -EIO;
    }
    r->at_end = n == 0;
    r->end += (size_t)n;
    return 0;
}

/* Drops bytes until behind the end of the line that was too long. */
static int discard_line(struct trace_reader *r, struct trace_error *error)
{
    while (r->discards) {
        char *from = r->buffer + r->begin;
        char *newline = memchr(from, '\n', r->end - r->begin);

        if (newline) {
            r->begin += (size_t)(newline - from) + 1;
            r->discards = false;
            break;
        }
        r->begin = r->end;
        if (r->at_end)
            break;
        int rc = fill(r, error);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Finds the next line; *bytes excludes the newline. 1, 0 at the end, < 0. */
static int next_line(struct trace_reader *r, const char **line, size_t *bytes,
                     struct trace_error *error)
{
    size_t looked = 0;
    int failed = discard_line(r, error);

    if (failed != 0)
        return failed;
    for (;;) {
        char *from = r->buffer + r->begin;
        size_t unread = r->end - r->begin;
        char *newline = memchr(from + looked, '\n', unread - looked);

        if (newline || (r->at_end && unread > 0)) {
            *line = from;
            *bytes = newline ? (size_t)(newline - from) : unread;
            r->begin += *bytes + (newline ? 1 : 0);
            r->line++;
            return 1;
        }
        if (r->at_end)
            return 0;
        looked = unread;
        int rc = fill(r, error);
        if (rc != 0) {
            error->line = ++r->line;
            return rc;
        }
    }
}

/* Whether every id follows the one it always follows; with `learn`, ids that
 * are new are remembered. */
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

            trace_error_set(error, "hash_ids", text, (size_t)n,
                            "at index %zu follows another id than before, "
                            "so it cannot stand for one prefix",
                            i);
            return -EINVAL;
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

        trace_error_set(error, "timestamp", text, (size_t)n,
                        "goes backward, the line before has %" PRId64,
                        r->last_arrival_us / 1000);
        return -EINVAL;
    }
    size_t blocks =
        (q->input_tokens + (size_t)r->block_tokens - 1) / r->block_tokens;
    if (q->block_count != blocks) {
        int n = snprintf(text, sizeof text, "[%zu ids]", q->block_count);

        trace_error_set(error, "hash_ids", text, (size_t)n,
                        "%u tokens in blocks of %u need %zu ids",
                        (unsigned)q->input_tokens, (unsigned)r->block_tokens,
                        blocks);
        return -EINVAL;
    }
    /* Twice: nothing is learned from a bad line. Only an id that comes twice in
     * one line is found while it is learned. */
    int rc = check_chain(r, q, false, error);
    rc = rc == 0 ? check_chain(r, q, true, error) : rc;
    if (rc == 0)
        r->last_arrival_us = q->arrival_us;
    return rc;
}

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

int trace_reader_next(struct trace_reader *reader,
                      struct trace_request *request, struct trace_error *error)
{
    *error = (struct trace_error){0};
    const char *line = NULL;
    size_t bytes = 0;
    do {
        int rc = next_line(reader, &line, &bytes, error);

        if (rc <= 0)
            return rc;
    } while (is_blank(line, bytes));
    int rc = trace_scan_line(line, bytes, request, error);
    if (rc == 0)
        rc = check_request(reader, request, error);
    if (rc != 0) {
        error->line = reader->line;
        if (rc == -ENOMEM)
            trace_error_set(error, "", "", 0, "out of memory");
        return rc;
    }
    return 1;
}
