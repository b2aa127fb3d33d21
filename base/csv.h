/* Lines of a CSV file without quotes, read strictly. */
#ifndef BASE_CSV_H
#define BASE_CSV_H

#include <stdbool.h>
#include <stddef.h>

/* Where messages go, and how far the reading is. */
struct csv {
    const char *name; /* of the file; borrowed */
    char *error;      /* (error_size) */
    size_t error_size;
    size_t line; /* from 1; at the end one behind the last */
};

/* Takes a line, which it may change: without its end, not empty. Returns 0, or
 * what csv_refuse() returned. */
typedef int csv_line(void *arg, char *line);

/* Writes "NAME:LINE: message" into the error; what is not printable ASCII
 * becomes '?', because it quotes the file. Returns rc. */
int csv_refuse(const struct csv *csv, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Has `take` take every line of `size` bytes at `text` (borrowed, needs no
 * NUL), or of the file csv->name of at most `size` bytes where `text` is NULL,
 * until one is refused. Returns 0 or what `take` said; -EINVAL for a line of
 * over 512 bytes or with a NUL; of a file also -EFBIG, -ENOMEM, and what open
 * and read report. */
[[nodiscard]] int csv_read(struct csv *csv, const char *text, size_t size,
                           csv_line *take, void *arg);

/* Cuts a line at its commas, in place. Returns how many fields there are, of
 * which the first `most` are in `fields`. */
size_t csv_split(char *line, char **fields, size_t most);

/* Whether a field is a plain decimal number; a `whole` one has only digits. No
 * spaces, signs, hexadecimals, inf or nan, as strtod alone would take. */
bool csv_number(const char *field, bool whole, double *value);

#endif
