/* See table.h. */
#include "tools/ctl/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void table_add(struct table *t, const char *text)
{
    char **cells = realloc(t->cells, (t->n + 1) * sizeof(*cells));

    if (!cells) {
        t->failed = 1;
        return;
    }
    t->cells = cells;
    cells[t->n] = strdup(text);
    if (cells[t->n])
        t->n++;
    else
        t->failed = 1;
}

int table_print(struct table *t)
{
    size_t width[TABLE_COLUMNS_MAX] = {0};

    for (size_t i = 0; i < t->n; i++) {
        size_t n = strlen(t->cells[i]), c = i % t->columns;

        width[c] = n > width[c] ? n : width[c];
    }
    for (size_t i = 0; i < t->n && !t->failed; i++) {
        size_t c = i % t->columns;

        if (c + 1 == t->columns)
            printf("%s\n", t->cells[i]);
        else
            printf("%-*s  ", (int)width[c], t->cells[i]);
    }
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
    return t->failed;
}
