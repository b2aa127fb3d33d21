/*
 * Reads the tables of the Cake paper as CSV:
 *
 *   hardware,util_pct,bandwidth_gbps,model,seq_len,chunk,kv_bits,speedup_io,
 *     speedup_compute                                     (one line)
 *   2xA100,12.5,7,LongAlpaca-13B,16384,512,16,1.87,2.18
 *
 * The first line is the header. It must have each name once, in any order.
 * Other columns, such as those of `cake --csv`, are ignored. Empty lines and
 * lines that start with # are skipped. Nothing is quoted.
 */
#ifndef TOOLS_REPLAY_PAPER_CAKE_TABLE_H
#define TOOLS_REPLAY_PAPER_CAKE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define CAKE_NAME_BYTES 64
#define CAKE_ERROR_BYTES 512
#define CAKE_TABLE_MAX_BYTES (4 * 1024 * 1024)
#define CAKE_TABLE_MAX_ROWS 20000

/* Parameters of one row. Names are NUL-terminated and printable. */
struct cake_setup {
    char hardware[CAKE_NAME_BYTES];
    char model[CAKE_NAME_BYTES];
    double utilisation;    /* share of a step's tokens, above 0, at most 1 */
    double bandwidth_gbps; /* of loading, above 0 */
    int64_t n_tokens;      /* of the prompt, all of it cached; at least 1 */
    int64_t chunk_tokens;  /* a step's budget for all requests, at least 1 */
    uint32_t kv_bits;      /* of a stored number, 1 to 16 */
};

/* A row with the paper's speed-ups of Cake over loading alone and over
 * computing alone; both above 0. */
struct cake_row {
    struct cake_setup setup;
    double speedup_io;
    double speedup_compute;
    size_t line; /* line number in the file */
};

/* Owned array of `count` rows, in file order. Initialise with zeros. */
struct cake_table {
    struct cake_row *rows;
    size_t count;
    size_t capacity;
};

/*
 * Reads a table into an empty struct: from `size` bytes at `text` (borrowed,
 * needs no NUL), or from the file `name` where `text` is NULL; `name` stands
 * for the table in messages. Returns 0; or a negative errno with "FILE:LINE:
 * FIELD: what" in `error` and the table empty: -EINVAL for a broken line or no
 * rows, -EFBIG for more than CAKE_TABLE_MAX_ROWS or a file of more than
 * CAKE_TABLE_MAX_BYTES, -ENOMEM, or the error of open or read. Linear in the
 * size.
 */
[[nodiscard]] int cake_table_read(const char *text, size_t size,
                                  const char *name, struct cake_table *table,
                                  char error[CAKE_ERROR_BYTES]);

/* Frees the rows and leaves the table empty. */
void cake_table_fini(struct cake_table *table);

#endif
