/* Checked fields of a JSON file; see fields.h. */
#include "sim/cluster/fields.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES 60

void fields_refuse(struct fields *f, const char *path, const char *key,
                   const char *format, ...)
{
    char what[256];
    va_list args;

    if (f->rc != 0)
        return;
    va_start(args, format);
    (void)vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    for (char *c = what; *c != '\0'; c++) /* it quotes the file */
        if (*c < 32 || *c > 126)
            *c = '?';
    (void)snprintf(f->err, f->err_size, "%s: %s%s%s%s", f->file, path, key,
                   *path != '\0' || *key != '\0' ? ": " : "", what);
    f->rc = -EINVAL;
}

static void refuse_value(struct fields *f, const struct fields_object *o,
                         const char *key, const char *expected)
{
    const json_t *value = json_object_get(o->json, key);
    char *text;

    if (!value) {
        fields_refuse(f, o->path, key, "missing, expected %s", expected);
        return;
    }
    text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT |
                                 JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));
    fields_refuse(f, o->path, key, "expected %s, got %.*s%s", expected,
                  SHOWN_BYTES, text ? text : "?",
                  text && strlen(text) > SHOWN_BYTES ? "..." : "");
    free(text);
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
        refuse_value(f, parent, key, "an object");
    return (struct fields_object){json, path};
}

static void copy_printable(char *to, const char *from, size_t size)
{
    size_t n = strlen(from);

    if (n > size - 1)
        n = size - 1;
    for (size_t i = 0; i < n; i++)
        to[i] = from[i];
    for (size_t i = 0; i < n; i++)
        if (to[i] < 32 || to[i] > 126)
            to[i] = '?';
    to[n] = '\0';
}

void fields_known(struct fields *f, const struct fields_object *o,
                  const char *const *keys)
{
    const char *key;
    json_t *value;

    json_object_foreach(o->json, key, value)
    {
        char shown[SHOWN_BYTES];
        size_t i = 0;

        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        if (keys[i])
            continue;
        copy_printable(shown, key, sizeof(shown));
        fields_refuse(f, o->path, shown, "no such field");
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
    (void)snprintf(expected, sizeof(expected), "a number of %g to %g", least,
                   most);
    refuse_value(f, o, key, expected);
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
    (void)snprintf(expected, sizeof(expected), "an integer of %lld to %lld",
                   (long long)least, (long long)most);
    refuse_value(f, o, key, expected);
    return least;
}

bool fields_bool(struct fields *f, const struct fields_object *o,
                 const char *key, bool fallback)
{
    const json_t *value = json_object_get(o->json, key);

    if (!value)
        return fallback;
    if (!json_is_boolean(value))
        refuse_value(f, o, key, "true or false");
    return json_is_true(value);
}

void fields_text(struct fields *f, const struct fields_object *o,
                 const char *key, char *text, size_t size, const char *fallback)
{
    const json_t *value = json_object_get(o->json, key);
    const char *given = !value ? fallback : json_string_value(value);
    char expected[SHOWN_BYTES];

    text[0] = '\0';
    if (given && strlen(given) >= 1 && strlen(given) < size) {
        copy_printable(text, given, size);
        if (strcmp(text, given) == 0)
            return;
    }
    (void)snprintf(expected, sizeof(expected),
                   "a text of 1 to %zu printable bytes", size - 1);
    refuse_value(f, o, key, expected);
}

void fields_numbers(struct fields *f, const struct fields_object *o,
                    const char *key, double *numbers, size_t n)
{
    const json_t *array = json_object_get(o->json, key);
    char expected[SHOWN_BYTES];
    bool ok = json_array_size(array) == n;

    for (size_t i = 0; ok && i < n; i++) {
        const json_t *value = json_array_get(array, i);

        numbers[i] = json_number_value(value);
        ok = json_is_number(value) && isfinite(numbers[i]);
    }
    if (ok)
        return;
    (void)snprintf(expected, sizeof(expected), "an array of %zu numbers", n);
    refuse_value(f, o, key, expected);
}
