/* The names in a cost model file. See cost_model_fields.h. */
#include "predictor/cost_model_fields.h"

#include <stddef.h>

const char *const cost_model_root_keys[] = {
    "format", "version", "engine", "model",       "machine", "date",
    "units",  "prefill", "decode", "valid_range", NULL};
const char *const cost_model_units_keys[] = {"time", "length", NULL};
const char *const cost_model_polynomial_keys[] = {
    "basis", "coefficients_us", "r2", "median_rel_error", "p95_rel_error",
    NULL};
const char *const cost_model_range_keys[] = {
    "uncached_min_tokens", "uncached_max_tokens", "cached_max_tokens",
    "batch_max",           "kv_tokens_max",       NULL};

const char *const cost_model_prefill_basis[COST_MODEL_PREFILL_TERMS] = {
    "1", "uncached_tokens", "uncached_tokens^2",
    "uncached_tokens*cached_tokens"};
const char *const cost_model_decode_basis[COST_MODEL_DECODE_TERMS] = {
    "1", "batch", "kv_tokens"};
