#include "tests/gpu/sheet.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static void set_text(char *to, const char *text)
{
    snprintf(to, SHEET_TEXT_BYTES, "%s", text);
}

static void set_number(char *to, double value, int decimals)
{
    if (isfinite(value))
        snprintf(to, SHEET_TEXT_BYTES, "%.*f", decimals, value);
    else
        set_text(to, "-");
}

static struct sheet_fact *new_fact(struct sheet *s, const char *name)
{
    unsigned i = 0;

    while (i < s->n_facts && strcmp(s->facts[i].name, name) != 0)
        i++;
    if (i == SHEET_MAX_FACTS)
        i--;
    else if (i == s->n_facts)
        s->n_facts++;
    struct sheet_fact *f = &s->facts[i];

    snprintf(f->name, sizeof(f->name), "%s", name);
    return f;
}

void sheet_fact(struct sheet *s, const char *name, const char *text)
{
    struct sheet_fact *f = new_fact(s, name);

    f->number = false;
    set_text(f->text, text);
}

void sheet_fact_number(struct sheet *s, const char *name, double value,
                       int decimals)
{
    struct sheet_fact *f = new_fact(s, name);

    f->number = true;
    set_number(f->text, value, decimals);
}

/* The first row names the columns. */
static struct sheet_cell *next_cell(struct sheet *s, const char *column)
{
    static struct sheet_cell nowhere;

    if (s->at == SHEET_MAX_COLUMNS || s->n_rows == SHEET_MAX_ROWS)
        return &nowhere;
    if (s->n_rows == 0) {
        s->columns[s->at] = column;
        s->n_columns = s->at + 1;
    }
    return &s->cells[s->n_rows][s->at++];
}

void sheet_text(struct sheet *s, const char *column, const char *text)
{
    struct sheet_cell *c = next_cell(s, column);

    c->number = false;
    set_text(c->text, text);
}

void sheet_number(struct sheet *s, const char *column, double value,
                  int decimals)
{
    struct sheet_cell *c = next_cell(s, column);

    c->number = true;
    set_number(c->text, value, decimals);
}

static int width(const struct sheet *s, unsigned column)
{
    size_t n = strlen(s->columns[column]);

    return n < 9 ? 9 : (int)n;
}

void sheet_end_row(struct sheet *s, FILE *out)
{
    s->at = 0;
    if (s->n_rows == SHEET_MAX_ROWS) {
        s->left_out++;
        return;
    }
    for (unsigned i = 0; s->n_rows == 0 && i < s->n_columns; i++)
        fprintf(out, "%*s%s", width(s, i), s->columns[i],
                i + 1 < s->n_columns ? "  " : "\n");
    for (unsigned i = 0; i < s->n_columns; i++)
        fprintf(out, "%*s%s", width(s, i), s->cells[s->n_rows][i].text,
                i + 1 < s->n_columns ? "  " : "\n");
    fflush(out);
    s->n_rows++;
}

static void write_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fputc('\\', out);

        if ((unsigned char)*c >= ' ')
            fputc(*c, out);
    }
    fputc('"', out);
}

static void write_value(FILE *out, bool number, const char *text)
{
    if (!number)
        write_string(out, text);
    else
        fputs(strcmp(text, "-") == 0 ? "null" : text, out);
}

static void write_row(const struct sheet *s, unsigned row, FILE *out)
{
    for (unsigned i = 0; i < s->n_columns; i++) {
        const struct sheet_cell *c = &s->cells[row][i];

        fputs(i == 0 ? "{" : ", ", out);
        write_string(out, s->columns[i]);
        fputs(": ", out);
        write_value(out, c->number, c->text);
    }
    fputs("}", out);
}

int sheet_write_json(const struct sheet *s, const char *name, FILE *out)
{
    fputs("{\"bench\": ", out);
    write_string(out, name);
    fputs(",\n \"facts\": {", out);
    for (unsigned i = 0; i < s->n_facts; i++) {
        const struct sheet_fact *f = &s->facts[i];

        fputs(i == 0 ? "" : ", ", out);
        write_string(out, f->name);
        fputs(": ", out);
        write_value(out, f->number, f->text);
    }
    fputs("},\n \"rows\": [", out);
    for (unsigned i = 0; i < s->n_rows; i++) {
        fputs(i == 0 ? "\n  " : ",\n  ", out);
        write_row(s, i, out);
    }
    fprintf(out, "],\n \"left_out\": %u}\n", s->left_out);
    return fflush(out) != 0 || ferror(out) ? -EIO : 0;
}
