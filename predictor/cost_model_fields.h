/* The names in a cost model file, shared by reader and writer. Private to
 * predictor/. */
#ifndef PREDICTOR_COST_MODEL_FIELDS_H
#define PREDICTOR_COST_MODEL_FIELDS_H

#include "predictor/cost_model.h"

#define COST_MODEL_FORMAT "conductor-cost-model"

/* Each list of keys ends with NULL. */
extern const char *const cost_model_root_keys[];
extern const char *const cost_model_units_keys[];
extern const char *const cost_model_polynomial_keys[];
extern const char *const cost_model_range_keys[];

extern const char *const cost_model_prefill_basis[COST_MODEL_PREFILL_TERMS];
extern const char *const cost_model_decode_basis[COST_MODEL_DECODE_TERMS];

#endif
