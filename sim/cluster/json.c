/* Reads a cluster description from JSON. The format is in
 * docs/plan/clusters.md. */
#include "sim/cluster/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "conductor/core/step/queue.h"
#include "predictor/cost_model_json.h"

#define BYTES_PER_S_MAX 1e18
#define PATH_BYTES 1024

/* A formula is valid in any range. */
static const struct cost_model_range everywhere = {
    .uncached_min_tokens = 0,
    .uncached_max_tokens = CLUSTER_TOKENS_MAX,
    .cached_max_tokens = CLUSTER_TOKENS_MAX,
    .batch_max = CLUSTER_TOKENS_MAX,
    .kv_tokens_max = CLUSTER_TOKENS_MAX,
};

/* A decode step reads the weights once and each request's KV, and computes
 * `flops` for each request. */
static void read_flops_decode(struct fields *f, const struct fields_object *o,
                              double flops, double flops_per_s,
                              struct cluster *c)
{
    const double no_overhead_ms = 0.0;
    struct fields_object d =
        fields_object(f, o, "decode", "cost.decode.", true);

    if (!d.json)
        return;
    fields_known(f, &d, "weight_bytes memory_bytes_per_s memory_use step_ms");
    double bytes_per_s =
        fields_number(f, &d, "memory_bytes_per_s", 1e6, BYTES_PER_S_MAX, NULL) *
        fields_number(f, &d, "memory_use", 1e-3, 1.0, NULL);
    double weight_bytes = fields_number(f, &d, "weight_bytes", 0.0, 1e18, NULL);
    double step_ms = fields_number(f, &d, "step_ms", 0.0, 1e6, &no_overhead_ms);

    c->cost.decode[0] = step_ms * 1e3 + weight_bytes / bytes_per_s * 1e6;
    c->cost.decode[1] = flops / flops_per_s * 1e6;
    c->cost.decode[2] = (double)c->kv_bytes_per_token / bytes_per_s * 1e6;
}

/* Mooncake, FAST'25: flops(n) = l (a n^2 d + b n d^2). A prefill of u tokens
 * behind p is flops(u + p) - flops(p), and (u + p)^2 - p^2 = u^2 + 2 u p. */
static void read_flops(struct fields *f, const struct fields_object *o,
                       struct cluster *c)
{
    fields_known(f, o, "kind d_model a b mfu flops_per_s decode");
    double l = c->layers;
    double d = fields_number(f, o, "d_model", 1.0, 1e6, NULL);
    double a = fields_number(f, o, "a", 0.0, 1e6, NULL);
    double b = fields_number(f, o, "b", 0.0, 1e6, NULL);
    double per_s = fields_number(f, o, "flops_per_s", 1e6, 1e24, NULL) *
                   fields_number(f, o, "mfu", 1e-3, 1.0, NULL);

    c->cost.prefill[1] = l * b * d * d / per_s * 1e6;
    c->cost.prefill[2] = l * a * d / per_s * 1e6;
    c->cost.prefill[3] = 2.0 * c->cost.prefill[2];
    read_flops_decode(f, o, l * b * d * d, per_s, c);
    snprintf(c->cost.engine, sizeof(c->cost.engine), "flops");
}

/* Chunk i of a prompt costs first + i step. The sum over the chunks up to n
 * tokens is a polynomial in n; subtract the sum up to p tokens. */
static void read_chunks(struct fields *f, const struct fields_object *o,
                        struct cluster *c)
{
    fields_known(f, o, "kind chunk_tokens first_ms step_ms decode_us");
    double chunk = fields_number(f, o, "chunk_tokens", 1.0, 1e6, NULL);
    double first_us = fields_number(f, o, "first_ms", 0.0, 1e9, NULL) * 1e3;
    double step_us = fields_number(f, o, "step_ms", 0.0, 1e9, NULL) * 1e3;

    c->cost.prefill[1] = (first_us - step_us / 2.0) / chunk;
    c->cost.prefill[2] = step_us / (2.0 * chunk * chunk);
    c->cost.prefill[3] = 2.0 * c->cost.prefill[2];
    if (c->cost.prefill[1] < 0.0)
        fields_refuse(f, o->path, "step_ms", "more than twice first_ms");
    if (json_object_get(o->json, "decode_us"))
        fields_numbers(f, o, "decode_us", c->cost.decode,
                       COST_MODEL_DECODE_TERMS);
    snprintf(c->cost.engine, sizeof(c->cost.engine), "chunks");
}

/* Reads a cost model file; its path is relative to the description. */
static void load_cost_file(struct fields *f, const struct fields_object *o,
                           struct cluster *c)
{
    const char *slash = strrchr(f->file, '/');
    char name[256], path[PATH_BYTES];

    fields_text(f, o, "file", name, sizeof(name), NULL);
    if (f->rc != 0)
        return;
    snprintf(path, sizeof(path), "%.*s%s",
             slash && name[0] != '/' ? (int)(slash + 1 - f->file) : 0, f->file,
             name);
    char why[256];
    int rc = cost_model_load_file(path, &c->cost, why, sizeof(why));

    if (rc != 0) {
        fields_refuse(f, o->path, "file", "%s", why);
        f->rc = rc;
    } else if (c->cost.block_tokens &&
               c->cost.block_tokens != (int64_t)c->block_tokens) {
        fields_refuse(f, o->path, "file",
                      "%.200s was fitted for blocks of %lld tokens, but "
                      "model.block_tokens is %lu",
                      path, (long long)c->cost.block_tokens,
                      (unsigned long)c->block_tokens);
    }
}

static void read_polynomial(struct fields *f, const struct fields_object *o,
                            struct cluster *c)
{
    fields_known(f, o, "kind file prefill_us decode_us");
    if (json_object_get(o->json, "file")) {
        load_cost_file(f, o, c);
        return;
    }
    fields_numbers(f, o, "prefill_us", c->cost.prefill,
                   COST_MODEL_PREFILL_TERMS);
    if (json_object_get(o->json, "decode_us"))
        fields_numbers(f, o, "decode_us", c->cost.decode,
                       COST_MODEL_DECODE_TERMS);
    snprintf(c->cost.engine, sizeof(c->cost.engine), "polynomial");
}

/* Checks each term, whatever the kind of cost. */
static void check_terms(struct fields *f, const char *what, const double *us,
                        size_t n)
{
    for (size_t i = 0; f->rc == 0 && i < n; i++)
        if (!(us[i] >= 0.0 && us[i] <= CLUSTER_TERM_MAX_US))
            fields_refuse(f, "cost", "", "%s term %zu: %g us: must be 0 to %g",
                          what, i, us[i], CLUSTER_TERM_MAX_US);
}

static void read_cost(struct fields *f, const struct fields_object *root,
                      struct cluster *c)
{
    struct fields_object o = fields_object(f, root, "cost", "cost.", false);
    char kind[32];

    c->cost.range = everywhere;
    fields_text(f, &o, "kind", kind, sizeof(kind), NULL);
    if (strcmp(kind, "flops") == 0)
        read_flops(f, &o, c);
    else if (strcmp(kind, "polynomial") == 0)
        read_polynomial(f, &o, c);
    else if (strcmp(kind, "chunks") == 0)
        read_chunks(f, &o, c);
    else
        fields_refuse_value(f, &o, "kind",
                            "\"flops\", \"polynomial\" or \"chunks\"");
    check_terms(f, "prefill", c->cost.prefill, COST_MODEL_PREFILL_TERMS);
    check_terms(f, "decode", c->cost.decode, COST_MODEL_DECODE_TERMS);
}

/* Reads the fields that prefill and coupled nodes share. */
static void read_server(struct fields *f, const struct fields_object *o,
                        struct cluster *c)
{
    const int64_t whole_prompt = 0, few = 1023;
    const double at_once = 0.0;

    fields_text(f, o, "order", c->order, sizeof(c->order), "fifo");
    c->step_tokens = (uint32_t)fields_integer(f, o, "step_tokens", 0, 1 << 30,
                                              &whole_prompt);
    c->mix_requests = fields_bool(f, o, "mix_requests", false);
    c->max_waiting = (uint32_t)fields_integer(f, o, "max_waiting", 1,
                                              QUEUE_ITEMS_MAX - 1, &few);
    c->handover_us =
        llround(fields_number(f, o, "handover_ms", 0.0, 1e6, &at_once) * 1e3);
    c->prefix_cache = fields_bool(f, o, "prefix_cache", true);
}

static void read_prefill(struct fields *f, const struct fields_object *root,
                         struct cluster *c)
{
    const int64_t one = 1;
    struct fields_object o =
        fields_object(f, root, "prefill", "prefill.", false);

    fields_known(
        f, &o,
        "nodes order step_tokens mix_requests max_waiting "
        "prefix_cache pipeline_stages handover_ms groups " BLOCK_TIER_NAMES);
    c->prefill_nodes =
        (uint32_t)fields_integer(f, &o, "nodes", 1, CLUSTER_NODES_MAX, NULL);
    c->pipeline_stages = (uint32_t)fields_integer(f, &o, "pipeline_stages", 1,
                                                  CLUSTER_STAGES_MAX, &one);
    read_server(f, &o, c);
    cluster_read_tiers(f, &o, true, c->tiers, NULL);
    cluster_read_groups(f, &o, false, "nodes prefill_us " BLOCK_TIER_NAMES, c);
}

static void read_memory(struct fields *f, const struct fields_object *o,
                        struct cluster *c)
{
    c->decode_kv_tokens =
        fields_integer(f, o, "kv_tokens", 1, CLUSTER_TOKENS_MAX, NULL);
    c->decode_max_batch =
        (uint32_t)fields_integer(f, o, "max_batch", 1, 1 << 16, NULL);
}

/* "none", or an object. */
static void read_decode(struct fields *f, const struct fields_object *root,
                        struct cluster *c)
{
    const json_t *value = json_object_get(root->json, "decode");

    if (json_is_string(value) && strcmp(json_string_value(value), "none") == 0)
        return;
    struct fields_object o = fields_object(f, root, "decode", "decode.", false);

    fields_known(f, &o, "nodes kv_tokens max_batch groups");
    c->decode_nodes =
        (uint32_t)fields_integer(f, &o, "nodes", 1, CLUSTER_NODES_MAX, NULL);
    read_memory(f, &o, c);
    cluster_read_groups(f, &o, true, "nodes decode_us kv_tokens max_batch", c);
}

/* Reads which of the coupled nodes are engines of pairs. */
static void read_pairs(struct fields *f, const struct fields_object *coupled,
                       struct cluster *c)
{
    struct fields_object o =
        fields_object(f, coupled, "pairs", "coupled.pairs.", true);

    if (!o.json)
        return;
    fields_known(f, &o, "prefill decode decode_alone");
    c->pair_prefills =
        (uint32_t)fields_integer(f, &o, "prefill", 1, CLUSTER_NODES_MAX, NULL);
    c->pair_decodes =
        (uint32_t)fields_integer(f, &o, "decode", 1, CLUSTER_NODES_MAX, NULL);
    c->pair_decodes_alone = fields_bool(f, &o, "decode_alone", true);
}

static void read_coupled(struct fields *f, const struct fields_object *root,
                         struct cluster *c)
{
    struct fields_object o =
        fields_object(f, root, "coupled", "coupled.", false);

    if (json_object_get(root->json, "prefill") ||
        json_object_get(root->json, "decode"))
        fields_refuse(f, "", "coupled",
                      "does not go with \"prefill\" and \"decode\"");
    fields_known(f, &o,
                 "nodes order step_tokens mix_requests max_waiting "
                 "prefix_cache kv_tokens max_batch handover_ms groups pairs");
    c->coupled_nodes =
        (uint32_t)fields_integer(f, &o, "nodes", 1, CLUSTER_NODES_MAX, NULL);
    c->pipeline_stages = 1;
    read_server(f, &o, c);
    read_memory(f, &o, c);
    c->tiers[TIER_DEVICE].capacity_tokens = c->decode_kv_tokens;
    read_pairs(f, &o, c);
    cluster_read_groups(f, &o, false,
                        "nodes prefill_us decode_us kv_tokens max_batch", c);
}

static void read_links(struct fields *f, const struct fields_object *root,
                       struct cluster *c)
{
    struct fields_object o = fields_object(f, root, "links", "links.", false);

    fields_known(f, &o, "gbps shared layerwise");
    c->link_bytes_per_s =
        fields_number(f, &o, "gbps", 0.0, 1e9, NULL) * 1e9 / 8;
    c->links_shared = fields_bool(f, &o, "shared", true);
    c->layerwise = fields_bool(f, &o, "layerwise", true);
}

static void read_conventions(struct fields *f, const struct fields_object *root,
                             struct cluster *c)
{
    const double any_longer = 1.0;
    struct fields_object o =
        fields_object(f, root, "conventions", "conventions.", true);
    char at[16];

    fields_known(f, &o,
                 "cache_at whole_prompt_reuse "
                 "kvcache_balancing_threshold");
    fields_text(f, &o, "cache_at", at, sizeof(at), "service");
    if (strcmp(at, "dispatch") == 0)
        c->cache_at = CLUSTER_CACHE_AT_DISPATCH;
    else if (strcmp(at, "service") != 0)
        fields_refuse_value(f, &o, "cache_at", "\"service\" or \"dispatch\"");
    c->whole_prompt_reuse = fields_bool(f, &o, "whole_prompt_reuse", false);
    c->kvcache_balancing_threshold = fields_number(
        f, &o, "kvcache_balancing_threshold", 1.0, 1e9, &any_longer);
}

static void read_cluster(struct fields *f, const struct fields_object *root,
                         void *into)
{
    struct cluster *c = into;
    const double unknown = 1.0;
    char why[CLUSTER_ERROR_BYTES];

    fields_constant(f, root, "format", "conductor-cluster");
    fields_integer(f, root, "version", 1, 1, NULL);
    fields_known(
        f, root,
        "format version name about model cost prefill decode "
        "coupled links conventions prefill_error_sigma "
        "decode_error_sigma node_speed speeds_known max_tokens first_token "
        "price_per_hour currency price_source source");
    fields_text(f, root, "name", c->name, sizeof(c->name), NULL);
    fields_number(f, root, "price_per_hour", 1e-6, 1e9, &unknown);
    struct fields_object o = fields_object(f, root, "model", "model.", false);

    fields_known(f, &o, "layers kv_bytes_per_token block_tokens");
    c->layers = (uint32_t)fields_integer(f, &o, "layers", 1, 10000, NULL);
    c->kv_bytes_per_token =
        fields_integer(f, &o, "kv_bytes_per_token", 1, 1 << 30, NULL);
    c->block_tokens =
        (uint32_t)fields_integer(f, &o, "block_tokens", 1, 65536, NULL);
    read_cost(f, root, c);
    if (json_object_get(root->json, "coupled")) {
        read_coupled(f, root, c);
    } else {
        read_prefill(f, root, c);
        read_decode(f, root, c);
    }
    read_links(f, root, c);
    read_conventions(f, root, c);
    cluster_read_reality(f, root, c);
    if (f->rc == 0 && cluster_check(c, why) != 0)
        fields_refuse(f, "", "", "%.255s", why);
}

int cluster_load_buffer(const char *text, size_t size, const char *name,
                        struct cluster *cluster, char err[CLUSTER_ERROR_BYTES])
{
    struct fields f = {"", name, err, CLUSTER_ERROR_BYTES, 0};
    struct cluster c = {0};
    int rc = fields_read(&f, text, size, read_cluster, &c);

    if (rc == 0)
        *cluster = c;
    return rc;
}

int cluster_load_file(const char *path, struct cluster *cluster,
                      char err[CLUSTER_ERROR_BYTES])
{
    return cluster_load_buffer(NULL, CLUSTER_JSON_MAX_BYTES, path, cluster,
                               err);
}
