/* Rows of cells, printed in columns as wide as they must be. */
#ifndef TOOLS_CTL_TABLE_H
#define TOOLS_CTL_TABLE_H

#include <stddef.h>

#define TABLE_COLUMNS_MAX 16

struct table {
    size_t columns;
    char **cells; /* (n) owned, row by row */
    size_t n;
    int failed; /* there was no memory for one */
};

/* Adds one cell, a copy. The first row names the columns. */
void table_add(struct table *table, const char *text);

/* Prints it to stdout and frees what it owns. Returns 0, or 1: no memory. */
[[nodiscard]] int table_print(struct table *table);

#endif
