/* A small simulated cluster, a source of requests in memory and a sink that
 * keeps all records. */
#ifndef TESTS_UNIT_SIM_RIG_H
#define TESTS_UNIT_SIM_RIG_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"

#define BLOCK 512
enum { REQUESTS_MAX = 4000 };

struct rig {
    struct cluster cluster;
    struct sim_config config;
    struct trace_request requests[REQUESTS_MAX];
    size_t n_requests;
    size_t n_given;
    struct sim_record records[REQUESTS_MAX];
    size_t n_records;
    struct sim_summary summary;
    uint32_t last_copies[SIM_WATCH_MAX];
    uint32_t copies_at[8]; /* of the first watched block, the first times */
    int n_copies;
};

static inline int rig_next(void *arg, struct trace_request *request)
{
    struct rig *r = arg;

    if (r->n_given == r->n_requests)
        return 0;
    return trace_request_copy(request, &r->requests[r->n_given++]) == 0
               ? 1
               : -ENOMEM;
}

static inline void rig_take(void *arg, const struct sim_record *record)
{
    struct rig *r = arg;

    CU_ASSERT_EQUAL_FATAL(record->index, r->n_records);
    r->records[r->n_records++] = *record;
}

static inline void rig_take_copies(void *arg, int64_t at_us,
                                   const uint32_t *copies)
{
    struct rig *r = arg;

    CU_ASSERT_EQUAL(at_us, r->n_copies * r->config.watch_interval_us);
    memcpy(r->last_copies, copies, r->config.n_watch * sizeof(*copies));
    if (r->n_copies < 8)
        r->copies_at[r->n_copies] = copies[0];
    r->n_copies++;
}

/* Costs of whole microseconds: 10 a token, 1000 + 100 n + 0.1 v a step; a token
 * of KV a microsecond. */
static inline struct cluster simple_cluster(void)
{
    return (struct cluster){
        .name = "test",
        .layers = 4,
        .block_tokens = BLOCK,
        .kv_bytes_per_token = 1000,
        .prefill_nodes = 1,
        .decode_nodes = 1,
        .order = "fifo",
        .max_waiting = 100,
        .pipeline_stages = 1,
        .prefix_cache = true,
        .decode_kv_tokens = 100000,
        .decode_max_batch = 8,
        .link_bytes_per_s = 1e9,
        .links_shared = true,
        .kvcache_balancing_threshold = 1.0,
        .tiers[TIER_DEVICE].capacity_tokens = 3000000,
        .cost = {.prefill = {0, 10},
                 .decode = {1000, 100, 0.1},
                 .range = {0, 1 << 30, 1 << 30, 1 << 30, 1 << 30}}};
}

/* Returns a rig without requests, which rig_free() frees. */
static inline struct rig *rig_of(struct cluster cluster, const char *policy)
{
    struct rig *r = calloc(1, sizeof(*r));

    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    r->cluster = cluster;
    r->config = (struct sim_config){.cluster = &r->cluster,
                                    .policy = policy,
                                    .speed = 1.0,
                                    .seed = seed_or(1)};
    return r;
}

static inline void rig_free(struct rig *r)
{
    for (size_t i = 0; i < r->n_requests; i++)
        trace_request_fini(&r->requests[i]);
    free(r);
}

/* A request whose blocks are first_id, first_id + 1, ... */
static inline void ask(struct rig *r, int64_t arrival_us, uint32_t input_tokens,
                       uint32_t output_tokens, uint64_t first_id)
{
    struct trace_request *t = &r->requests[r->n_requests++];
    size_t n = (input_tokens + BLOCK - 1) / BLOCK;

    CU_ASSERT_EQUAL_FATAL(trace_request_reserve(t, n), 0);
    t->arrival_us = arrival_us;
    t->input_tokens = input_tokens;
    t->output_tokens = output_tokens;
    t->block_count = n;
    for (size_t i = 0; i < n; i++)
        t->hash_ids[i] = first_id + i;
}

static inline int run_it(struct rig *r, char *err)
{
    const struct sim_io io = {.next = rig_next,
                              .record = rig_take,
                              .copies = rig_take_copies,
                              .arg = r};

    r->n_given = r->n_records = 0;
    r->n_copies = 0;
    return sim_run(&r->config, &io, &r->summary, err);
}

/* Every request is answered once, and sim_run() has looked that no view counts
 * any work or booking at the end. */
static inline void run(struct rig *r)
{
    char err[SIM_ERROR_BYTES] = "";
    int rc = run_it(r, err);

    if (rc != 0)
        printf("\n    %d %s", rc, err);
    CU_ASSERT_EQUAL_FATAL(rc, 0);
    CU_ASSERT_EQUAL(r->n_records, r->n_requests);
}

#endif
