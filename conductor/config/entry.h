/* Entries of the configuration's arrays "engines", "stores" and "worker_costs":
 * one table of fields for each drives reading, dumping and the reference. */
#ifndef CONDUCTOR_CONFIG_ENTRY_H
#define CONDUCTOR_CONFIG_ENTRY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Rows leave out trailing members that they do not need. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

struct fields;
struct fields_object;

/* Words of a boolean. */
extern const char *const entry_no_yes[];

struct entry_field {
    char name[32];
    size_t at;            /* in the entry's struct */
    size_t size;          /* of a text; 0 = a number or a word */
    int64_t most;         /* of a number, an int64_t; else 0 */
    const char *fallback; /* NULL: it must be there; of a number "": 0 stands
                             for not given */
    const char *help;
    const char *const *words; /* a word's, kept as its number in a byte; the
                                 last is NULL; NULL: the field is no word */
    bool names;               /* it is an array, a struct engine_names */
    bool zero;                /* 0 is a value of this number; -1 = not given */
};

struct entry_table {
    const struct entry_field *fields; /* (n_fields) */
    size_t n_fields;
    size_t bytes;       /* of an entry */
    const char *list;   /* name of the array */
    size_t least, most; /* entries */
    /* Checks all[i], read from the JSON o; all earlier entries are right.
     * Errors go to f. */
    void (*check)(struct fields *f, const struct fields_object *o, void *all,
                  size_t i);
    const char *about; /* text of the reference's section, above the fields */
};

/* Where a field stands in struct s; of a text also its size, and no `most`. */
#define ENTRY_AT(s, field) offsetof(struct s, field)
#define ENTRY_TEXT(s, field) \
    offsetof(struct s, field), sizeof(((struct s *)0)->field), 0

/* Reads one entry, and checks it. Errors go to f. */
void entry_read(struct fields *f, const struct fields_object *o,
                const struct entry_table *t, void *all, size_t i);

/* Returns the array's entries, owned by the caller, and their number in *n; or
 * NULL, with the error in f. */
void *entry_list_read(struct fields *f, const json_t *value,
                      const struct entry_table *t, size_t *n);

/* Returns whether all fields of two entries are equal. */
bool entry_equal(const struct entry_table *t, const void *a, const void *b);

/* Returns n entries as JSON that entry_list_read() reads back to the same;
 * NULL: out of memory. */
json_t *entry_list_json(const struct entry_table *t, const void *all, size_t n);

/* Writes what the fields mean as a Markdown section. */
void entry_reference(const struct entry_table *t, FILE *out);

#endif
