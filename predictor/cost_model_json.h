/* Reads and writes a cost model as JSON (with jansson). The format, version 1,
 * is described in predictor/DESIGN.md.
 *
 * Invariant: a model that one of these functions accepted is finite, its
 * names are printable, its range is ordered, and no cost within its valid range
 * is negative.
 */
#ifndef PREDICTOR_COST_MODEL_JSON_H
#define PREDICTOR_COST_MODEL_JSON_H

#include <stddef.h>

#include "predictor/cost_model.h"

#define COST_MODEL_JSON_VERSION 1
#define COST_MODEL_JSON_MAX_BYTES (64 * 1024)

/* Reads the model in the file `path` into `m`. Borrows everything.
 * Returns 0; or a negative errno, with `m` untouched and a message of one line
 * in err (err_size bytes, truncated to fit, NUL-terminated) which names the
 * file, the field and its value: -EINVAL for an invalid model, -EFBIG
 * for a file over COST_MODEL_JSON_MAX_BYTES, -ENOMEM, and whatever open and
 * read report. */
[[nodiscard]] int cost_model_load_file(const char *path, struct cost_model *m,
                                       char *err, size_t err_size);

/* As cost_model_load_file(), from `size` bytes at `text` (UTF-8, needs no
 * NUL). `name` stands for the file in messages. Never returns an error of
 * opening or reading. */
[[nodiscard]] int cost_model_load_buffer(const char *text, size_t size,
                                         const char *name, struct cost_model *m,
                                         char *err, size_t err_size);

/* Writes `m` to the file `path`, which is replaced at once or not at all.
 * Returns 0; or a negative errno with a message in err, as for loading:
 * -EINVAL if loading would refuse this model. Numbers are written so that
 * loading gives the same doubles. */
[[nodiscard]] int cost_model_save_file(const struct cost_model *m,
                                       const char *path, char *err,
                                       size_t err_size);

#endif
