/*
 * Cost models of native workers: which file holds for which workers, where they
 * differ from cost_model.
 */
#ifndef CONDUCTOR_CONFIG_COSTS_H
#define CONDUCTOR_CONFIG_COSTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "conductor/config/engines.h"

struct fields;

#define WORKER_COSTS_MAX 256

/* The cost model of one kind of workers; validated on reading. */
struct worker_cost {
    char workers[ENGINE_NAME_MAX]; /* a name, or its beginning and * */
    char cost_model[ENGINE_PATH_MAX];
};

/* Owned by the configuration that was read; copies of it share the array. */
struct worker_cost_list {
    struct worker_cost *at; /* (n) */
    size_t n;
};

/* Reads the member "worker_costs" of a configuration's file into *out, owned by
 * the caller. Errors go to f and name field and value; then *out is empty. */
void worker_cost_list_read(struct fields *f, const json_t *value,
                           struct worker_cost_list *out);

/* Frees it and makes it empty. */
void worker_cost_list_free(struct worker_cost_list *list);

/* The array as JSON that worker_cost_list_read() reads back to the same; NULL:
 * out of memory. */
json_t *worker_cost_list_json(const struct worker_cost_list *list);

/* Returns the first entry that a worker's name matches; list->n = none. */
size_t worker_cost_of(const struct worker_cost_list *list, const char *name);

/* Writes what the fields mean as a Markdown section. */
void worker_cost_list_reference(FILE *out);

#endif
