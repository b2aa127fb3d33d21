/*
 * The daemon's configuration: one JSON file, read through one option table that
 * also drives --dump-config and the reference page. An option that the table
 * lacks is an error, so that a misspelt option is never ignored.
 */
#ifndef CONDUCTOR_CONFIG_CONFIG_H
#define CONDUCTOR_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "conductor/config/costs.h"
#include "conductor/config/stores.h"
#include "conductor/core/schedule/policy.h"

#define CONFIG_STRING_MAX 256
#define CONFIG_ERROR_MAX 512

/* Where a request of native workers decodes. */
enum config_pool {
    CONFIG_POOL_SPLIT,      /* on any worker that decodes */
    CONFIG_POOL_AGGREGATED, /* where it was prefilled */
};

#define CONFIG_URL_MAX 1024 /* bytes of the longest URL, with its NUL */

/* The API keys that are accepted. */
enum config_keys {
    CONFIG_KEYS_OPEN,     /* any key, or none */
    CONFIG_KEYS_REQUIRED, /* keys of tenants_file */
};

/* Every option; the table in table.c gives unit, range, default and help. */
struct config {
    char listen[CONFIG_STRING_MAX];
    char worker_listen[CONFIG_STRING_MAX];
    bool worker_listen_given; /* by the file, so that engines do not clear it */
    char secret_file[CONFIG_STRING_MAX];
    char model[CONFIG_STRING_MAX];
    int64_t block_tokens;
    char policy[CONFIG_STRING_MAX];
    char queue_order[CONFIG_STRING_MAX];
    char policy_options[CONFIG_STRING_MAX]; /* "name=number,name=number" */
    double kvcache_balancing_threshold;
    char cost_model[CONFIG_STRING_MAX];
    int64_t seed;
    int64_t slo_ttft_ms;
    int64_t slo_tbt_ms;
    int64_t max_body_bytes;
    int64_t max_body_total_bytes;
    int64_t max_output_total_bytes;
    int64_t max_connections;
    int64_t max_in_flight;
    int64_t max_instances;
    int64_t max_queue_per_instance;
    int64_t index_mib;
    int64_t heartbeat_ms;
    int64_t worker_timeout_ms;
    int64_t request_timeout_ms;
    int64_t max_retries;
    int64_t link_mbps;
    int64_t disk_mbps;
    int64_t shared_store_mbps;
    int64_t step_tokens;
    int64_t correction_ms;
    int64_t explain_requests;
    uint8_t log_level;  /* enum log_level */
    uint8_t log_format; /* enum log_format */
    uint8_t pool;       /* enum config_pool */
    uint8_t api_keys;   /* enum config_keys */
    int64_t engine_health_ms;
    int64_t max_tickets, ticket_timeout_ms;
    int64_t engine_timeout_ms;
    int64_t engine_tokenize_ms;
    int64_t token_cache_mib;
    int64_t keepalive_ms;
    char cache_salt_header[CONFIG_STRING_MAX];
    char priority_header[CONFIG_STRING_MAX];
    char tenant_header[CONFIG_STRING_MAX];
    char cors_origins[CONFIG_STRING_MAX];
    char tenants_file[CONFIG_STRING_MAX]; /* "": every key is a tenant */
    int64_t engine_dns_ms;
    int64_t engine_drain_ms;
    char engines_file[CONFIG_STRING_MAX]; /* "": none is watched */
    char name_server[CONFIG_STRING_MAX];  /* "": the machine's */
    int64_t drain_wait_ms, drain_limit_ms;
    char admin_listen[CONFIG_STRING_MAX];    /* "": `listen` has all */
    char admin_key_file[CONFIG_STRING_MAX];  /* "": none */
    char tls_certificate[CONFIG_STRING_MAX]; /* "": no TLS */
    char tls_key[CONFIG_STRING_MAX];
    char worker_tls_certificate[CONFIG_STRING_MAX]; /* "": no TLS */
    char worker_tls_key[CONFIG_STRING_MAX];
    uint8_t admin_tls;                  /* 1 = admin_listen speaks TLS, too */
    char access_log[CONFIG_STRING_MAX]; /* "": none; "-": stdout */
    int64_t access_log_blocks;
    char otlp_endpoint[CONFIG_STRING_MAX]; /* "": none */
    double otlp_sample_ratio;
    char state[CONFIG_URL_MAX];             /* "memory", or a Redis */
    char state_ca_file[CONFIG_STRING_MAX];  /* "": the machine's */
    char worker_address[CONFIG_STRING_MAX]; /* "": found automatically */
    int64_t state_lease_ms;
    struct engine_list engines; /* shared by copies; see config_fini() */
    struct store_list stores;   /* likewise */
    struct worker_cost_list worker_costs; /* likewise */
};

/* config_defaults(c): every option at its default. */
void config_defaults(struct config *c);

/* Bytes of a list of option names, separated by blanks. */
#define CONFIG_NAMES_MAX 1024
struct config_changes {
    char taken[CONFIG_NAMES_MAX]; /* differ, and a running daemon takes them */
    char kept[CONFIG_NAMES_MAX];  /* differ, and need a restart */
};

/* config_compare(old, next, out): writes the options whose values differ. */
void config_compare(const struct config *old, const struct config *next,
                    struct config_changes *out);

/* config_take(into, next): copies the options that a running daemon takes, and
 * the list of engines, which both share from then on. */
void config_take(struct config *into, const struct config *next);

/* config_fini(c): frees what config_load() and config_parse() allocated; no
 * copy of *c may be used afterwards. */
void config_fini(struct config *c);

/* config_anchor(file, path): makes a relative file name start at the folder of
 * the configuration file `path`; "" stays. Returns 0, or -ENAMETOOLONG with
 * *file untouched. */
[[nodiscard]] int config_anchor(char file[CONFIG_STRING_MAX], const char *path);

/* engine_list_anchor(list, path): config_anchor() for all files that engines
 * name. */
[[nodiscard]] int engine_list_anchor(struct engine_list *list,
                                     const char *path);

/* worker_cost_list_anchor(list, path): does the same for worker_costs. */
[[nodiscard]] int worker_cost_list_anchor(struct worker_cost_list *list,
                                          const char *path);

/*
 * config_load(c, path, err): reads path over the defaults into *c. Returns 0,
 * or a negative errno with a message that names file, option and value in err
 * (CONFIG_ERROR_MAX bytes); *c is then untouched.
 */
[[nodiscard]] int config_load(struct config *c, const char *path,
                              char err[CONFIG_ERROR_MAX]);

/* The most bytes of a configuration. */
#define CONFIG_FILE_MAX (4u << 20)

/* config_parse(c, text, len, err): as config_load() from memory; messages name
 * no file. */
[[nodiscard]] int config_parse(struct config *c, const char *text, size_t len,
                               char err[CONFIG_ERROR_MAX]);

/* config_set(c, name, value, err): sets one option from text, as the command
 * line's --set name=value does. Errors as config_load(). */
[[nodiscard]] int config_set(struct config *c, const char *name,
                             const char *value, char err[CONFIG_ERROR_MAX]);

/* config_check(c, err): checks what no option's own range shows: a worker must
 * have time for two reports before it counts as lost, the longest body must fit
 * into the total of all bodies, and the policy must have the options in
 * policy_options. Call it when every option is set. Returns 0, or -EINVAL with
 * a message in err. */
[[nodiscard]] int config_check(const struct config *c,
                               char err[CONFIG_ERROR_MAX]);

/* config_policy_option(c, text, err): adds one setting, "name=number", to
 * policy_options. Errors as config_load(). */
[[nodiscard]] int config_policy_option(struct config *c, const char *text,
                                       char err[CONFIG_ERROR_MAX]);

/* config_drop_rules(c): takes the policy's rules, which are fixed, out of
 * policy_options, with a warning for each. Call it after config_check(). */
void config_drop_rules(struct config *c);

/* config_policy(c, options): returns the chosen policy, static, and writes its
 * options as configured. NULL: there is no such policy. */
const struct schedule_policy *config_policy(const struct config *c,
                                            double options[POLICY_OPTIONS_MAX]);

/* config_dump(c, out): writes the whole configuration as JSON that
 * config_load() reads back to the same values. Returns 0 or -EIO. */
[[nodiscard]] int config_dump(const struct config *c, FILE *out);

/* config_reference(out): writes the option table as Markdown, for docs/. */
void config_reference(FILE *out);

/* config_example(out): writes a configuration of two engines, with every option
 * as a comment, its help and its default. config_load() reads it. */
void config_example(FILE *out);

#endif
