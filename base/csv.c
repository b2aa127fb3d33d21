/* See csv.h. */
#include "base/csv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

#define LINE_BYTES_MAX 512

int csv_refuse(const struct csv *csv, int rc, const char *format, ...)
{
    char what[256];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    for (char *c = what; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return error_say(csv->error, csv->error_size, rc, "%.240s:%zu: %s",
                     csv->name, csv->line, what);
}

static int read_line(const struct csv *csv, const char *text, size_t length,
                     csv_line *take, void *arg)
{
    char line[LINE_BYTES_MAX + 1];

    if (length > 0 && text[length - 1] == '\r')
        length--;
    if (length > LINE_BYTES_MAX)
        return csv_refuse(csv, -EINVAL, "longer than %d bytes", LINE_BYTES_MAX);
    if (memchr(text, '\0', length))
        return csv_refuse(csv, -EINVAL, "a NUL byte");
    memcpy(line, text, length);
    line[length] = '\0';
    return length > 0 ? take(arg, line) : 0;
}

int csv_read(struct csv *csv, const char *text, size_t size, csv_line *take,
             void *arg)
{
    char *of_file = NULL;
    int rc = text ? 0 : file_read(csv->name, size, &of_file, &size);

    if (rc != 0)
        snprintf(csv->error, csv->error_size, "%.240s: %s", csv->name,
                 file_why(rc));
    if (of_file)
        text = of_file;
    csv->line = 1;
    for (size_t at = 0; at < size && rc == 0;) {
        const char *newline = memchr(text + at, '\n', size - at);
        size_t length = newline ? (size_t)(newline - (text + at)) : size - at;

        rc = read_line(csv, text + at, length, take, arg);
        csv->line++;
        at += length + 1;
    }
    free(of_file);
    return rc;
}

size_t csv_split(char *line, char **fields, size_t most)
{
    size_t count = 0;

    for (char *at = line; at; count++) {
        char *field = strsep(&at, ",");

        if (count < most)
            fields[count] = field;
    }
    return count;
}

bool csv_number(const char *field, bool whole, double *value)
{
    const char *allowed = whole ? "0123456789" : "0123456789.eE+-";
    char *end = NULL;

    if (field[0] < '0' || field[0] > '9' ||
        strspn(field, allowed) != strlen(field))
        return false;
    *value = strtod(field, &end);
    return *end == '\0';
}
