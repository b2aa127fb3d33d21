/* Reads the CSV of a profile, strictly, and writes it. See profile_csv.h. */
#include "predictor/profile_csv.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/csv.h"

#define COLUMNS 6

static const char header_line[] =
    "kind,uncached_tokens,cached_tokens,batch,kv_tokens,us";
static const char *const column_names[COLUMNS] = {
    "kind", "uncached_tokens", "cached_tokens", "batch", "kv_tokens", "us"};

enum column {
    COLUMN_KIND,
    COLUMN_UNCACHED,
    COLUMN_CACHED,
    COLUMN_BATCH,
    COLUMN_KV,
    COLUMN_US
};

/* The kinds of row: which columns carry a and b, and which stay empty. */
struct row_kind {
    const char *name;
    enum column a;
    enum column b;
    enum column empty[2];
};

static const struct row_kind prefill_kind = {
    "prefill", COLUMN_UNCACHED, COLUMN_CACHED, {COLUMN_BATCH, COLUMN_KV}};
static const struct row_kind decode_kind = {
    "decode", COLUMN_BATCH, COLUMN_KV, {COLUMN_UNCACHED, COLUMN_CACHED}};

/* The values before the header, and their members in struct profile. */
static const struct meta {
    const char *key;
    size_t offset;
    enum {
        SAME, /* a name: required, the same in all files */
        NAME, /* a name required in every file */
        NUMBER
    } kind;
} metas[] = {
    {"engine", offsetof(struct profile, engine), SAME},
    {"model", offsetof(struct profile, model), SAME},
    {"machine", offsetof(struct profile, machine), SAME},
    {"date", offsetof(struct profile, date), NAME},
    {"block_tokens", offsetof(struct profile, block_tokens), NUMBER},
    {"seed", offsetof(struct profile, seed), NUMBER},
};

#define METAS (sizeof(metas) / sizeof(*metas))

/* State while reading one file. `meta` is checked against the profile at the
 * header line. */
struct parser {
    struct csv csv;
    struct profile *profile;
    bool in_rows;
    struct profile meta;
};

static int append_row(const struct parser *s, struct profile_rows *rows,
                      const struct profile_row *row)
{
    if (rows->count == PROFILE_MAX_ROWS)
        return csv_refuse(&s->csv, -EFBIG, "more than %d rows of one kind",
                          PROFILE_MAX_ROWS);
    if (array_reserve(rows->row, rows->capacity, rows->count + 1))
        return csv_refuse(&s->csv, -ENOMEM, "out of memory");
    rows->row[rows->count++] = *row;
    return 0;
}

static int parse_tokens(const struct parser *s, char *const *columns,
                        enum column at, int least, int64_t *tokens)
{
    double value = 0;

    if (!csv_number(columns[at], true, &value) || value < least ||
        value > PROFILE_MAX_TOKENS)
        return csv_refuse(
            &s->csv, -EINVAL, "%s: \"%.40s\": must be an integer of %d to %d",
            column_names[at], columns[at], least, PROFILE_MAX_TOKENS);
    *tokens = (int64_t)value;
    return 0;
}

static int parse_row(const struct parser *s, char *line)
{
    char *columns[COLUMNS];
    size_t count = csv_split(line, columns, COLUMNS);
    struct profile_row row = {0};

    if (count != COLUMNS)
        return csv_refuse(&s->csv, -EINVAL, "%s%zu columns: must be %d",
                          count > COLUMNS ? "more than " : "",
                          count > COLUMNS ? (size_t)COLUMNS : count, COLUMNS);
    bool prefill = strcmp(columns[COLUMN_KIND], prefill_kind.name) == 0;
    if (!prefill && strcmp(columns[COLUMN_KIND], decode_kind.name) != 0)
        return csv_refuse(&s->csv, -EINVAL,
                          "kind: \"%.40s\": must be prefill or decode",
                          columns[COLUMN_KIND]);
    const struct row_kind *kind = prefill ? &prefill_kind : &decode_kind;
    int rc = parse_tokens(s, columns, kind->a, 1, &row.a);
    if (rc == 0)
        rc = parse_tokens(s, columns, kind->b, 0, &row.b);
    for (size_t i = 0; rc == 0 && i < 2; i++)
        if (columns[kind->empty[i]][0] != '\0')
            rc = csv_refuse(&s->csv, -EINVAL,
                            "%s: \"%.40s\": must be empty in a %s row",
                            column_names[kind->empty[i]],
                            columns[kind->empty[i]], kind->name);
    if (rc != 0)
        return rc;
    if (!csv_number(columns[COLUMN_US], false, &row.us) || !(row.us > 0.0) ||
        row.us > (double)COST_MODEL_MAX_US)
        return csv_refuse(&s->csv, -EINVAL,
                          "us: \"%.40s\": must be a time above 0",
                          columns[COLUMN_US]);
    return append_row(s, prefill ? &s->profile->prefill : &s->profile->decode,
                      &row);
}

static int set_name(const struct parser *s, const char *key,
                    char name[COST_MODEL_NAME_BYTES], const char *value)
{
    size_t length = strlen(value);
    bool ok = length >= 1 && length < COST_MODEL_NAME_BYTES;

    for (size_t i = 0; ok && i < length; i++)
        ok = iscntrl((unsigned char)value[i]) == 0;
    if (!ok)
        return csv_refuse(&s->csv, -EINVAL,
                          "%s: \"%.80s\": must be a text of 1 to %d bytes", key,
                          value, COST_MODEL_NAME_BYTES - 1);
    memcpy(name, value, length + 1);
    return 0;
}

static int set_integer(const struct parser *s, const char *key, int64_t *number,
                       const char *value)
{
    char *end = NULL;

    errno = 0;
    int64_t parsed = strtoll(value, &end, 10);
    if (!isdigit((unsigned char)value[0]) || *end != '\0' || errno != 0)
        return csv_refuse(&s->csv, -EINVAL, "%s: \"%.40s\": must be an integer",
                          key, value);
    *number = parsed;
    return 0;
}

/* Reads "# key: value"; any other line after the # is a comment. */
static int parse_meta(struct parser *s, char *line)
{
    char *value = line + 1;
    char *key = strsep(&value, ":");

    key += strspn(key, " \t");
    if (!value || s->in_rows)
        return 0;
    value += strspn(value, " \t");
    for (size_t n = strlen(value); n > 0 && value[n - 1] == ' '; n--)
        value[n - 1] = '\0';
    for (size_t i = 0; i < METAS; i++) {
        void *field = (char *)&s->meta + metas[i].offset;

        if (strcmp(key, metas[i].key) == 0)
            return metas[i].kind == NUMBER ? set_integer(s, key, field, value)
                                           : set_name(s, key, field, value);
    }
    return 0;
}

/* Checks a name of this file: it must be there, and, if SAME, equal earlier
 * files'. */
static int merge_name(const struct parser *s, const struct meta *meta)
{
    const char *name = (const char *)&s->meta + meta->offset;
    char *of_profile = (char *)s->profile + meta->offset;

    if (name[0] == '\0')
        return csv_refuse(&s->csv, -EINVAL,
                          "no line \"# %s: ...\" before the header", meta->key);
    if (meta->kind == SAME && of_profile[0] != '\0' &&
        strcmp(name, of_profile) != 0)
        return csv_refuse(&s->csv, -EINVAL,
                          "%s: got \"%s\", but another file is of \"%s\"",
                          meta->key, name, of_profile);
    memcpy(of_profile, name, COST_MODEL_NAME_BYTES);
    return 0;
}

/* The block size affects the cost of attention, so sizes must not be mixed. A
 * file without one fits any. */
static int merge_block_tokens(const struct parser *s, int64_t *of_profile)
{
    int64_t tokens = s->meta.block_tokens;

    if (tokens != 0 && *of_profile != 0 && tokens != *of_profile)
        return csv_refuse(&s->csv, -EINVAL,
                          "block_tokens: got %lld, but another file is of %lld",
                          (long long)tokens, (long long)*of_profile);
    if (tokens != 0)
        *of_profile = tokens;
    return 0;
}

static int parse_header(struct parser *s, const char *line)
{
    int rc = 0;

    if (strcmp(line, header_line) != 0)
        return csv_refuse(&s->csv, -EINVAL, "\"%.80s\": must be the header %s",
                          line, header_line);
    for (size_t i = 0; rc == 0 && i < METAS; i++)
        if (metas[i].kind != NUMBER)
            rc = merge_name(s, &metas[i]);
    if (rc == 0)
        rc = merge_block_tokens(s, &s->profile->block_tokens);
    s->profile->seed = s->meta.seed;
    s->in_rows = true;
    return rc;
}

static int parse_line(void *arg, char *line)
{
    struct parser *s = arg;

    if (line[0] == '#')
        return parse_meta(s, line);
    return s->in_rows ? parse_row(s, line) : parse_header(s, line);
}

int profile_add(struct profile *p, const char *text, size_t size,
                const char *name, char *err, size_t err_size)
{
    struct parser s = {.csv = {name, err, err_size, 0}, .profile = p};
    int rc = csv_read(&s.csv, text, text ? size : PROFILE_MAX_FILE_BYTES,
                      parse_line, &s);

    return rc == 0 && !s.in_rows
               ? csv_refuse(&s.csv, -EINVAL,
                            "the file ends before the header %s", header_line)
               : rc;
}

void profile_write_head(FILE *out, const struct profile *p)
{
    struct profile head = *p;
    time_t now = time(NULL);
    struct tm tm = {0};

    gmtime_r(&now, &tm);
    strftime(head.date, sizeof(head.date), "%Y-%m-%d", &tm);
    for (const struct meta *m = metas; m < metas + METAS; m++) {
        const char *at = (const char *)&head + m->offset;

        if (m->kind == NUMBER)
            fprintf(out, "# %s: %" PRId64 "\n", m->key, *(const int64_t *)at);
        else
            fprintf(out, "# %s: %s\n", m->key, at);
    }
    fprintf(out, "%s\n", header_line);
}

void profile_write_point(FILE *out, const struct profile_point *point,
                         double us)
{
    uint64_t b = (uint64_t)point->b * (point->decode ? point->a : 1);

    fprintf(out,
            point->decode ? "decode,,,%" PRIu32 ",%" PRIu64 ",%.1f\n"
                          : "prefill,%" PRIu32 ",%" PRIu64 ",,,%.1f\n",
            point->a, b, us);
}

void profile_fini(struct profile *p)
{
    free(p->prefill.row);
    free(p->decode.row);
    *p = (struct profile){0};
}
