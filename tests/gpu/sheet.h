/* A table of results: printed as text, written as JSON. A row is built cell by
 * cell; all rows of a sheet have the same columns in the same order.
 */
#ifndef TESTS_GPU_SHEET_H
#define TESTS_GPU_SHEET_H

#include <stdbool.h>
#include <stdio.h>

#define SHEET_MAX_COLUMNS 20
#define SHEET_MAX_ROWS 256
#define SHEET_MAX_FACTS 24
#define SHEET_TEXT_BYTES 160

struct sheet_cell {
    char text[SHEET_TEXT_BYTES]; /* as it is printed; "-" if not measured */
    bool number;
};

struct sheet_fact {
    char name[32];
    char text[SHEET_TEXT_BYTES];
    bool number;
};

/* Plain data; all zero is an empty sheet. */
struct sheet {
    const char *columns[SHEET_MAX_COLUMNS]; /* borrowed */
    unsigned n_columns;
    struct sheet_cell cells[SHEET_MAX_ROWS][SHEET_MAX_COLUMNS];
    unsigned n_rows;
    unsigned at; /* cells of the row that is being built */
    struct sheet_fact facts[SHEET_MAX_FACTS];
    unsigned n_facts;
    unsigned left_out; /* rows that time, memory or the sheet had no room for */
};

/* One of JSON's "facts"; a second one of that name takes its place. */
void sheet_fact(struct sheet *s, const char *name, const char *text);
void sheet_fact_number(struct sheet *s, const char *name, double value,
                       int decimals);

/* The next cell of the row. `column` is static; NaN prints as "-" and is null.
 */
void sheet_text(struct sheet *s, const char *column, const char *text);
void sheet_number(struct sheet *s, const char *column, double value,
                  int decimals);

/* Ends the row and prints it to `out`, below a head if it is the first one. */
void sheet_end_row(struct sheet *s, FILE *out);

/* Writes {"bench": name, "facts": {...}, "rows": [{...}], "left_out": n}.
 * Returns 0, or -EIO. */
[[nodiscard]] int sheet_write_json(const struct sheet *s, const char *name,
                                   FILE *out);

#endif
