/* Reads and writes a cost model as JSON. See cost_model_json.h. */
#include "predictor/cost_model_json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"

#define FORMAT "conductor-cost-model"
#define MAX_TOKENS 1000000000

static const char *const prefill_basis[COST_MODEL_PREFILL_TERMS] = {
    "1", "uncached_tokens", "uncached_tokens^2",
    "uncached_tokens*cached_tokens"};
static const char *const decode_basis[COST_MODEL_DECODE_TERMS] = {"1", "batch",
                                                                  "kv_tokens"};

static void read_header(struct fields *f, const struct fields_object *root,
                        struct cost_model *m)
{
    const int64_t unknown = 0;

    fields_constant(f, root, "format", FORMAT);
    fields_integer(f, root, "version", COST_MODEL_JSON_VERSION,
                   COST_MODEL_JSON_VERSION, NULL);
    fields_known(f, root,
                 "format version engine model machine date units prefill "
                 "decode valid_range block_tokens");
    fields_text(f, root, "engine", m->engine, sizeof(m->engine), NULL);
    fields_text(f, root, "model", m->model, sizeof(m->model), NULL);
    fields_text(f, root, "machine", m->machine, sizeof(m->machine), NULL);
    fields_text(f, root, "date", m->date, sizeof(m->date), NULL);
    m->block_tokens =
        fields_integer(f, root, "block_tokens", 1, MAX_TOKENS, &unknown);
    struct fields_object units =
        fields_object(f, root, "units", "units.", false);
    fields_known(f, &units, "time length");
    fields_constant(f, &units, "time", "us");
    fields_constant(f, &units, "length", "tokens");
}

static void check_basis(struct fields *f, const struct fields_object *o,
                        const char *const *basis, size_t terms)
{
    json_t *array = json_object_get(o->json, "basis");
    bool ok = json_array_size(array) == terms;

    for (size_t i = 0; ok && i < terms; i++) {
        const char *text = json_string_value(json_array_get(array, i));

        ok = text && strcmp(text, basis[i]) == 0;
    }
    if (!ok)
        fields_refuse_value(f, o, "basis", "the basis of version 1");
}

static void read_polynomial(struct fields *f, const struct fields_object *o,
                            const char *const *basis, size_t terms,
                            double *coefficients, struct cost_model_quality *q)
{
    fields_known(f, o,
                 "basis coefficients_us r2 median_rel_error "
                 "p95_rel_error");
    check_basis(f, o, basis, terms);
    fields_numbers(f, o, "coefficients_us", coefficients, terms);
    q->r2 = fields_number(f, o, "r2", -HUGE_VAL, 1.0, NULL);
    q->median_rel_error =
        fields_number(f, o, "median_rel_error", 0.0, HUGE_VAL, NULL);
    q->p95_rel_error =
        fields_number(f, o, "p95_rel_error", 0.0, HUGE_VAL, NULL);
}

static int64_t read_tokens(struct fields *f, const struct fields_object *o,
                           const char *key, int64_t least)
{
    return fields_integer(f, o, key, least, MAX_TOKENS, NULL);
}

static void read_range(struct fields *f, const struct fields_object *root,
                       struct cost_model_range *range)
{
    struct fields_object o =
        fields_object(f, root, "valid_range", "valid_range.", false);

    fields_known(f, &o,
                 "uncached_min_tokens uncached_max_tokens "
                 "cached_max_tokens batch_max kv_tokens_max");
    range->uncached_min_tokens = read_tokens(f, &o, "uncached_min_tokens", 0);
    range->uncached_max_tokens =
        read_tokens(f, &o, "uncached_max_tokens", range->uncached_min_tokens);
    range->cached_max_tokens = read_tokens(f, &o, "cached_max_tokens", 0);
    range->batch_max = read_tokens(f, &o, "batch_max", 1);
    range->kv_tokens_max = read_tokens(f, &o, "kv_tokens_max", 0);
}

static void check_cost(struct fields *f, const char *key, double least_us)
{
    if (f->rc == 0 && !(least_us >= 0.0))
        fields_refuse(f, key, "",
                      "%.6g us within valid_range: must not be below 0",
                      least_us);
}

static void read_model(struct fields *f, const struct fields_object *root,
                       void *into)
{
    struct cost_model *m = into;

    read_header(f, root, m);
    struct fields_object prefill =
        fields_object(f, root, "prefill", "prefill.", false);
    read_polynomial(f, &prefill, prefill_basis, COST_MODEL_PREFILL_TERMS,
                    m->prefill, &m->prefill_quality);
    struct fields_object decode =
        fields_object(f, root, "decode", "decode.", false);
    read_polynomial(f, &decode, decode_basis, COST_MODEL_DECODE_TERMS,
                    m->decode, &m->decode_quality);
    read_range(f, root, &m->range);
    check_cost(f, "prefill.coefficients_us", cost_model_prefill_least_us(m));
    check_cost(f, "decode.coefficients_us", cost_model_decode_least_us(m));
}

int cost_model_load_buffer(const char *text, size_t size, const char *name,
                           struct cost_model *m, char *err, size_t err_size)
{
    struct fields f = {"cost model ", name, err, err_size, 0};
    struct cost_model read = {0};
    int rc = fields_read(&f, text, size, read_model, &read);

    if (rc == 0)
        *m = read;
    return rc;
}

int cost_model_load_file(const char *path, struct cost_model *m, char *err,
                         size_t err_size)
{
    return cost_model_load_buffer(NULL, COST_MODEL_JSON_MAX_BYTES, path, m, err,
                                  err_size);
}

/* Returns an owned object, or NULL: out of memory, or a number is not finite,
 * which JSON cannot express. */
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
        "{s:s, s:i, s:s, s:s, s:s, s:s, s:o*, s:{s:s, s:s}, s:o, s:o,"
        " s:{s:I, s:I, s:I, s:I, s:I}}",
        "format", FORMAT, "version", COST_MODEL_JSON_VERSION, "engine",
        m->engine, "model", m->model, "machine", m->machine, "date", m->date,
        "block_tokens",
        m->block_tokens > 0 ? json_integer(m->block_tokens) : NULL, "units",
        "time", "us", "length", "tokens", "prefill",
        polynomial_json(prefill_basis, m->prefill, COST_MODEL_PREFILL_TERMS,
                        &m->prefill_quality),
        "decode",
        polynomial_json(decode_basis, m->decode, COST_MODEL_DECODE_TERMS,
                        &m->decode_quality),
        "valid_range", "uncached_min_tokens",
        (json_int_t)r->uncached_min_tokens, "uncached_max_tokens",
        (json_int_t)r->uncached_max_tokens, "cached_max_tokens",
        (json_int_t)r->cached_max_tokens, "batch_max", (json_int_t)r->batch_max,
        "kv_tokens_max", (json_int_t)r->kv_tokens_max);
}

int cost_model_save_file(const struct cost_model *m, const char *path,
                         char *err, size_t err_size)
{
    struct cost_model read_back;
    struct file_output out;
    int rc = -EINVAL;
    json_t *json = model_json(m);

    if (!json)
        return error_say(err, err_size, rc,
                         "cost model %s: a number that is not finite, a name "
                         "that is not UTF-8, or no memory",
                         path);
    char *text = json_dumps(json, JSON_INDENT(2));
    json_decref(json);
    if (!text)
        return error_say(err, err_size, -ENOMEM, "cost model %s: out of memory",
                         path);
    /* Refuses to save a model that could not be loaded. */
    rc = cost_model_load_buffer(text, strlen(text), path, &read_back, err,
                                err_size);
    if (rc != 0)
        goto free_text;
    rc = file_output_open(&out, path);
    if (rc == 0) {
        fprintf(out.file, "%s\n", text);
        rc = file_output_close(&out, true);
    }
    if (rc != 0)
        snprintf(err, err_size, "cost model %s: %s", path, strerror(-rc));
free_text:
    free(text);
    return rc;
}
