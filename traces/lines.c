/* See lines.h. */
#include "traces/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/array.h"

#define READ_BYTES ((size_t)64 << 10)

struct trace_lines {
    gzFile file;
    uint64_t line;
    bool at_end;
    bool discards; /* skipping the rest of a line that was too long */
    char *buffer;  /* unread bytes are buffer[begin .. end) */
    size_t capacity;
    size_t begin;
    size_t end;
};

/* Returns 0 for a file that cannot be opened: gzopen() reports that. */
static int check_regular(const char *path, struct trace_error *error)
{
    struct stat status;

    if (stat(path, &status) != 0 || S_ISREG(status.st_mode))
        return 0;
    trace_error_set(error, "", "", 0,
                    "not a regular file, and it is read more than once");
    return -ESPIPE;
}

int trace_lines_open(const char *path, bool regular_only,
                     struct trace_lines **lines, struct trace_error *error)
{
    *error = (struct trace_error){0};
    struct trace_lines *r = calloc(1, sizeof *r);
    trace_error_set(error, "", "", 0, "out of memory");
    if (!r)
        return -ENOMEM;
    int rc = -ENOMEM;
    r->capacity = 2 * READ_BYTES;
    r->buffer = malloc(r->capacity);
    if (!r->buffer)
        goto free_lines;
    rc = regular_only ? check_regular(path, error) : 0;
    if (rc != 0)
        goto free_lines;
    errno = 0;
    r->file = gzopen(path, "rb");
    if (!r->file) {
        rc = errno != 0 ? -errno : -ENOMEM;
        trace_error_set(error, "", "", 0, "%s", strerror(-rc));
        goto free_lines;
    }
    *error = (struct trace_error){0};
    *lines = r;
    return 0;

free_lines:
    trace_lines_free(r);
    return rc;
}

void trace_lines_free(struct trace_lines *lines)
{
    if (!lines)
        return;
    if (lines->file)
        gzclose(lines->file);
    free(lines->buffer);
    free(lines);
}

uint64_t trace_lines_number(const struct trace_lines *lines)
{
    return lines->line;
}

/* Reads more bytes behind the unread ones; sets at_end when there are none. */
static int fill(struct trace_lines *r, struct trace_error *error)
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

/* Skips the rest of a line that was too long. */
static int discard_line(struct trace_lines *r, struct trace_error *error)
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

/* Finds the next line; *bytes excludes the newline. Returns 1, 0 at the end,
 * or a negative errno. */
static int next_line(struct trace_lines *r, const char **line, size_t *bytes,
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

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

int trace_lines_next(struct trace_lines *lines, const char **line,
                     size_t *bytes, struct trace_error *error)
{
    *error = (struct trace_error){0};
    do {
        int rc = next_line(lines, line, bytes, error);

        if (rc <= 0)
            return rc;
    } while (is_blank(*line, *bytes));
    return 1;
}
