/* The CSV of a table, read strictly; see table.h. */
#include "tools/replay/paper/cake/table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/csv.h"

enum column_kind { NAME, NUMBER, INTEGER, BITS };

struct column {
    const char *name;
    enum column_kind kind;
    size_t offset; /* in struct cake_row */
    double least;
    double most;
};

#define SETUP(field) offsetof(struct cake_row, setup.field)

static const struct column columns[] = {
    {"hardware", NAME, SETUP(hardware), 0, 0},
    {"util_pct", NUMBER, SETUP(utilisation), 0.01, 100},
    {"bandwidth_gbps", NUMBER, SETUP(bandwidth_gbps), 1e-3, 1e6},
    {"model", NAME, SETUP(model), 0, 0},
    {"seq_len", INTEGER, SETUP(n_tokens), 1, 1e7},
    {"chunk", INTEGER, SETUP(chunk_tokens), 1, 1e6},
    {"kv_bits", BITS, SETUP(kv_bits), 1, 16},
    {"speedup_io", NUMBER, offsetof(struct cake_row, speedup_io), 1e-6, 1e6},
    {"speedup_compute", NUMBER, offsetof(struct cake_row, speedup_compute),
     1e-6, 1e6},
};

#define COLUMNS (sizeof columns / sizeof columns[0])

/* Most fields of a line, including ignored columns. */
#define FIELDS_MAX 64

/* One pass over one file. */
struct parser {
    struct csv csv;
    const struct column *order[FIELDS_MAX]; /* of the header; NULL = ignored */
    size_t fields;                          /* 0 = no header yet */
    struct cake_table *table;
};

static int read_name(const struct parser *p, const char *field,
                     const char *text, char name[CAKE_NAME_BYTES])
{
    size_t length = strlen(text);
    bool ok = length >= 1 && length < CAKE_NAME_BYTES;

    for (size_t i = 0; ok && i < length; i++)
        ok = text[i] > 32 && text[i] < 127 && text[i] != '"';
    if (!ok)
        return csv_refuse(&p->csv, -EINVAL,
                          "%s: \"%.80s\": must be a name of 1 to %d "
                          "printable bytes without spaces or quotes",
                          field, text, CAKE_NAME_BYTES - 1);
    memcpy(name, text, length + 1);
    return 0;
}

static int read_field(const struct parser *p, const struct column *c,
                      const char *text, struct cake_row *row)
{
    void *field = (char *)row + c->offset;
    double value = 0;

    if (c->kind == NAME)
        return read_name(p, c->name, text, field);
    if (!csv_number(text, c->kind != NUMBER, &value) || !(value >= c->least) ||
        !(value <= c->most))
        return csv_refuse(&p->csv, -EINVAL,
                          "%s: \"%.80s\": must be %s of %g to %g", c->name,
                          text, c->kind == NUMBER ? "a number" : "an integer",
                          c->least, c->most);
    if (c->kind == NUMBER)
        *(double *)field = value;
    else if (c->kind == BITS)
        *(uint32_t *)field = (uint32_t)value;
    else
        *(int64_t *)field = (int64_t)value;
    return 0;
}

/* Returns a column's place in the header; p->fields = not there. */
static size_t place_of(const struct parser *p, const struct column *c)
{
    size_t i = 0;

    while (i < p->fields && p->order[i] != c)
        i++;
    return i;
}

static int read_header(struct parser *p, char *fields[FIELDS_MAX], size_t count)
{
    if (count > FIELDS_MAX)
        return csv_refuse(&p->csv, -EINVAL, "more than %d columns", FIELDS_MAX);
    for (size_t i = 0; i < count; i++) {
        size_t c = 0;

        while (c < COLUMNS && strcmp(columns[c].name, fields[i]) != 0)
            c++;
        if (c < COLUMNS && place_of(p, &columns[c]) < p->fields)
            return csv_refuse(&p->csv, -EINVAL, "column %zu: %s is there twice",
                              i + 1, columns[c].name);
        p->order[p->fields++] = c < COLUMNS ? &columns[c] : NULL;
    }
    for (size_t c = 0; c < COLUMNS; c++)
        if (place_of(p, &columns[c]) == p->fields)
            return csv_refuse(&p->csv, -EINVAL, "the header has no column %s",
                              columns[c].name);
    return 0;
}

static int append(const struct parser *p, const struct cake_row *row)
{
    struct cake_table *table = p->table;

    if (table->count == CAKE_TABLE_MAX_ROWS)
        return csv_refuse(&p->csv, -EFBIG, "more than %d rows",
                          CAKE_TABLE_MAX_ROWS);
    if (array_reserve(table->rows, table->capacity, table->count + 1))
        return csv_refuse(&p->csv, -ENOMEM, "out of memory");
    table->rows[table->count++] = *row;
    return 0;
}

static int read_row(const struct parser *p, char *fields[FIELDS_MAX],
                    size_t count)
{
    struct cake_row row;

    if (count != p->fields)
        return csv_refuse(&p->csv, -EINVAL, "%zu columns: must be %zu", count,
                          p->fields);
    memset(&row, 0, sizeof row);
    row.line = p->csv.line;
    for (size_t i = 0; i < p->fields; i++) {
        int rc = p->order[i] ? read_field(p, p->order[i], fields[i], &row) : 0;

        if (rc != 0)
            return rc;
    }
    row.setup.utilisation /= 100;
    return append(p, &row);
}

static int read_line(void *arg, char *line)
{
    struct parser *p = arg;
    char *fields[FIELDS_MAX];

    if (line[0] == '#')
        return 0;
    size_t count = csv_split(line, fields, FIELDS_MAX);
    return p->fields > 0 ? read_row(p, fields, count)
                         : read_header(p, fields, count);
}

int cake_table_read(const char *text, size_t size, const char *name,
                    struct cake_table *table, char error[CAKE_ERROR_BYTES])
{
    struct parser p = {.csv = {name, error, CAKE_ERROR_BYTES, 0},
                       .table = table};
    int rc = csv_read(&p.csv, text, text ? size : CAKE_TABLE_MAX_BYTES,
                      read_line, &p);

    if (rc == 0 && table->count == 0)
        rc = csv_refuse(&p.csv, -EINVAL, "the file ends before %s",
                        p.fields > 0 ? "the first row" : "the header");
    if (rc != 0)
        cake_table_fini(table);
    return rc;
}

void cake_table_fini(struct cake_table *table)
{
    free(table->rows);
    *table = (struct cake_table){0};
}
