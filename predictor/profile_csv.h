/* Reads and writes measurements of `conductor-worker --profile FILE.csv` and
 * `conductor-replay profile`:
 *
 *   # engine: cpu
 *   # model: tiny
 *   # machine: 2 x Xeon, 8 GiB
 *   # date: 2025-01-31
 *   # block_tokens: 256
 *   # seed: 1
 *   kind,uncached_tokens,cached_tokens,batch,kv_tokens,us
 *   prefill,512,1024,,,8123.5
 *   decode,,,8,4096,912
 *
 * One row is one measurement; repeats of a point are rows of their own. Other
 * lines that start with # are comments. Empty lines are skipped. The six values
 * above may come only before the header; engine, model, machine and date are
 * required. */
#ifndef PREDICTOR_PROFILE_CSV_H
#define PREDICTOR_PROFILE_CSV_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "predictor/cost_model.h"
#include "predictor/profile_grid.h"

#define PROFILE_MAX_FILE_BYTES (16 * 1024 * 1024)
#define PROFILE_MAX_ROWS 1000000
#define PROFILE_MAX_TOKENS 1000000000

/* a, b: uncached and cached tokens, or batch and KV tokens. */
struct profile_row {
    int64_t a;
    int64_t b;
    double us; /* > 0 and at most COST_MODEL_MAX_US */
};

/* Owned array of `count` rows in the order of the files. */
struct profile_rows {
    struct profile_row *row;
    size_t count;
    size_t capacity;
};

/* Start with all bytes zero. block_tokens and seed 0 = not given. Seed and
 * date are the last file's; block_tokens is the same in every file that gives
 * it. */
struct profile {
    char engine[COST_MODEL_NAME_BYTES];
    char model[COST_MODEL_NAME_BYTES];
    char machine[COST_MODEL_NAME_BYTES];
    char date[COST_MODEL_NAME_BYTES];
    int64_t block_tokens;
    int64_t seed;
    struct profile_rows prefill;
    struct profile_rows decode;
};

/* Adds the measurements in `size` bytes at `text` (borrowed, needs no NUL),
 * or, if `text` is NULL, in the file `name`, to `p`. Messages quote `name`. A
 * second file must name the same engine, model and machine as the first.
 * Returns 0; or a negative errno with a message of one line in err (err_size
 * bytes, truncated, NUL-terminated), as "FILE:LINE: what": -EINVAL for a
 * broken line, -EFBIG for a file over PROFILE_MAX_FILE_BYTES or for more than
 * PROFILE_MAX_ROWS of one kind, -ENOMEM, and what open and read report. After
 * an error, `p` may hold a part of the file and is only good for
 * profile_fini(). Linear in the size. */
[[nodiscard]] int profile_add(struct profile *p, const char *text, size_t size,
                              const char *name, char *err, size_t err_size);

/* Writes all lines above the rows, with today as the date. The caller sees
 * write errors when it closes `out`. */
void profile_write_head(FILE *out, const struct profile *p);

/* Writes one row. */
void profile_write_point(FILE *out, const struct profile_point *point,
                         double us);

/* Frees what `p` owns and leaves it empty, as at the start. */
void profile_fini(struct profile *p);

#endif
