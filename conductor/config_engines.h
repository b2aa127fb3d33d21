/*
 * The engines of a configuration: servers that others wrote and that speak
 * OpenAI's HTTP API, in front of which the conductor stands.
 */
#ifndef CONDUCTOR_CONFIG_ENGINES_H
#define CONDUCTOR_CONFIG_ENGINES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "conductor/link/engine/url.h"

struct fields;

#define ENGINE_NAME_MAX 64
#define ENGINE_PATH_MAX 256
#define ENGINES_MAX 4096

enum engine_kind { ENGINE_OPENAI, ENGINE_VLLM, ENGINE_SGLANG };

enum engine_index {
    ENGINE_INDEX_AUTO,
    ENGINE_INDEX_EVENTS,
    ENGINE_INDEX_PREDICTED
};

/* One engine; all of it was checked when it was read. */
struct engine_config {
    char name[ENGINE_NAME_MAX];
    uint8_t kind; /* enum engine_kind */
    char url_text[ENGINE_URL_MAX];
    struct engine_url url;
    char api_key_file[ENGINE_PATH_MAX]; /* "": none */
    char model[ENGINE_NAME_MAX];
    char cost_model[ENGINE_PATH_MAX]; /* "": learned */
    char health_path[ENGINE_PATH_MAX];
    char tokenize_path[ENGINE_PATH_MAX]; /* "": not asked for */
    char metrics_path[ENGINE_PATH_MAX];  /* "": not asked for */
    uint8_t index;                       /* enum engine_index */
    char kv_events[ENGINE_PATH_MAX];     /* where it publishes; "": nowhere */
    char kv_replay[ENGINE_PATH_MAX];     /* where it replays; "": nowhere */
    char kv_topic[ENGINE_NAME_MAX];
    bool kv_events_bind;  /* it connects to kv_events */
    int64_t dp_ranks;     /* 0: not said */
    int64_t block_tokens; /* 0: not said */
    int64_t kv_blocks;    /* 0: not said */
};

/* Owned by the configuration that was read; copies of it share the array. */
struct engine_list {
    struct engine_config *at; /* (n) */
    size_t n;
};

/* Reads the member "engines" of a configuration's file into *out, owned by the
 * caller. Errors go to f and name field and value; then *out is empty. */
void engine_list_read(struct fields *f, const json_t *value,
                      struct engine_list *out);

/* Frees it and makes it empty. */
void engine_list_free(struct engine_list *list);

/* The array as JSON that engine_list_read() reads back to the same; NULL: out
 * of memory. */
json_t *engine_list_json(const struct engine_list *list);

/* Writes what the fields mean as a Markdown section. */
void engine_list_reference(FILE *out);

/* "openai", "vllm", "sglang"; NULL beyond. */
const char *engine_kind_name(size_t kind);

#endif
