/* The engines of a configuration: third-party servers behind the conductor that
 * speak OpenAI's HTTP API. */
#ifndef CONDUCTOR_CONFIG_ENGINES_H
#define CONDUCTOR_CONFIG_ENGINES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "conductor/config/names.h"
#include "conductor/http/url.h"

struct fields;
struct fields_object;

#define ENGINE_PATH_MAX 256
#define ENGINES_MAX 4096

enum engine_kind {
    ENGINE_OPENAI,
    ENGINE_VLLM,
    ENGINE_SGLANG,
    ENGINE_AUTO, /* the engine is asked which of these it is */
};

enum engine_role { ENGINE_ROLE_BOTH, ENGINE_ROLE_PREFILL, ENGINE_ROLE_DECODE };

enum engine_index {
    ENGINE_INDEX_AUTO,
    ENGINE_INDEX_EVENTS,
    ENGINE_INDEX_PREDICTED
};

/* Bytes of a name with dns: its engines are called NAME@ADDRESS. */
#define ENGINE_DNS_NAME_MAX 24

/* Most tokens in an engine's block. */
#define ENGINE_BLOCK_TOKENS_MAX 1024

/* One entry: an engine or, with dns, one engine for each address of its host.
 * Validated on reading. */
struct engine_config {
    char name[ENGINE_NAME_MAX];
    uint8_t kind;         /* enum engine_kind */
    uint8_t role;         /* enum engine_role */
    uint8_t kv_connector; /* enum pair_connector */
    int64_t bootstrap_port;
    char url_text[ENGINE_URL_MAX];
    struct engine_url url; /* of url_text */
    bool dns;              /* each address of its host is an engine */
    char tls_ca_file[ENGINE_PATH_MAX]; /* "" = the machine's */
    bool tls_insecure;
    char api_key_file[ENGINE_PATH_MAX]; /* "": none */
    char model[ENGINE_MODEL_MAX];       /* "": as it reports */
    struct engine_names aliases;        /* of the model */
    struct engine_names adapters;       /* LoRA, asked for as models */
    char cost_model[ENGINE_PATH_MAX];   /* "": learned */
    char health_path[ENGINE_PATH_MAX];
    char tokenize_path[ENGINE_PATH_MAX]; /* "": not asked for */
    char metrics_path[ENGINE_PATH_MAX];  /* "": not asked for */
    char models_path[ENGINE_PATH_MAX];
    uint8_t index;                   /* enum engine_index */
    char kv_events[ENGINE_PATH_MAX]; /* where it publishes; "": nowhere */
    char kv_replay[ENGINE_PATH_MAX]; /* where it replays; "": nowhere */
    char kv_topic[ENGINE_NAME_MAX];
    bool kv_events_bind;  /* it connects to kv_events */
    int64_t dp_ranks;     /* 0 = not given */
    int64_t dp_rank;      /* the one rank of the entry; -1 = not given */
    int64_t block_tokens; /* 0 = not given */
    int64_t kv_blocks;    /* 0 = not given */
};

/* Owned by the configuration that was read; copies of it share the array. */
struct engine_list {
    struct engine_config *at; /* (n) */
    size_t n;
    bool given; /* there was a list, perhaps an empty one */
};

/* Reads the member "engines" of a configuration's file into *out, owned by the
 * caller. Errors go to f and name field and value; then *out is empty. */
void engine_list_read(struct fields *f, const json_t *value,
                      struct engine_list *out);

/* Reads one entry. Errors go to f. */
void engine_config_read(struct fields *f, const struct fields_object *o,
                        struct engine_config *out);

/* Writes the paths that the entry leaves to its kind. */
void engine_config_paths(struct engine_config *e);

/*
 * Adds an engine of the kind "auto".
 *   text  "[NAME=]URL"; without a name it is called HOST:PORT.
 * Returns 0, or a negative errno with a message in err.
 */
[[nodiscard]] int engine_list_add(struct engine_list *list, const char *text,
                                  char *err, size_t size);

/* Returns whether all fields of two entries are equal. */
bool engine_config_equal(const struct engine_config *a,
                         const struct engine_config *b);

/* A conflict between two entries. */
struct engine_clash {
    size_t at;       /* index of the later entry */
    const char *key; /* the field; static */
    char why[ENGINE_MODEL_MAX + ENGINE_NAME_MAX + 80];
};

/* Writes the conductor's address that an engine connects to with its KV events:
 * *out and *more ports above it, one for each further rank. Returns false, *out
 * untouched, if there is none. */
bool engine_listener(const struct engine_config *e, struct address *out,
                     unsigned *more);

/* Returns whether the n entries, borrowed, cannot be served together; *out then
 * says why. Out of memory: false. O(n log n). */
bool engine_configs_clash(const struct engine_config *const *all, size_t n,
                          struct engine_clash *out);

/* Frees it and makes it empty. */
void engine_list_free(struct engine_list *list);

/* The array as JSON that engine_list_read() reads back to the same; NULL: out
 * of memory. */
json_t *engine_list_json(const struct engine_list *list);

/* Writes what the fields mean as a Markdown section. */
void engine_list_reference(FILE *out);

/* "both", "prefill", "decode"; NULL beyond. */
const char *engine_role_name(size_t role);

/* "openai", "vllm", "sglang", "auto"; NULL beyond. */
const char *engine_kind_name(size_t kind);

#endif
