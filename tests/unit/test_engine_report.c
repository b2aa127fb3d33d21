/* What is read of an engine's metrics, cut at every byte. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "conductor/link/upstream/facts.h"
#include "conductor/link/upstream/model_list.h"
#include "conductor/link/upstream/report.h"
#include "tests/unit/suite.h"

static struct engine_report scan_of(const char *text, size_t cut, int64_t rank)
{
    struct report_scan s;

    report_begin(&s, rank);
    report_feed(&s, text, cut);
    report_feed(&s, text + cut, strlen(text) - cut);
    report_end(&s);
    return s.report;
}

static struct engine_report scan(const char *text, size_t cut)
{
    return scan_of(text, cut, -1);
}

static const char vllm[] =
    "# HELP process_start_time_seconds Start time\n"
    "process_start_time_seconds 1.79530890583e+09\n"
    "vllm:num_requests_running{engine=\"0\",model_name=\"a b\"} 3.0\n"
    "vllm:num_requests_running{engine=\"1\",model_name=\"}\\\" 9\"} 2.0\n"
    "vllm:num_requests_waiting_by_reason{reason=\"x\"} 77\n"
    "vllm:num_requests_waiting{engine=\"0\"} 4\n"
    "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25 1700000000\n"
    "vllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n"
    "vllm:cache_config_info{_block_size_resolved=\"True\",block_size=\"32\","
    "hash_block_size=\"None\",num_gpu_blocks=\"64\"} 1.0\n"
    "vllm:cache_config_info{block_size=\"32\",num_gpu_blocks=\"64\"} 1.0";

static void test_vllm(void)
{
    for (size_t cut = 0; cut < sizeof(vllm); cut++) {
        struct engine_report r = scan(vllm, cut);

        CU_ASSERT_DOUBLE_EQUAL(r.running, 5, 0);
        CU_ASSERT_DOUBLE_EQUAL(r.waiting, 4, 0);
        CU_ASSERT_DOUBLE_EQUAL(r.kv_usage_ratio, 0.5, 0);
        CU_ASSERT_DOUBLE_EQUAL(r.start_s, 1795308905.83, 1e-3);
        CU_ASSERT_EQUAL(r.block_tokens, 32);
        CU_ASSERT_EQUAL(r.kv_blocks, 128);
    }
}

/* One of two ranks; what names no rank counts for all. */
static void test_one_rank(void)
{
    static const char sglang[] = "sglang:num_pages{dp_rank=\"0\"} 60\n"
                                 "sglang:num_pages{a=\"x\",dp_rank=\"1\"} 64\n"
                                 "sglang:num_running_reqs 7\n";

    for (size_t cut = 0; cut < sizeof(vllm); cut++) {
        struct engine_report r = scan_of(vllm, cut, 1);

        CU_ASSERT_DOUBLE_EQUAL(r.running, 2, 0);
        CU_ASSERT_DOUBLE_EQUAL(r.waiting, -1, 0);
        CU_ASSERT_DOUBLE_EQUAL(r.kv_usage_ratio, 0.5, 0);
        CU_ASSERT_DOUBLE_EQUAL(r.start_s, 1795308905.83, 1e-3);
        r = scan_of(vllm, cut, 0);
        CU_ASSERT_DOUBLE_EQUAL(r.running, 3, 0);
        CU_ASSERT_DOUBLE_EQUAL(r.kv_usage_ratio, 0.25, 0);
    }
    CU_ASSERT_EQUAL(scan_of(sglang, 0, 1).kv_blocks, 64);
    CU_ASSERT_EQUAL(scan_of(sglang, 0, 0).kv_blocks, 60);
    CU_ASSERT_DOUBLE_EQUAL(scan_of(sglang, 0, 1).running, 7, 0);
}

static void test_others(void)
{
    struct engine_report r =
        scan("sglang:num_running_reqs{} 2\nsglang:token_usage 0.5\n"
             "sglang:cache_config_info{page_size=\"1\",num_pages=\"9000\"} 1\n"
             "llamacpp:requests_deferred 7\r\n",
             0);

    CU_ASSERT_DOUBLE_EQUAL(r.running, 2, 0);
    CU_ASSERT_DOUBLE_EQUAL(r.waiting, 7, 0);
    CU_ASSERT_EQUAL(r.block_tokens, 1);
    CU_ASSERT_EQUAL(r.kv_blocks, 9000);
    CU_ASSERT_DOUBLE_EQUAL(r.start_s, -1, 0);
}

/* Names of SGLang 0.5.23, two ranks; those of others beside them. */
static void test_pages(void)
{
    static const char told[] = "sglang:page_size{dp_rank=\"0\"} 32.0\n"
                               "sglang:num_pages{dp_rank=\"0\"} 64.0\n"
                               "sglang:num_pages{dp_rank=\"1\"} 64.0\n"
                               "sglang:num_pages{dp_rank=\"2\"} NaN\n";
    struct engine_report r = scan(told, 9);

    CU_ASSERT_EQUAL(r.block_tokens, 32);
    CU_ASSERT_EQUAL(r.kv_blocks, 128);
    r = scan("sglang:num_pages 7\n"
             "sglang:cache_config_info{page_size=\"1\",num_pages=\"9\"} 1\n"
             "sglang:num_pages 7\n",
             0);
    CU_ASSERT_EQUAL(r.kv_blocks, 9);
}

static void test_nonsense(void)
{
    static char longest[3 * REPORT_LINE_BYTES];
    static const char last[] = "\nvllm:num_requests_running 1\n";
    struct engine_report r = scan(
        "vllm:num_requests_running NaN\n"
        "vllm:num_requests_running -5\n"
        "vllm:num_requests_running 1e300\n"
        "vllm:num_requests_running{a=\"\n"
        "vllm:num_requests_running{a=\"b\"}5\n"
        "vllm:num_requests_running\n\n"
        "vllm:cache_config_info{block_size=\"None\",num_gpu_blocks=\"-3\"} "
        "1\n",
        3);

    CU_ASSERT_DOUBLE_EQUAL(r.running, -1, 0);
    CU_ASSERT_EQUAL(r.block_tokens, -1);
    CU_ASSERT_EQUAL(r.kv_blocks, -1);
    memset(longest, 'x', 2 * REPORT_LINE_BYTES);
    memcpy(longest + 2 * REPORT_LINE_BYTES, last, sizeof(last));
    r = scan(longest, 100);
    CU_ASSERT_DOUBLE_EQUAL(r.running, 1, 0);
}

static int read_list(const char *text, struct model_list *out)
{
    return model_list_read(text, strlen(text), NULL, out);
}

static const char cards[] =
    "{\"object\":\"list\",\"data\":["
    "{\"id\":\"sql\",\"root\":\"/l\",\"parent\":\"b\"},"
    "{\"id\":\"b\",\"root\":\"/m\",\"parent\":null,"
    "\"max_model_len\":1984},"
    "{\"id\":\"c\",\"root\":\"/m\",\"max_model_len\":7},"
    "{\"id\":\"c\",\"root\":\"/m\"},"
    "{\"id\":\"d\",\"root\":\"/other\"},"
    "{\"id\":\"e\",\"parent\":\"d\"},"
    "{\"id\":\"f\",\"parent\":\"c\"}, 7, {}]}";

static bool has(const char *text, const char *wanted)
{
    struct model_list list;

    CU_ASSERT_EQUAL_FATAL(
        model_list_read(text, strlen(text),
                        &(struct model_wanted){.name = wanted}, &list),
        0);
    CU_ASSERT_PTR_NULL(list.lacks);
    return list.has_wanted;
}

static void test_models(void)
{
    struct model_list list;

    CU_ASSERT_EQUAL_FATAL(read_list(cards, &list), 0);
    CU_ASSERT_STRING_EQUAL(list.model, "b");
    CU_ASSERT_EQUAL_FATAL(list.aliases.n, 1);
    CU_ASSERT_STRING_EQUAL(engine_names_at(&list.aliases, 0), "c");
    CU_ASSERT_EQUAL_FATAL(list.adapters.n, 2);
    CU_ASSERT_STRING_EQUAL(engine_names_at(&list.adapters, 0), "sql");
    CU_ASSERT_STRING_EQUAL(engine_names_at(&list.adapters, 1), "f");
    CU_ASSERT_EQUAL(list.n_dropped, 0);
    CU_ASSERT_FALSE(list.has_wanted);
    for (const char *name = "bcdef"; *name; name++)
        CU_ASSERT_TRUE(has(cards, (const char[]){*name, '\0'}));
    CU_ASSERT_TRUE(has(cards, "sql"));
    CU_ASSERT_FALSE(has(cards, "x"));
    CU_ASSERT_FALSE(has(cards, ""));
    CU_ASSERT_EQUAL(model_list_window(&list, "b"), 1984);
    CU_ASSERT_EQUAL(model_list_window(&list, "c"), 1984);
    CU_ASSERT_EQUAL(model_list_window(&list, "d"), 0);
}

static void test_names_that_are_not_listed(void)
{
    struct engine_names few = {0}, more = {0}, none = {0};
    struct model_list list;
    const struct {
        const struct engine_names *aliases, *adapters;
        const char *lacks;
    } cases[] = {{&few, &few, NULL}, {&none, &none, NULL}, {&more, &few, "x"},
                 {&few, &more, "x"}, {&none, &more, "x"},  {NULL, &more, "x"},
                 {&more, NULL, "x"}};

    CU_ASSERT_TRUE_FATAL(engine_names_add(&few, "f"));
    CU_ASSERT_TRUE_FATAL(engine_names_add(&few, "d"));
    more = few;
    CU_ASSERT_TRUE_FATAL(engine_names_add(&more, "x"));
    CU_ASSERT_TRUE_FATAL(engine_names_add(&more, "y"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CU_ASSERT_EQUAL_FATAL(
            model_list_read(
                cards, strlen(cards),
                &(struct model_wanted){.aliases = cases[i].aliases,
                                       .adapters = cases[i].adapters},
                &list),
            0);
        CU_ASSERT_FALSE(list.has_wanted);
        if (cases[i].lacks)
            CU_ASSERT_STRING_EQUAL(list.lacks, cases[i].lacks)
        else
            CU_ASSERT_PTR_NULL(list.lacks)
    }
}

static void test_no_models(void)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{\"data\":7}",
        "{\"data\":[{}]}",
        "{\"data\":[{\"id\":\"a\\n\"}]}",
        "{\"data\":[{\"id\":\"\"}]}",
        "{\"data\":[{\"id\":\"a\",\"parent\":\"b\"}]}"};
    struct model_list list = {.model = "untouched"};
    char many[8192] = "{\"data\":[{\"id\":\"m\",\"root\":\"r\"}";

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CU_ASSERT_EQUAL(read_list(bad[i], &list), -EINVAL);
    CU_ASSERT_STRING_EQUAL(list.model, "untouched");
    CU_ASSERT_EQUAL(read_list("{\"data\":[]}", &list), 0);
    CU_ASSERT_STRING_EQUAL(list.model, "");
    CU_ASSERT_EQUAL(
        model_list_read(many, MODEL_LIST_BYTES_MAX + 1, NULL, &list), -E2BIG);
    for (int i = 0; i < 2 * ENGINE_NAMES_MAX; i++)
        snprintf(many + strlen(many), 64, ",{\"id\":\"a%d\",\"root\":\"r\"}",
                 i);
    snprintf(many + strlen(many), 8, "]}");
    CU_ASSERT_EQUAL(read_list(many, &list), 0);
    CU_ASSERT_EQUAL(list.aliases.n, ENGINE_NAMES_MAX);
    CU_ASSERT_EQUAL(list.n_dropped, ENGINE_NAMES_MAX);
    CU_ASSERT_TRUE(has(many, "a63"));
}

/* Reads what a server tells of itself; `host` as in the engine's URL. */
static struct engine_config facts_of(const char *host, const char *owner,
                                     const char *server)
{
    struct engine_config entry = {.kind = ENGINE_AUTO, .dp_rank = -1};
    struct engine_facts facts;
    char models[128];

    snprintf(models, sizeof(models),
             "{\"data\": [{\"id\": \"m\", \"owned_by\": %s}]}", owner);
    facts_begin(&facts);
    facts_take_models(&facts, models, strlen(models));
    facts_take_server(&facts, host, server, strlen(server));
    facts_apply(&facts, &entry);
    return entry;
}

#define EVENTS(members) \
    "{\"vllm_config\": {\"kv_events_config\": {" members "}}}"

static void test_facts(void)
{
    struct engine_config e =
        facts_of("10.0.0.1", "\"vllm\"",
                 "{\"vllm_config\": {\"parallel_config\": "
                 "{\"data_parallel_size\": 4}, \"kv_events_config\": "
                 "{\"enable_kv_cache_events\": true, \"publisher\": \"zmq\", "
                 "\"endpoint\": \"tcp://*:5600\", \"replay_endpoint\": "
                 "\"tcp://0.0.0.0:5700\", \"topic\": \"kv\"}}}");

    CU_ASSERT_EQUAL(e.kind, ENGINE_VLLM);
    CU_ASSERT_STRING_EQUAL(e.metrics_path, "/metrics");
    CU_ASSERT_STRING_EQUAL(e.tokenize_path, "/tokenize");
    CU_ASSERT_STRING_EQUAL(e.kv_events, "tcp://10.0.0.1:5600");
    CU_ASSERT_STRING_EQUAL(e.kv_replay, "tcp://10.0.0.1:5700");
    CU_ASSERT_STRING_EQUAL(e.kv_topic, "kv");
    CU_ASSERT_EQUAL(e.dp_ranks, 4);
    /* One API server for each rank, or for the ranks of its node. */
    e = facts_of("h", "\"vllm\"",
                 "{\"vllm_config\": {\"parallel_config\": "
                 "{\"data_parallel_size\": 8, \"data_parallel_rank\": 3, "
                 "\"data_parallel_size_local\": 1, "
                 "\"data_parallel_external_lb\": true}, "
                 "\"kv_events_config\": {\"publisher\": \"zmq\", "
                 "\"endpoint\": \"tcp://*:5600\", "
                 "\"replay_endpoint\": \"tcp://*:5700\"}}}");
    CU_ASSERT_STRING_EQUAL(e.kv_events, "tcp://h:5603");
    CU_ASSERT_STRING_EQUAL(e.kv_replay, "tcp://h:5703");
    CU_ASSERT_EQUAL(e.dp_ranks, 0);
    CU_ASSERT_EQUAL(e.dp_rank, -1);
    e = facts_of("h", "\"vllm\"",
                 "{\"vllm_config\": {\"parallel_config\": "
                 "{\"data_parallel_size\": 8, \"data_parallel_rank\": 4, "
                 "\"data_parallel_size_local\": 4, "
                 "\"data_parallel_hybrid_lb\": true}, "
                 "\"kv_events_config\": {\"publisher\": \"zmq\", "
                 "\"endpoint\": \"tcp://*:5600\"}}}");
    CU_ASSERT_STRING_EQUAL(e.kv_events, "tcp://h:5604");
    CU_ASSERT_EQUAL(e.dp_ranks, 4);
    /* Ports that overlap, or that are too few. */
    e = facts_of("h", "\"vllm\"",
                 "{\"vllm_config\": {\"parallel_config\": "
                 "{\"data_parallel_size\": 8}, \"kv_events_config\": "
                 "{\"publisher\": \"zmq\", \"endpoint\": \"tcp://*:5557\", "
                 "\"replay_endpoint\": \"tcp://*:5558\"}}}");
    CU_ASSERT_STRING_EQUAL(e.kv_events, "tcp://h:5557");
    CU_ASSERT_STRING_EQUAL(e.kv_replay, "");
    e = facts_of("h", "\"vllm\"",
                 "{\"vllm_config\": {\"parallel_config\": "
                 "{\"data_parallel_size\": 8}, \"kv_events_config\": "
                 "{\"publisher\": \"zmq\", \"endpoint\": "
                 "\"tcp://*:65530\"}}}");
    CU_ASSERT_STRING_EQUAL(e.kv_events, "");
    /* SGLang has its configuration as text, and the usual address. */
    e = facts_of("::1", "\"sglang\"",
                 "{\"version\": \"0.5\", \"kv_events_config\": "
                 "\"{\\\"publisher\\\": \\\"zmq\\\"}\"}");
    CU_ASSERT_EQUAL(e.kind, ENGINE_SGLANG);
    CU_ASSERT_STRING_EQUAL(e.kv_events, "tcp://[::1]:5557");
    CU_ASSERT_STRING_EQUAL(e.kv_replay, "");
}

/* With each of these answers the cache is predicted. */
static void test_no_events(void)
{
    static const char *const servers[] = {
        "",
        "[]",
        "{}",
        "{\"kv_events_config\": 5}",
        "{\"kv_events_config\": \"{\"}",
        EVENTS(""),
        EVENTS("\"publisher\": \"null\""),
        EVENTS("\"publisher\": \"zmq\", \"enable_kv_cache_events\": false"),
        /* The engine connects. */
        EVENTS("\"publisher\": \"zmq\", \"endpoint\": \"tcp://h:5557\""),
        EVENTS("\"publisher\": \"zmq\", \"endpoint\": \"ipc://*:1\""),
        EVENTS("\"publisher\": \"zmq\", \"endpoint\": \"tcp://*:0\""),
        EVENTS("\"publisher\": \"zmq\", \"endpoint\": \"tcp://*:x\""),
        EVENTS("\"publisher\": \"zmq\", \"endpoint\": \"tcp://*\""),
    };

    for (size_t i = 0; i < sizeof(servers) / sizeof(servers[0]); i++) {
        struct engine_config e = facts_of("h", "\"vllm\"", servers[i]);

        CU_ASSERT_STRING_EQUAL(e.kv_events, "");
        CU_ASSERT_STRING_EQUAL(e.kv_replay, "");
        CU_ASSERT_EQUAL(e.kind, ENGINE_VLLM);
    }
    CU_ASSERT_EQUAL(facts_of("h", "\"llamacpp\"", "").kind, ENGINE_OPENAI);
    CU_ASSERT_EQUAL(facts_of("h", "\"auto\"", "").kind, ENGINE_OPENAI);
    CU_ASSERT_EQUAL(facts_of("h", "7", "").kind, ENGINE_OPENAI);
    CU_ASSERT_STRING_EQUAL(facts_of("h", "7", "").metrics_path, "");
}

static const struct suite_test tests[] = {
    {"what a server tells of itself", test_facts},
    {"no KV events are told", test_no_events},
    {"models", test_models},
    {"names that are not listed", test_names_that_are_not_listed},
    {"lists of no model", test_no_models},
    {"vllm", test_vllm},
    {"one rank", test_one_rank},
    {"others", test_others},
    {"pages", test_pages},
    {"nonsense", test_nonsense},
};
SUITE("engine_report", tests)
