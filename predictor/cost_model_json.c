/* Reads a cost model from JSON. See cost_model_json.h. */
#include "predictor/cost_model_json.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "predictor/cost_model_fields.h"

#define PATH_BYTES 64
#define MAX_TOKENS 1000000000

/* Where a message goes, and which file it is about. */
struct report {
    const char *name;
    char *err;
    size_t err_size;
};

/* One JSON object of the file and the path of its fields: "" or "prefill.". */
struct object {
    json_t *json;
    const char *path;
};

__attribute__((format(printf, 3, 4))) static int
refuse(const struct report *r, const char *path, const char *format, ...)
{
    char what[192];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    /* The JSON parser quotes what it stumbled over, line ends included. */
    for (char *c = what; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    (void)snprintf(r->err, r->err_size, "cost model %s: %s%s%s", r->name, path,
                   path[0] == '\0' ? "" : ": ", what);
    return -EINVAL;
}

/* "expected <expected>, got <value>", a long value cut off. */
static int refuse_value(const struct report *r, const char *path,
                        const char *expected, const json_t *value)
{
    if (!value)
        return refuse(r, path, "missing, expected %s", expected);
    char *text =
        json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII |
                              JSON_REAL_PRECISION(6));
    if (!text)
        return -ENOMEM;
    int rc = refuse(r, path, "expected %s, got %.60s%s", expected, text,
                    strlen(text) > 60 ? "..." : "");
    free(text);
    return rc;
}

static void field_path(char path[PATH_BYTES], const struct object *o,
                       const char *key)
{
    (void)snprintf(path, PATH_BYTES, "%s%s", o->path, key);
}

/* A field whose name is mistyped must not pass for one that is missing, or
 * for nothing. `keys` ends with NULL. */
static int check_keys(const struct report *r, const struct object *o,
                      const char *const *keys)
{
    const char *key;
    json_t *value;

    json_object_foreach(o->json, key, value)
    {
        size_t i = 0;

        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        if (keys[i])
            continue;
        char shown[33];
        (void)snprintf(shown, sizeof(shown), "%s", key);
        for (char *c = shown; *c != '\0'; c++)
            if (!isprint((unsigned char)*c))
                *c = '?';
        return refuse(r, "", "%s%s: no such field", o->path, shown);
    }
    return 0;
}

static int read_object(const struct report *r, json_t *root, const char *key,
                       const char *path, const char *const *keys,
                       struct object *o)
{
    *o = (struct object){json_object_get(root, key), path};
    if (!json_is_object(o->json))
        return refuse_value(r, key, "an object", o->json);
    return check_keys(r, o, keys);
}

/* The field must be exactly this text. */
static int read_constant(const struct report *r, const struct object *o,
                         const char *key, const char *expected)
{
    char path[PATH_BYTES], quoted[PATH_BYTES];
    json_t *value = json_object_get(o->json, key);

    if (json_is_string(value) &&
        strcmp(json_string_value(value), expected) == 0)
        return 0;
    field_path(path, o, key);
    (void)snprintf(quoted, sizeof(quoted), "\"%s\"", expected);
    return refuse_value(r, path, quoted, value);
}

static int read_name(const struct report *r, const struct object *o,
                     const char *key, char name[COST_MODEL_NAME_BYTES])
{
    json_t *value = json_object_get(o->json, key);
    const char *text = json_string_value(value);
    size_t length = text ? strlen(text) : 0;
    bool ok = length >= 1 && length < COST_MODEL_NAME_BYTES;

    for (size_t i = 0; ok && i < length; i++)
        ok = iscntrl((unsigned char)text[i]) == 0;
    if (!ok) {
        char path[PATH_BYTES];

        field_path(path, o, key);
        return refuse_value(r, path, "a text of 1 to 63 bytes", value);
    }
    memcpy(name, text, length + 1);
    return 0;
}

static int read_tokens(const struct report *r, const struct object *o,
                       const char *key, int64_t least, int64_t *tokens)
{
    json_t *value = json_object_get(o->json, key);

    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > MAX_TOKENS) {
        char path[PATH_BYTES], expected[PATH_BYTES];

        field_path(path, o, key);
        (void)snprintf(expected, sizeof(expected), "an integer of %lld to %d",
                       (long long)least, MAX_TOKENS);
        return refuse_value(r, path, expected, value);
    }
    *tokens = json_integer_value(value);
    return 0;
}

static int read_number(const struct report *r, const struct object *o,
                       const char *key, double least, double most,
                       const char *expected, double *number)
{
    json_t *value = json_object_get(o->json, key);
    double x = json_number_value(value);

    if (!json_is_number(value) || !(x >= least && x <= most)) {
        char path[PATH_BYTES];

        field_path(path, o, key);
        return refuse_value(r, path, expected, value);
    }
    *number = x;
    return 0;
}

static int read_basis(const struct report *r, const struct object *o,
                      const char *const *basis, size_t terms)
{
    json_t *array = json_object_get(o->json, "basis");
    char path[PATH_BYTES];
    bool ok = json_array_size(array) == terms;

    for (size_t i = 0; ok && i < terms; i++) {
        const char *text = json_string_value(json_array_get(array, i));

        ok = text && strcmp(text, basis[i]) == 0;
    }
    if (ok)
        return 0;
    field_path(path, o, "basis");
    return refuse_value(r, path, "the basis of version 1", array);
}

static int read_coefficients(const struct report *r, const struct object *o,
                             double *coefficients, size_t terms)
{
    json_t *array = json_object_get(o->json, "coefficients_us");
    char path[PATH_BYTES];

    if (json_array_size(array) != terms) {
        char expected[PATH_BYTES];

        field_path(path, o, "coefficients_us");
        (void)snprintf(expected, sizeof(expected), "an array of %zu numbers",
                       terms);
        return refuse_value(r, path, expected, array);
    }
    for (size_t i = 0; i < terms; i++) {
        json_t *value = json_array_get(array, i);

        /* No number in JSON is infinite, but a copy made by hand might be. */
        if (!json_is_number(value) || !isfinite(json_number_value(value))) {
            (void)snprintf(path, sizeof(path), "%scoefficients_us[%zu]",
                           o->path, i);
            return refuse_value(r, path, "a number", value);
        }
        coefficients[i] = json_number_value(value);
    }
    return 0;
}

/* One of the two polynomials: `key` is "prefill", `path` is "prefill.". */
static int read_polynomial(const struct report *r, json_t *root,
                           const char *key, const char *path,
                           const char *const *basis, size_t terms,
                           double *coefficients, struct cost_model_quality *q)
{
    struct object o;
    int rc = read_object(r, root, key, path, cost_model_polynomial_keys, &o);

    if (rc == 0)
        rc = read_basis(r, &o, basis, terms);
    if (rc == 0)
        rc = read_coefficients(r, &o, coefficients, terms);
    if (rc == 0)
        rc = read_number(r, &o, "r2", -HUGE_VAL, 1.0, "a number up to 1",
                         &q->r2);
    if (rc == 0)
        rc = read_number(r, &o, "median_rel_error", 0.0, HUGE_VAL,
                         "a number from 0", &q->median_rel_error);
    if (rc == 0)
        rc = read_number(r, &o, "p95_rel_error", 0.0, HUGE_VAL,
                         "a number from 0", &q->p95_rel_error);
    return rc;
}

static int read_range(const struct report *r, json_t *root,
                      struct cost_model_range *range)
{
    struct object o;
    int rc = read_object(r, root, "valid_range", "valid_range.",
                         cost_model_range_keys, &o);

    if (rc == 0)
        rc = read_tokens(r, &o, "uncached_min_tokens", 0,
                         &range->uncached_min_tokens);
    if (rc == 0)
        rc = read_tokens(r, &o, "uncached_max_tokens",
                         range->uncached_min_tokens,
                         &range->uncached_max_tokens);
    if (rc == 0)
        rc = read_tokens(r, &o, "cached_max_tokens", 0,
                         &range->cached_max_tokens);
    if (rc == 0)
        rc = read_tokens(r, &o, "batch_max", 1, &range->batch_max);
    if (rc == 0)
        rc = read_tokens(r, &o, "kv_tokens_max", 0, &range->kv_tokens_max);
    return rc;
}

static int check_costs(const struct report *r, const struct cost_model *m)
{
    double prefill_us = cost_model_prefill_least_us(m);
    double decode_us = cost_model_decode_least_us(m);

    if (!(prefill_us >= 0.0))
        return refuse(r, "prefill.coefficients_us",
                      "a cost of %.6g us within valid_range, expected none "
                      "below 0",
                      prefill_us);
    if (!(decode_us >= 0.0))
        return refuse(r, "decode.coefficients_us",
                      "a cost of %.6g us within valid_range, expected none "
                      "below 0",
                      decode_us);
    return 0;
}

static int read_header(const struct report *r, const struct object *root,
                       struct cost_model *m)
{
    struct object units;
    int rc = read_constant(r, root, "format", COST_MODEL_FORMAT);

    if (rc != 0)
        return rc;
    json_t *version = json_object_get(root->json, "version");
    if (!json_is_integer(version) ||
        json_integer_value(version) != COST_MODEL_JSON_VERSION)
        return refuse_value(r, "version", "1", version);
    rc = check_keys(r, root, cost_model_root_keys);
    if (rc == 0)
        rc = read_name(r, root, "engine", m->engine);
    if (rc == 0)
        rc = read_name(r, root, "model", m->model);
    if (rc == 0)
        rc = read_name(r, root, "machine", m->machine);
    if (rc == 0)
        rc = read_name(r, root, "date", m->date);
    if (rc == 0)
        rc = read_object(r, root->json, "units", "units.",
                         cost_model_units_keys, &units);
    if (rc == 0)
        rc = read_constant(r, &units, "time", "us");
    if (rc == 0)
        rc = read_constant(r, &units, "length", "tokens");
    return rc;
}

static int read_model(const struct report *r, json_t *json,
                      struct cost_model *m)
{
    const struct object root = {json, ""};

    if (!json_is_object(json))
        return refuse_value(r, "", "an object", json);
    int rc = read_header(r, &root, m);
    if (rc == 0)
        rc = read_polynomial(r, json, "prefill", "prefill.",
                             cost_model_prefill_basis, COST_MODEL_PREFILL_TERMS,
                             m->prefill, &m->prefill_quality);
    if (rc == 0)
        rc = read_polynomial(r, json, "decode", "decode.",
                             cost_model_decode_basis, COST_MODEL_DECODE_TERMS,
                             m->decode, &m->decode_quality);
    if (rc == 0)
        rc = read_range(r, json, &m->range);
    if (rc == 0)
        rc = check_costs(r, m);
    return rc;
}

int cost_model_load_buffer(const char *text, size_t size, const char *name,
                           struct cost_model *m, char *err, size_t err_size)
{
    const struct report r = {name, err, err_size};
    struct cost_model read;

    memset(&read, 0, sizeof(read));
    json_error_t where;
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (!json)
        return refuse(&r, "", "line %d, column %d: %s", where.line,
                      where.column, where.text);
    int rc = read_model(&r, json, &read);
    json_decref(json);
    if (rc == -ENOMEM)
        (void)refuse(&r, "", "out of memory");
    if (rc == 0)
        *m = read;
    return rc;
}

/* Reads until the end or until the buffer is full. */
static ssize_t read_all(int fd, char *text, size_t size)
{
    size_t have = 0;

    while (have < size) {
        ssize_t n = read(fd, text + have, size - have);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        have += (size_t)n;
    }
    return (ssize_t)have;
}

int cost_model_load_file(const char *path, struct cost_model *m, char *err,
                         size_t err_size)
{
    const struct report r = {path, err, err_size};
    int rc = -ENOMEM;
    /* One byte more, to see whether a file is too large. */
    char *text = malloc(COST_MODEL_JSON_MAX_BYTES + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        rc = -errno;
    if (!text || fd < 0) {
        (void)refuse(&r, "", "%s", strerror(-rc));
        goto free_text;
    }
    ssize_t size = read_all(fd, text, COST_MODEL_JSON_MAX_BYTES + 1);
    if (size < 0) {
        rc = (int)size;
        (void)refuse(&r, "", "%s", strerror(-rc));
    } else if (size > COST_MODEL_JSON_MAX_BYTES) {
        rc = -EFBIG;
        (void)refuse(&r, "", "larger than %d bytes", COST_MODEL_JSON_MAX_BYTES);
    } else {
        rc = cost_model_load_buffer(text, (size_t)size, path, m, err, err_size);
    }
free_text:
    if (fd >= 0)
        (void)close(fd);
    free(text);
    return rc;
}
