/* Cluster descriptions: what is read, and what is said of what is wrong. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cluster/cluster.h"
#include "tests/unit/suite.h"

#define MODEL                                                             \
    "\"format\": \"conductor-cluster\", \"version\": 1, \"name\": \"c\"," \
    "\"model\": {\"layers\": 80, \"kv_bytes_per_token\": 327680,"         \
    " \"block_tokens\": 512},"
#define COST                                                                  \
    "\"cost\": {\"kind\": \"flops\", \"d_model\": 8192, \"a\": 4, \"b\": 22," \
    " \"flops_per_s\": 2.496e15, \"mfu\": 0.5},"
#define POLYNOMIAL                                                       \
    "\"cost\": {\"kind\": \"polynomial\", \"prefill_us\": [1, 2, 3, 4]," \
    " \"decode_us\": [5, 6, 7]},"
#define PREFILL "\"prefill\": {\"nodes\": 2, \"device\": {\"tokens\": 9000}},"
#define NO_DECODE "\"decode\": \"none\","
#define DECODE \
    "\"decode\": {\"nodes\": 3, \"kv_tokens\": 10, \"max_batch\": 4},"
#define COUPLED                                                          \
    "\"coupled\": {\"nodes\": 5, \"kv_tokens\": 9000, \"max_batch\": 4," \
    " \"step_tokens\": 64, \"mix_requests\": true, \"prefix_cache\": false},"
#define PAIRED(p, d)                                                     \
    "\"coupled\": {\"nodes\": 5, \"kv_tokens\": 9000, \"max_batch\": 4," \
    " \"pairs\": {\"prefill\": " #p ", \"decode\": " #d "}},"
#define LINKS "\"links\": {\"gbps\": 8}"

static int load(const char *text, struct cluster *c, char *err)
{
    err[0] = '\0';
    return cluster_load_buffer(text, strlen(text), "F", c, err);
}

static void refused_with(int want, const char *text, const char *message)
{
    struct cluster c;
    char err[CLUSTER_ERROR_BYTES];
    int rc;

    memset(&c, 0x5a, sizeof(c));
    rc = load(text, &c, err);
    if (rc != want || strcmp(err, message) != 0) {
        printf("\n    got %d \"%s\"", rc, err);
        CU_FAIL("not as expected");
    }
    CU_ASSERT_EQUAL(c.name[0], 0x5a);
}

static void refused(const char *text, const char *message)
{
    refused_with(-EINVAL, text, message);
}

static void test_flops(void)
{
    struct cluster c;
    char err[CLUSTER_ERROR_BYTES];

    CU_ASSERT_EQUAL_FATAL(
        load("{" MODEL COST PREFILL NO_DECODE LINKS "}", &c, err), 0);
    /* The paper's unit values. */
    CU_ASSERT_EQUAL(cost_model_prefill_us(&c.cost, 8192, 0, NULL), 916260);
    CU_ASSERT_EQUAL(cost_model_prefill_us(&c.cost, 8192, 8192, NULL), 1198186);
    CU_ASSERT_EQUAL(cost_model_prefill_us(&c.cost, 131072, 0, NULL), 48491282);
    CU_ASSERT_DOUBLE_EQUAL(c.link_bytes_per_s, 1e9, 1);
    /* What is not said. */
    CU_ASSERT_STRING_EQUAL(c.order, "fifo");
    CU_ASSERT_EQUAL(c.step_tokens, 0);
    CU_ASSERT_EQUAL(c.max_waiting, 1023);
    CU_ASSERT_EQUAL(c.handover_us, 0);
    CU_ASSERT_EQUAL(c.pipeline_stages, 1);
    CU_ASSERT(c.prefix_cache && c.links_shared && c.layerwise);
    CU_ASSERT_FALSE(c.whole_prompt_reuse || c.mix_requests);
    CU_ASSERT_EQUAL(c.cache_at, CLUSTER_CACHE_AT_SERVICE);
    CU_ASSERT_EQUAL(c.decode_nodes, 0);
}

/* Chunk i costs 50 + i ms: 50 + 51 + 52 + 53 for four of them. */
static void test_chunks(void)
{
    struct cluster c;
    char err[CLUSTER_ERROR_BYTES];

    CU_ASSERT_EQUAL_FATAL(
        load("{" MODEL
             "\"cost\": {\"kind\": \"chunks\", \"chunk_tokens\": 512, "
             "\"first_ms\": 50, \"step_ms\": 1}," PREFILL NO_DECODE LINKS "}",
             &c, err),
        0);
    CU_ASSERT_EQUAL(cost_model_prefill_us(&c.cost, 512, 0, NULL), 50000);
    CU_ASSERT_EQUAL(cost_model_prefill_us(&c.cost, 2048, 0, NULL), 206000);
    CU_ASSERT_EQUAL(cost_model_prefill_us(&c.cost, 1024, 1024, NULL), 105000);
}

static void test_decode_and_coupled(void)
{
    struct cluster c;
    char err[CLUSTER_ERROR_BYTES];
    char name[16];

    CU_ASSERT_EQUAL_FATAL(
        load("{" MODEL POLYNOMIAL PREFILL DECODE LINKS "}", &c, err), 0);
    CU_ASSERT_EQUAL(cost_model_decode_step_us(&c.cost, 2, 10, NULL), 87);
    CU_ASSERT_EQUAL(cluster_nodes(&c), 5);
    cluster_node_name(&c, 1, name, sizeof(name));
    CU_ASSERT_STRING_EQUAL(name, "prefill-1");
    cluster_node_name(&c, 4, name, sizeof(name));
    CU_ASSERT_STRING_EQUAL(name, "decode-2");

    CU_ASSERT_EQUAL_FATAL(load("{" MODEL POLYNOMIAL COUPLED LINKS "}", &c, err),
                          0);
    CU_ASSERT_EQUAL(c.coupled_nodes, 5);
    CU_ASSERT_EQUAL(c.prefill_nodes + c.decode_nodes, 0);
    CU_ASSERT(c.mix_requests && !c.prefix_cache);
    cluster_node_name(&c, 4, name, sizeof(name));
    CU_ASSERT_STRING_EQUAL(name, "coupled-4");

    CU_ASSERT_EQUAL_FATAL(
        load("{" MODEL POLYNOMIAL PAIRED(2, 1) LINKS "}", &c, err), 0);
    CU_ASSERT(c.pair_prefills == 2 && c.pair_decodes == 1);
    CU_ASSERT(c.pair_decodes_alone);
    cluster_node_name(&c, 1, name, sizeof(name));
    CU_ASSERT_STRING_EQUAL(name, "coupled-1");
    cluster_node_name(&c, 3, name, sizeof(name));
    CU_ASSERT_STRING_EQUAL(name, "prefill-3");
    cluster_node_name(&c, 4, name, sizeof(name));
    CU_ASSERT_STRING_EQUAL(name, "decode-4");

    /* Weights of 1 GB at half of 2 GB/s are a second; 327,680 bytes of KV
     * 328 us; a token's flops 80 * 22 * 8192^2 / 1.248e15. */
    CU_ASSERT_EQUAL_FATAL(
        load("{" MODEL
             "\"cost\": {\"kind\": \"flops\", \"d_model\": 8192, \"a\": 4, "
             "\"b\": 22, \"flops_per_s\": 2.496e15, \"mfu\": 0.5, "
             "\"decode\": {\"weight_bytes\": 1e9, \"memory_bytes_per_s\": 2e9,"
             " \"memory_use\": 0.5, \"step_ms\": 1}}," PREFILL DECODE LINKS "}",
             &c, err),
        0);
    CU_ASSERT_DOUBLE_EQUAL(c.cost.decode[0], 1001000, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(c.cost.decode[1], 94.64070564102563, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(c.cost.decode[2], 327.68, 1e-9);
}

static void test_errors(void)
{
    refused("", "F: is empty: must be an object, {} at least");
    refused("[]", "F: []: must be an object");
    refused("{}", "F: format: missing: must be \"conductor-cluster\"");
    refused("{" MODEL COST PREFILL NO_DECODE LINKS ", \"nodes\": 3}",
            "F: nodes: no such field");
    refused(
        "{" MODEL COST
        "\"prefill\": {\"nodes\": 0, \"device\": {\"tokens\": 9000}}," NO_DECODE
            LINKS "}",
        "F: prefill.nodes: 0: must be an integer of 1 to 8192");
    refused("{" MODEL COST "\"prefill\": {\"nodes\": 2, \"order\": \"lifo\", "
            "\"device\": {\"tokens\": 9000}}," NO_DECODE LINKS "}",
            "F: c: prefill.order: \"lifo\" is not one of fifo "
            "fifo_strict uncached_first shortest_first "
            "shortest_first_yield");
    refused(
        "{" MODEL COST "\"prefill\": {\"nodes\": 2, \"order\": "
        "\"shortest_first_yield\", \"device\": {\"tokens\": 9000}}," NO_DECODE
            LINKS "}",
        "F: c: prefill.order: \"shortest_first_yield\" needs step_tokens: "
        "prefills are interrupted between steps");
    refused("{" MODEL POLYNOMIAL "\"coupled\": {\"nodes\": 2, "
            "\"order\": \"shortest_first_yield\", \"step_tokens\": 512, "
            "\"kv_tokens\": 9000, \"max_batch\": 2}," LINKS "}",
            "F: c: coupled.order: \"shortest_first_yield\": coupled nodes "
            "interrupt no prefill");
    refused("{" MODEL COST "\"prefill\": {\"nodes\": 2, \"device\": "
            "{\"tokens\": \"many\"}}," NO_DECODE LINKS "}",
            "F: prefill.device.tokens: \"many\": must be an integer of 1 to "
            "1000000000000");
    refused(
        "{" MODEL COST
        "\"prefill\": {\"nodes\": 2, \"device\": {\"tokens\": 500}}," NO_DECODE
            LINKS "}",
        "F: c: prefill.device.tokens: less than a block");
    refused("{" MODEL "\"cost\": {\"kind\": \"guess\"}," PREFILL NO_DECODE LINKS
            "}",
            "F: cost.kind: \"guess\": must be \"flops\", \"polynomial\" or "
            "\"chunks\"");
    refused(
        "{" MODEL
        "\"cost\": {\"kind\": \"polynomial\", \"prefill_us\": [1, 2]}," PREFILL
            NO_DECODE LINKS "}",
        "F: cost.prefill_us: [1,2]: must be an array of 4 numbers");
    refused("{" MODEL "\"cost\": {\"kind\": \"polynomial\", "
            "\"prefill_us\": [0, 1, -1, 0]}," PREFILL NO_DECODE LINKS "}",
            "F: cost: prefill term 2: -1 us: must be 0 to 1e+09");
    refused(
        "{" MODEL "\"cost\": {\"kind\": \"polynomial\", "
        "\"prefill_us\": [0, 1, 0, 0], \"decode_us\": [1e300, 0, 0]}," PREFILL
            NO_DECODE LINKS "}",
        "F: cost: decode term 0: 1e+300 us: must be 0 to 1e+09");
    refused("{" MODEL "\"cost\": {\"kind\": \"flops\", \"d_model\": 8192, "
            "\"a\": 4, \"b\": 22, \"flops_per_s\": 1, \"mfu\": 0.5}," PREFILL
                NO_DECODE LINKS "}",
            "F: cost.flops_per_s: 1: must be a number of 1e+06 to 1e+24");
    refused("{" MODEL COST PREFILL NO_DECODE "\"links\": {\"gbps\": 1e-12}}",
            "F: c: links.gbps: 1e-12: must be 0 or at least 1e-06");
    refused_with(
        -ENOENT,
        "{" MODEL
        "\"cost\": {\"kind\": \"polynomial\", \"file\": \"none.json\"}," PREFILL
            NO_DECODE LINKS "}",
        "F: cost.file: cost model none.json: No such file or directory");
    refused("{" MODEL COST PREFILL DECODE LINKS "}",
            "F: c: nodes that decode need a decode cost");
    refused("{" MODEL POLYNOMIAL PREFILL COUPLED LINKS "}",
            "F: coupled: does not go with \"prefill\" and \"decode\"");
    refused(
        "{" MODEL POLYNOMIAL PAIRED(5, 1) LINKS "}",
        "F: c: coupled.pairs: 5 + 1 of 5 nodes: must have both kinds, or none");
    refused("{" MODEL POLYNOMIAL PAIRED(1, 1) "\"links\": {\"gbps\": 0}}",
            "F: c: links.gbps: 0, but pairs push KV");
    refused("{" MODEL POLYNOMIAL PREFILL DECODE "\"links\": {\"gbps\": 0}}",
            "F: c: links.gbps: 0, but KV has to reach decode nodes");
    refused("{" MODEL COST PREFILL NO_DECODE LINKS
            ", \"conventions\": {\"cache_at\": \"noon\"}}",
            "F: conventions.cache_at: \"noon\": must be \"service\" or "
            "\"dispatch\"");
    refused("{" MODEL COST
            "\"prefill\": {\"nodes\": 2, \"mix_requests\": true, "
            "\"device\": {\"tokens\": 9000}}," NO_DECODE LINKS "}",
            "F: c: mix_requests needs step_tokens");
}

static int override(struct cluster *c, int64_t prefill, int64_t decode,
                    double link_gbps, char *err)
{
    return cluster_override(
        c, &(struct cluster_changes){prefill, decode, link_gbps, -1}, err);
}

#define HEAD "{" MODEL POLYNOMIAL PREFILL DECODE LINKS ", "

/* How nodes differ, and reality from the predictions. */
static void test_reality(void)
{
    struct cluster c;
    struct cluster_node n;
    char err[CLUSTER_ERROR_BYTES];

    CU_ASSERT_EQUAL_FATAL(
        load("{" MODEL POLYNOMIAL PREFILL DECODE LINKS "}", &c, err), 0);
    CU_ASSERT_EQUAL(c.n_groups + c.reality.n_speeds, 0);
    CU_ASSERT_EQUAL(c.reality.prefill_error_sigma, 0.0);
    CU_ASSERT_FALSE(c.reality.first_token_at_decode);
    CU_ASSERT_EQUAL_FATAL(
        load("{" MODEL POLYNOMIAL
             "\"prefill\": {\"nodes\": 3, \"device\": {\"tokens\": 9000},"
             " \"groups\": [{\"nodes\": 1}, {\"nodes\": 1, "
             "\"prefill_us\": [9, 8, 7, 6], \"disk\": {\"tokens\": 5000, "
             "\"gbytes_per_s\": 2}}]},"
             "\"decode\": {\"nodes\": 2, \"kv_tokens\": 10, \"max_batch\":"
             " 4, \"groups\": [{\"nodes\": 1, \"kv_tokens\": 20, "
             "\"decode_us\": [1, 2, 3], \"max_batch\": 5}]}," LINKS
             ", \"node_speed\": [1, 1, 1, 2], \"max_tokens\": {\"times\": 2},"
             " \"prefill_error_sigma\": 0.3, \"decode_error_sigma\": 0.1,"
             " \"first_token\": \"decode\", \"speeds_known\": false}",
             &c, err),
        0);
    cluster_node_at(&c, 0, &n);
    CU_ASSERT(n.cost.prefill[0] == 1 && n.cost.decode[0] == 5);
    CU_ASSERT_EQUAL(n.tiers[TIER_DISK].capacity_tokens, 0);
    cluster_node_at(&c, 1, &n);
    CU_ASSERT(n.cost.prefill[0] == 9 && n.cost.prefill[3] == 6);
    CU_ASSERT_EQUAL(n.tiers[TIER_DEVICE].capacity_tokens, 9000);
    CU_ASSERT_EQUAL(n.tiers[TIER_DISK].capacity_tokens, 5000);
    cluster_node_at(&c, 3, &n);
    CU_ASSERT(n.cost.decode[0] == 0.5 && n.cost.decode[2] == 1.5);
    CU_ASSERT_EQUAL(n.decode_kv_tokens, 20);
    CU_ASSERT_EQUAL(n.decode_max_batch, 5);
    cluster_node_at(&c, 4, &n);
    CU_ASSERT(n.cost.decode[0] == 5 && n.decode_kv_tokens == 10);
    CU_ASSERT_EQUAL(cluster_max_tokens(&c, 7), 14);
    CU_ASSERT_EQUAL(c.reality.prefill_error_sigma, 0.3);
    CU_ASSERT_EQUAL(c.reality.decode_error_sigma, 0.1);
    CU_ASSERT(c.reality.first_token_at_decode);
    CU_ASSERT(c.reality.speeds_unknown);
    /* There must be somebody to send it. */
    CU_ASSERT_EQUAL(override(&c, -1, 0, -1, err), -EINVAL);

    refused(HEAD "\"prefill_error_sigma\": -1}",
            "F: prefill_error_sigma: -1: must be a number of 0 to 2");
    refused(HEAD "\"decode_error_sigma\": \"x\"}",
            "F: decode_error_sigma: \"x\": must be a number of 0 to 2");
    refused(HEAD "\"node_speed\": [1, 1, 1, 1, 1, 1]}",
            "F: node_speed: [1,1,1,1,1,1]: must be an array of 1 to 5 numbers "
            "of 0.01 to "
            "100");
    refused(
        HEAD "\"node_speed\": [1, 0]}",
        "F: node_speed: [1,0]: must be an array of 1 to 5 numbers of 0.01 to "
        "100");
    refused(HEAD "\"node_speed\": [\"fast\"]}",
            "F: node_speed[0]: \"fast\": must be a number");
    refused(HEAD "\"speeds_known\": 1}",
            "F: speeds_known: 1: must be true or false");
    refused(HEAD "\"max_tokens\": 4096}",
            "F: max_tokens: 4096: must be \"exact\", {\"fixed\": N} or "
            "{\"times\": X}");
    refused(HEAD "\"max_tokens\": {\"times\": 0.5}}",
            "F: max_tokens.times: 0.5: must be a number of 1 to 1e+06");
    refused(HEAD "\"first_token\": \"end\"}",
            "F: first_token: \"end\": must be \"prefill\" or \"decode\"");
    refused("{" MODEL POLYNOMIAL PREFILL NO_DECODE LINKS
            ", \"first_token\": \"decode\"}",
            "F: c: first_token: \"decode\", but there are no decode nodes");
}

#define GROUPS(text)                                               \
    "{" MODEL POLYNOMIAL                                           \
    "\"prefill\": {\"nodes\": 2, \"device\": {\"tokens\": 9000}, " \
    "\"groups\": " text "}," NO_DECODE LINKS "}"

static void test_bad_groups(void)
{
    refused(GROUPS("3"), "F: prefill.groups: 3: must be an array of objects");
    refused(GROUPS("[7]"), "F: prefill.groups[0]: 7: must be an object");
    refused(GROUPS("[{\"nodes\": 3}]"),
            "F: prefill.groups: 3 nodes, but there are 2");
    refused(GROUPS("[{\"nodes\": 1, \"kv_tokens\": 3}]"),
            "F: prefill.groups[0].kv_tokens: no such field");
    refused(GROUPS("[{\"nodes\": 1}, {\"prefill_us\": [1]}]"),
            "F: prefill.groups[1].nodes: missing: must be an integer of 1 to "
            "8192");
    refused(GROUPS("[{\"nodes\": 1, \"prefill_us\": [1, 1, 1, -2]}]"),
            "F: prefill.groups[0].prefill_us: term 3: -2 us: must be 0 to "
            "1e+09");
    refused(GROUPS("[{\"nodes\": 1, \"disk\": {\"tokens\": 0}}]"),
            "F: prefill.groups[0].disk.tokens: 0: must be an integer of 1 to "
            "1000000000000");
    refused(GROUPS("[{\"nodes\": 1, \"device\": {\"tokens\": 5}}]"),
            "F: c: prefill.groups: device: less than a block");
}

static void test_override(void)
{
    struct cluster c;
    char err[CLUSTER_ERROR_BYTES];

    CU_ASSERT_EQUAL_FATAL(
        load("{" MODEL POLYNOMIAL PREFILL DECODE LINKS "}", &c, err), 0);
    CU_ASSERT_EQUAL(override(&c, -1, -1, -1, err), 0);
    CU_ASSERT_EQUAL(cluster_nodes(&c), 5);
    CU_ASSERT_EQUAL(override(&c, 7, 0, 16, err), 0);
    CU_ASSERT_EQUAL(c.prefill_nodes, 7);
    CU_ASSERT_EQUAL(c.decode_nodes, 0);
    CU_ASSERT_DOUBLE_EQUAL(c.link_bytes_per_s, 2e9, 1);
    CU_ASSERT_EQUAL(override(&c, 0, -1, -1, err), -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "c: no node prefills");
    CU_ASSERT_EQUAL(c.prefill_nodes, 7);
    CU_ASSERT_EQUAL(override(&c, 8000, 8000, -1, err), -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "c: more than 8192 nodes");
}

/* What the file says of single nodes stays theirs, or it is refused. */
static void test_override_unlike(void)
{
    struct cluster c;
    char err[CLUSTER_ERROR_BYTES];

    /* Of both prefill nodes and the first two decode nodes. */
    CU_ASSERT_EQUAL_FATAL(load(HEAD "\"node_speed\": [1, 1, 0.5, 2]}", &c, err),
                          0);
    CU_ASSERT_EQUAL(override(&c, -1, 2, -1, err), 0);
    CU_ASSERT_EQUAL(override(&c, -1, 3, -1, err), 0);
    CU_ASSERT_EQUAL(override(&c, 4, -1, -1, err), -EINVAL);
    CU_ASSERT_STRING_EQUAL(
        err, "c: node_speed: its 4 numbers are for the file's 2 + 3 nodes, and "
             "do not fit 4 + 3: change the file");
    CU_ASSERT_EQUAL(override(&c, 1, -1, -1, err), -EINVAL);
    CU_ASSERT_EQUAL(override(&c, -1, 1, -1, err), -EINVAL);
    CU_ASSERT_EQUAL(cluster_nodes(&c), 5);
    CU_ASSERT_EQUAL_FATAL(load(HEAD "\"node_speed\": [1, 0.5]}", &c, err), 0);
    CU_ASSERT_EQUAL(override(&c, 1, -1, -1, err), -EINVAL);
    CU_ASSERT_EQUAL(override(&c, 2, 7, -1, err), 0);
    CU_ASSERT_EQUAL(override(&c, 9, -1, -1, err), 0);

    CU_ASSERT_EQUAL_FATAL(
        load("{" MODEL POLYNOMIAL
             "\"prefill\": {\"nodes\": 3, \"device\": {\"tokens\": 9000},"
             " \"groups\": [{\"nodes\": 1}, {\"nodes\": 1}]},"
             "\"decode\": {\"nodes\": 2, \"kv_tokens\": 10, \"max_batch\":"
             " 4, \"groups\": [{\"nodes\": 2}]}," LINKS "}",
             &c, err),
        0);
    CU_ASSERT_EQUAL(override(&c, 2, 3, -1, err), 0);
    CU_ASSERT_EQUAL(override(&c, 1, -1, -1, err), -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "c: prefill.groups: 2 nodes, but there are 1");
    CU_ASSERT_EQUAL(override(&c, -1, 1, -1, err), -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "c: decode.groups: 2 nodes, but there are 1");
}

/* The files of the repository; the folder comes from meson. */
static void test_files(void)
{
    static const char *const names[] = {"reference-16", "paper-16",
                                        "paper-16-coupled"};
    const char *folder = getenv("CONDUCTOR_CLUSTERS");
    char err[CLUSTER_ERROR_BYTES];
    char path[1024];
    struct cluster c;

    CU_ASSERT_EQUAL(cluster_load_file("/nonexistent.json", &c, err), -ENOENT);
    CU_ASSERT_STRING_EQUAL(err, "/nonexistent.json: No such file or directory");
    for (size_t i = 0; folder && i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s.json", folder, names[i]);
        if (cluster_load_file(path, &c, err) != 0) {
            printf("\n    %s", err);
            CU_FAIL("does not load");
            continue;
        }
        CU_ASSERT_STRING_EQUAL(c.name, names[i]);
        CU_ASSERT_EQUAL(cluster_nodes(&c), 16);
    }
}

static const struct suite_test tests[] = {
    {"flops", test_flops},
    {"chunks", test_chunks},
    {"decode and coupled", test_decode_and_coupled},
    {"errors", test_errors},
    {"reality", test_reality},
    {"bad groups", test_bad_groups},
    {"override", test_override},
    {"override of unlike nodes", test_override_unlike},
    {"files", test_files},
};
SUITE("sim_cluster", tests)
