/* The CSV of a table, read strictly; see table.h. */
#include "tools/replay/paper/cake/table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define LINE_MAX_BYTES 512

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

/* Of a line; more than columns, for those that are passed over. */
#define FIELDS_MAX 64

/* One pass over one file. */
struct parser {
    const char *name;
    size_t line;
    bool in_rows;
    const struct column
        *order[FIELDS_MAX]; /* of the header; NULL: passed over */
    size_t fields;
    struct cake_table *table;
    char *error; /* (CAKE_ERROR_BYTES) */
};

__attribute__((format(printf, 3, 4))) static int
refuse(const struct parser *p, int rc, const char *format, ...)
{
    char what[256];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    for (char *c = what; *c != '\0'; c++) /* it quotes the file */
        if (*c < 32 || *c > 126)
            *c = '?';
    snprintf(p->error, CAKE_ERROR_BYTES, "%.240s:%zu: %s", p->name, p->line,
             what);
    return rc;
}

static int read_name(const struct parser *p, const char *field,
                     const char *text, char name[CAKE_NAME_BYTES])
{
    size_t length = strlen(text);
    bool ok = length >= 1 && length < CAKE_NAME_BYTES;

    for (size_t i = 0; ok && i < length; i++)
        ok = text[i] > 32 && text[i] < 127 && text[i] != '"';
    if (!ok) {
        return refuse(p, -EINVAL,
                      "%s: expected a name of 1 to %d printable bytes without "
                      "spaces or quotes, got \"%.80s\"",
                      field, CAKE_NAME_BYTES - 1, text);
    }
    memcpy(name, text, length + 1);
    return 0;
}

/* Plain decimals: strtod alone also takes spaces, signs, hexadecimals, inf and
 * nan. */
static bool parse_number(const char *text, const char *allowed, double *value)
{
    char *end = NULL;

    if (text[0] < '0' || text[0] > '9' || strspn(text, allowed) != strlen(text))
        return false;
    *value = strtod(text, &end);
    return *end == '\0';
}

static int read_number(const struct parser *p, const struct column *c,
                       const char *text, double *value)
{
    const char *allowed = c->kind == NUMBER ? "0123456789.eE+-" : "0123456789";

    if (!parse_number(text, allowed, value) || !(*value >= c->least) ||
        !(*value <= c->most)) {
        return refuse(p, -EINVAL, "%s: expected %s of %g to %g, got \"%.80s\"",
                      c->name, c->kind == NUMBER ? "a number" : "an integer",
                      c->least, c->most, text);
    }
    return 0;
}

static int read_field(const struct parser *p, const struct column *c,
                      const char *text, struct cake_row *row)
{
    void *field = (char *)row + c->offset;
    double value = 0;
    int rc;

    if (c->kind == NAME)
        return read_name(p, c->name, text, field);
    rc = read_number(p, c, text, &value);
    if (rc != 0)
        return rc;
    if (c->kind == NUMBER)
        *(double *)field = value;
    else if (c->kind == BITS)
        *(int *)field = (int)value;
    else
        *(int64_t *)field = (int64_t)value;
    return 0;
}

/* Cuts `line` at its commas, in place. Returns how many fields there are, of
 * which at most FIELDS_MAX are written. */
static size_t split(char *line, char *fields[FIELDS_MAX])
{
    size_t count = 0;

    for (char *at = line; at; count++) {
        char *field = strsep(&at, ",");

        if (count < FIELDS_MAX)
            fields[count] = field;
    }
    return count;
}

/* Where the column stands in the header; p->fields: nowhere. */
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
        return refuse(p, -EINVAL, "more than %d columns", FIELDS_MAX);
    for (size_t i = 0; i < count; i++) {
        size_t c = 0;

        while (c < COLUMNS && strcmp(columns[c].name, fields[i]) != 0)
            c++;
        if (c < COLUMNS && place_of(p, &columns[c]) < p->fields) {
            return refuse(p, -EINVAL, "column %zu: %s is there twice", i + 1,
                          columns[c].name);
        }
        p->order[p->fields++] = c < COLUMNS ? &columns[c] : NULL;
    }
    for (size_t c = 0; c < COLUMNS; c++) {
        if (place_of(p, &columns[c]) == p->fields) {
            return refuse(p, -EINVAL, "the header has no column %s",
                          columns[c].name);
        }
    }
    p->in_rows = true;
    return 0;
}

static int append(const struct parser *p, const struct cake_row *row)
{
    struct cake_table *table = p->table;

    if (table->count == CAKE_TABLE_MAX_ROWS)
        return refuse(p, -EFBIG, "more than %d rows", CAKE_TABLE_MAX_ROWS);
    if (table->count == table->capacity) {
        size_t capacity = table->capacity == 0 ? 64 : 2 * table->capacity;
        struct cake_row *grown =
            realloc(table->rows, capacity * sizeof table->rows[0]);

        if (!grown)
            return refuse(p, -ENOMEM, "out of memory");
        table->rows = grown;
        table->capacity = capacity;
    }
    table->rows[table->count++] = *row;
    return 0;
}

static int read_row(const struct parser *p, char *fields[FIELDS_MAX],
                    size_t count)
{
    struct cake_row row;

    if (count != p->fields) {
        return refuse(p, -EINVAL, "expected %zu columns, got %zu", p->fields,
                      count);
    }

    memset(&row, 0, sizeof row);
    row.line = p->line;
    for (size_t i = 0; i < p->fields; i++) {
        int rc = p->order[i] ? read_field(p, p->order[i], fields[i], &row) : 0;

        if (rc != 0)
            return rc;
    }
    row.setup.utilisation /= 100;
    return append(p, &row);
}

static int read_line(struct parser *p, const char *text, size_t length)
{
    char line[LINE_MAX_BYTES + 1];
    char *fields[FIELDS_MAX];

    if (length > 0 && text[length - 1] == '\r')
        length--;
    if (length > LINE_MAX_BYTES)
        return refuse(p, -EINVAL, "longer than %d bytes", LINE_MAX_BYTES);
    if (memchr(text, '\0', length))
        return refuse(p, -EINVAL, "a NUL byte");
    if (length == 0 || text[0] == '#')
        return 0;
    memcpy(line, text, length);
    line[length] = '\0';
    size_t count = split(line, fields);
    return p->in_rows ? read_row(p, fields, count)
                      : read_header(p, fields, count);
}

int cake_table_read_buffer(const char *text, size_t size, const char *name,
                           struct cake_table *table,
                           char error[CAKE_ERROR_BYTES])
{
    struct parser p = {.name = name, .table = table, .error = error};
    int rc = 0;

    for (size_t at = 0; at < size && rc == 0;) {
        const char *newline = memchr(text + at, '\n', size - at);
        size_t length = newline ? (size_t)(newline - (text + at)) : size - at;

        p.line++;
        rc = read_line(&p, text + at, length);
        at += length + 1;
    }
    if (rc == 0 && table->count == 0) {
        p.line++;
        rc = refuse(&p, -EINVAL, "the file ends before %s",
                    p.in_rows ? "the first row" : "the header");
    }
    if (rc != 0)
        cake_table_fini(table);
    return rc;
}

int cake_table_read_file(const char *path, struct cake_table *table,
                         char error[CAKE_ERROR_BYTES])
{
    char *text = NULL;
    size_t size = 0;
    int rc = file_read(path, CAKE_TABLE_MAX_BYTES, &text, &size);

    if (rc != 0) {
        snprintf(error, CAKE_ERROR_BYTES, "%.240s: %s", path, strerror(-rc));
        return rc;
    }
    rc = cake_table_read_buffer(text, size, path, table, error);
    free(text);
    return rc;
}

void cake_table_fini(struct cake_table *table)
{
    free(table->rows);
    *table = (struct cake_table){0};
}
