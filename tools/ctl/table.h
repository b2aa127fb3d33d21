/* Rows of cells, printed in columns as wide as their longest cell. */
#ifndef TOOLS_CTL_TABLE_H
#define TOOLS_CTL_TABLE_H

#include <stddef.h>

#define TABLE_COLUMNS_MAX 16

struct table {
    size_t columns;
    char **cells; /* (n) owned, row by row */
    size_t n;
    int failed; /* out of memory for a cell */
};

/* Adds a copy of a cell's text. The first row names the columns. */
void table_add(struct table *table, const char *text);

/* Prints the table to stdout and frees its cells. Returns 0, or 1 when out of
 * memory. */
[[nodiscard]] int table_print(struct table *table);

#endif
