/* Writes a cost model as JSON. See cost_model_json.h. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "predictor/cost_model_fields.h"
#include "predictor/cost_model_json.h"

/* Returns an owned object, or NULL for no memory or a number that is not
 * finite, which JSON has no way to say. */
static json_t *polynomial_json(const char *const *basis,
                               const double *coefficients, size_t terms,
                               const struct cost_model_quality *q)
{
    json_t *names = json_array();
    json_t *numbers = json_array();

    for (size_t i = 0; i < terms; i++) {
        if (json_array_append_new(names, json_string(basis[i])) != 0 ||
            json_array_append_new(numbers, json_real(coefficients[i])) != 0) {
            json_decref(names);
            json_decref(numbers);
            return NULL;
        }
    }
    return json_pack("{s:o, s:o, s:f, s:f, s:f}", "basis", names,
                     "coefficients_us", numbers, "r2", q->r2,
                     "median_rel_error", q->median_rel_error, "p95_rel_error",
                     q->p95_rel_error);
}

static json_t *model_json(const struct cost_model *m)
{
    const struct cost_model_range *r = &m->range;

    return json_pack(
        "{s:s, s:i, s:s, s:s, s:s, s:s, s:{s:s, s:s}, s:o, s:o,"
        " s:{s:I, s:I, s:I, s:I, s:I}}",
        "format", COST_MODEL_FORMAT, "version", COST_MODEL_JSON_VERSION,
        "engine", m->engine, "model", m->model, "machine", m->machine, "date",
        m->date, "units", "time", "us", "length", "tokens", "prefill",
        polynomial_json(cost_model_prefill_basis, m->prefill,
                        COST_MODEL_PREFILL_TERMS, &m->prefill_quality),
        "decode",
        polynomial_json(cost_model_decode_basis, m->decode,
                        COST_MODEL_DECODE_TERMS, &m->decode_quality),
        "valid_range", "uncached_min_tokens",
        (json_int_t)r->uncached_min_tokens, "uncached_max_tokens",
        (json_int_t)r->uncached_max_tokens, "cached_max_tokens",
        (json_int_t)r->cached_max_tokens, "batch_max", (json_int_t)r->batch_max,
        "kv_tokens_max", (json_int_t)r->kv_tokens_max);
}

/* Writes beside `path` and renames, so that a reader never sees a part. */
static int replace_file(const char *path, const char *text)
{
    char beside[PATH_MAX];
    int length =
        snprintf(beside, sizeof(beside), "%s.%ld.tmp", path, (long)getpid());

    if (length < 0 || (size_t)length >= sizeof(beside))
        return -ENAMETOOLONG;
    FILE *file = fopen(beside, "we");
    if (!file)
        return -errno;
    int rc = 0;
    if (fprintf(file, "%s\n", text) < 0 || fflush(file) != 0 ||
        fsync(fileno(file)) != 0)
        rc = -errno;
    if (fclose(file) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && rename(beside, path) != 0)
        rc = -errno;
    if (rc != 0)
        (void)unlink(beside);
    return rc;
}

int cost_model_save_file(const struct cost_model *m, const char *path,
                         char *err, size_t err_size)
{
    struct cost_model read_back;
    int rc = -EINVAL;
    json_t *json = model_json(m);

    if (!json) {
        (void)snprintf(err, err_size,
                       "cost model %s: a number that is not finite, a name "
                       "that is not UTF-8, or no memory",
                       path);
        return rc;
    }
    char *text = json_dumps(json, JSON_INDENT(2));
    json_decref(json);
    if (!text) {
        (void)snprintf(err, err_size, "cost model %s: out of memory", path);
        return -ENOMEM;
    }
    /* What could not be loaded must not be saved. */
    rc = cost_model_load_buffer(text, strlen(text), path, &read_back, err,
                                err_size);
    if (rc != 0)
        goto free_text;
    rc = replace_file(path, text);
    if (rc != 0)
        (void)snprintf(err, err_size, "cost model %s: %s", path, strerror(-rc));
free_text:
    free(text);
    return rc;
}
