/* The command line of conductor-worker. */
#ifndef WORKERS_OPTIONS_H
#define WORKERS_OPTIONS_H

#include <stdint.h>

#include "base/address.h"
#include "proto/message.h"

/* The blocks to put into the shared store. */
enum worker_puts { WORKER_PUTS_EVICTED, WORKER_PUTS_ALL };

/* Plain data, all checked by worker_options_parse. Strings point into argv. */
struct worker_options {
    const char *conductor_list;                    /* as given; NULL = none */
    struct address conductors[MSG_CONDUCTORS_MAX]; /* (n_conductors) */
    uint32_t n_conductors;
    struct address listen;   /* port 0 = any */
    const char *secret_file; /* NULL = none */
    const char *tls_ca;      /* NULL = no TLS to conductors */
    char name[MSG_NAME_MAX];
    uint8_t role; /* enum proto_role */
    const char *engine;
    const char *model;
    uint64_t seed;
    uint32_t layers;        /* 0 = all */
    uint32_t device_kv_mib; /* 0 = all that is free */
    uint32_t kv_blocks;     /* 0 = from kv_mib */
    uint32_t kv_mib;        /* 0 = from kv_blocks */
    uint32_t block_tokens;
    uint32_t step_tokens;
    uint32_t max_batch;
    uint32_t max_prefills;
    uint32_t max_queue;
    uint32_t fetch_timeout_ms;
    uint32_t push_timeout_ms;
    uint32_t drain_ms;
    const char *transports; /* as transfer_config */
    uint32_t streams;
    const char *rdma_devices; /* as transfer_config */
    uint32_t rdma_slice_kib;
    uint8_t load_mode; /* enum proto_load_mode; AUTO = the conductor's plan */
    double load_gbps;  /* Gbit/s; 0 = unlimited */
    const char *disk_path;                  /* NULL = no disk tier */
    uint32_t disk_mib;                      /* 0 without disk_path */
    const char *shared_store;               /* URL; NULL = none */
    const char *shared_store_password_file; /* NULL = the URL's */
    const char *shared_store_ca; /* NULL = the system's authorities */
    uint32_t shared_store_mib;   /* 0 without shared_store */
    uint32_t shared_store_ttl;   /* seconds */
    uint32_t shared_store_timeout_ms;
    uint8_t shared_store_put; /* enum worker_puts */
    const char *cost_model;   /* NULL = none */
    double engine_speed; /* engine "timed": speed relative to the cost model */
    double prefill_error_sigma, decode_error_sigma; /* of timed */
    const char *profile;                            /* NULL = serve */
    uint8_t log_level;                              /* enum log_level */
    uint8_t log_format;                             /* enum log_format */
};

/* Fills `o` from argv. Returns 0; or -1 with the exit status in *status, after
 * printing help, the version or a message. */
[[nodiscard]] int worker_options_parse(int argc, char **argv,
                                       struct worker_options *o, int *status);

#endif
