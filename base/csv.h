/* Lines of a CSV file without quotes, read strictly. */
#ifndef BASE_CSV_H
#define BASE_CSV_H

#include <stdbool.h>
#include <stddef.h>

/* Where messages go, and the current line. */
struct csv {
    const char *name; /* file name; borrowed */
    char *error;      /* (error_size) */
    size_t error_size;
    size_t line; /* counts from 1; after the last line, one more */
};

/* Handles a non-empty line without its line end; may change it. Returns 0, or
 * the result of csv_refuse(). */
typedef int csv_line(void *arg, char *line);

/* Writes "NAME:LINE: message" into the error; bytes other than printable ASCII
 * become '?', because the message quotes the file. Returns rc. */
int csv_refuse(const struct csv *csv, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Calls take() for each line of text[0 .. size) (borrowed, needs no NUL), or,
 * if `text` is NULL, of the file csv->name of at most `size` bytes, until one
 * is refused. Returns 0 or take()'s error; -EINVAL for a line of over 512 bytes
 * or with a NUL; for a file also -EFBIG, -ENOMEM, or an error of open or
 * read. */
[[nodiscard]] int csv_read(struct csv *csv, const char *text, size_t size,
                           csv_line *take, void *arg);

/* Splits a line at its commas, in place. Returns the number of fields; the
 * first `most` are in `fields`. */
size_t csv_split(char *line, char **fields, size_t most);

/* Returns whether a field is a plain decimal number, with digits only if
 * `whole`. Refuses spaces, signs, hexadecimals, inf and nan. */
bool csv_number(const char *field, bool whole, double *value);

#endif
