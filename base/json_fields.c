/* See json_fields.h. */
#include "base/json_fields.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"

#define SHOWN_BYTES 60
#define FIELD_BYTES 128

void fields_refuse(struct fields *f, const char *path, const char *key,
                   const char *format, ...)
{
    char what[256], field[FIELD_BYTES];
    size_t n = strlen(path);
    va_list args;

    if (f->rc != 0)
        return;
    /* Without a key, drop the dot at the path's end. */
    snprintf(field, sizeof(field), "%.*s",
             (int)(n - (n > 0 && !*key && path[n - 1] == '.')), path);
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    for (char *c = what; *c != '\0'; c++) /* it quotes the file */
        if (*c < 32 || *c > 126)
            *c = '?';
    snprintf(f->err, f->err_size, "%s%s%s%s%s%s%s", f->what, f->file,
             *f->file ? ": " : "", field, key, *field || *key ? ": " : "",
             what);
    f->rc = -EINVAL;
}

void fields_refuse_got(struct fields *f, const char *path, const char *key,
                       const char *expected, const json_t *value)
{
    char *text =
        json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII |
                              JSON_REAL_PRECISION(6));

    if (!value)
        fields_refuse(f, path, key, "missing: must be %s", expected);
    else
        fields_refuse(
            f, path, key, "%.*s%s: must be %s", SHOWN_BYTES, text ? text : "?",
            text && strlen(text) > SHOWN_BYTES ? "..." : "", expected);
    free(text);
}

void fields_refuse_value(struct fields *f, const struct fields_object *o,
                         const char *key, const char *expected)
{
    fields_refuse_got(f, o->path, key, expected, json_object_get(o->json, key));
}

/* Skips the byte order mark that some editors write. */
static const char *skip_mark(const char *text, size_t *size)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t n = sizeof(mark) - 1;

    if (*size < n || memcmp(text, mark, n) != 0)
        return text;
    *size -= n;
    return text + n;
}

static bool is_blank(const char *text, size_t size)
{
    while (size && isspace((unsigned char)text[size - 1]))
        size--;
    return size == 0;
}

/* Returns the bytes of the comment that begins at json[0 .. size), 0 = none
 * does. */
static size_t comment_at(const char *json, size_t size)
{
    const char *end = NULL;

    if (size >= 2 && json[0] == '/' && json[1] == '/') {
        end = memchr(json, '\n', size);
        return end ? (size_t)(end - json) : size;
    }
    if (size >= 4 && json[0] == '/' && json[1] == '*')
        end = memmem(json + 2, size - 2, "*/", 2);
    return end ? (size_t)(end + 2 - json) : 0;
}

void fields_blank_extras(char *json, size_t size)
{
    char *comma = NULL; /* ends a list if the list ends next */
    char before = '[';  /* the last byte that says something */
    bool in_string = false;

    for (size_t i = 0; i < size; i++) {
        size_t n = in_string ? 0 : comment_at(json + i, size - i);

        for (size_t end = i + n; i < end; i++)
            json[i] = json[i] == '\n' ? '\n' : ' ';
        i -= n > 0;
        if (n == 0 && !in_string && json[i] == '/')
            return; /* where the parser will stop */
        if (n > 0 || (in_string && json[i] != '"' && json[i] != '\\') ||
            isspace((unsigned char)json[i]))
            continue;
        if (json[i] == '\\') {
            i++;
            continue;
        }
        if (json[i] == '"')
            in_string = !in_string;
        else if (comma && (json[i] == ']' || json[i] == '}'))
            *comma = ' ';
        comma = json[i] == ',' && !strchr("[{,:", before) ? &json[i] : NULL;
        before = json[i];
    }
}

int fields_read(struct fields *f, const char *text, size_t size,
                fields_reader *read, void *into)
{
    json_error_t where;
    char *of_file = NULL;
    size_t most = size;
    int rc = text ? 0 : file_read(f->file, most, &of_file, &size);

    if (rc != 0) {
        if (rc == -EFBIG)
            fields_refuse(f, "", "", "larger than %zu bytes", most);
        else
            fields_refuse(f, "", "", "%s", file_why(rc));
        return f->rc = rc;
    }
    if (of_file)
        fields_blank_extras(of_file, size);
    const char *json = skip_mark(text ? text : of_file, &size);
    struct fields_object root = {
        json_loadb(json, size, JSON_REJECT_DUPLICATES, &where), ""};
    if (is_blank(json, size))
        fields_refuse(f, "", "", "is empty: must be an object, {} at least");
    else if (!root.json)
        fields_refuse(f, "", "", "line %d, column %d: %s", where.line,
                      where.column,
                      text_is_nan_near(json, size, (size_t)where.position)
                          ? "expected " TEXT_NO_NAN
                          : where.text);
    else if (!json_is_object(root.json))
        fields_refuse_got(f, "", "", "an object", root.json);
    else
        read(f, &root, into);
    json_decref(root.json);
    free(of_file);
    return f->rc;
}

struct fields_object fields_object(struct fields *f,
                                   const struct fields_object *parent,
                                   const char *key, const char *path,
                                   bool optional)
{
    json_t *json = json_object_get(parent->json, key);

    if (!json && optional)
        return (struct fields_object){NULL, path};
    if (!json_is_object(json))
        fields_refuse_value(f, parent, key, "an object");
    return (struct fields_object){json, path};
}

void fields_known(struct fields *f, const struct fields_object *o,
                  const char *keys)
{
    const char *key, *nearest = "";
    json_t *value;

    json_object_foreach(o->json, key, value)
    {
        size_t far = strlen(key) / 3 + 1, n = 0, one;

        for (const char *k = keys; *k; k += one + (k[one] == ' ')) {
            one = strcspn(k, " ");
            if (text_nearer(key, strlen(key), k, one, &far)) {
                nearest = k;
                n = one;
            }
        }
        if (far > 0)
            fields_refuse(f, "", "", "%s%.*s: no such field%s%.*s%s", o->path,
                          SHOWN_BYTES, key, n ? ": did you mean " : "", (int)n,
                          nearest, n ? "?" : "");
    }
}

double fields_number(struct fields *f, const struct fields_object *o,
                     const char *key, double least, double most,
                     const double *fallback)
{
    const json_t *value = json_object_get(o->json, key);
    double x = json_number_value(value);
    char expected[SHOWN_BYTES];

    if (!value && fallback)
        return *fallback;
    if (json_is_number(value) && x >= least && x <= most)
        return x;
    if (isinf(least))
        snprintf(expected, sizeof(expected), "a number up to %g", most);
    else if (isinf(most))
        snprintf(expected, sizeof(expected), "a number from %g", least);
    else
        snprintf(expected, sizeof(expected), "a number of %g to %g", least,
                 most);
    fields_refuse_value(f, o, key, expected);
    return least;
}

int64_t fields_integer(struct fields *f, const struct fields_object *o,
                       const char *key, int64_t least, int64_t most,
                       const int64_t *fallback)
{
    const json_t *value = json_object_get(o->json, key);
    int64_t x = json_integer_value(value);
    char expected[SHOWN_BYTES];

    if (!value && fallback)
        return *fallback;
    if (json_is_integer(value) && x >= least && x <= most)
        return x;
    if (least == most)
        snprintf(expected, sizeof(expected), "%lld", (long long)least);
    else
        snprintf(expected, sizeof(expected), "an integer of %lld to %lld",
                 (long long)least, (long long)most);
    fields_refuse_value(f, o, key, expected);
    return least;
}

bool fields_bool(struct fields *f, const struct fields_object *o,
                 const char *key, bool fallback)
{
    const json_t *value = json_object_get(o->json, key);

    if (!value)
        return fallback;
    if (!json_is_boolean(value))
        fields_refuse_value(f, o, key, "true or false");
    return json_is_true(value);
}

void fields_text(struct fields *f, const struct fields_object *o,
                 const char *key, char *text, size_t size, const char *fallback)
{
    const json_t *value = json_object_get(o->json, key);
    const char *given = !value ? fallback : json_string_value(value);
    size_t length = given ? strlen(given) : 0;
    bool ok = length >= 1 && length < size;
    char expected[SHOWN_BYTES];

    for (size_t i = 0; ok && i < length; i++)
        ok = !iscntrl((unsigned char)given[i]);
    snprintf(text, size, "%s", ok ? given : "");
    if (ok)
        return;
    snprintf(expected, sizeof(expected), "a text of 1 to %zu printable bytes",
             size - 1);
    fields_refuse_value(f, o, key, expected);
}

void fields_constant(struct fields *f, const struct fields_object *o,
                     const char *key, const char *expected)
{
    const char *given = json_string_value(json_object_get(o->json, key));
    char quoted[SHOWN_BYTES];

    snprintf(quoted, sizeof(quoted), "\"%s\"", expected);
    if (!given || strcmp(given, expected) != 0)
        fields_refuse_value(f, o, key, quoted);
}

void fields_numbers(struct fields *f, const struct fields_object *o,
                    const char *key, double *numbers, size_t n)
{
    const json_t *array = json_object_get(o->json, key);
    char expected[SHOWN_BYTES];

    if (json_array_size(array) != n) {
        snprintf(expected, sizeof(expected), "an array of %zu numbers", n);
        fields_refuse_value(f, o, key, expected);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);

        numbers[i] = json_number_value(value);
        /* A number parsed from JSON is finite, but one set by code may not
         * be. */
        if (!json_is_number(value) || !isfinite(numbers[i])) {
            snprintf(expected, sizeof(expected), "%s[%zu]", key, i);
            fields_refuse_got(f, o->path, expected, "a number", value);
        }
    }
}
