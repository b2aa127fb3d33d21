/* The configuration: every option round-trips, every mistake is named. */
#include <CUnit/Basic.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/config/config.h"
#include "conductor/policy_text.h"

static int parse(struct config *c, const char *text, char err[CONFIG_ERROR_MAX])
{
    err[0] = '\0';
    return config_parse(c, text, strlen(text), err);
}

static void test_defaults_round_trip(void)
{
    struct config a, b;
    char err[CONFIG_ERROR_MAX], *text = NULL;
    size_t len = 0;

    config_defaults(&a);
    CU_ASSERT_STRING_EQUAL(a.listen, "127.0.0.1:8080");
    CU_ASSERT_EQUAL(a.block_tokens, 256);
    CU_ASSERT_EQUAL(a.max_retries, 3);
    CU_ASSERT_STRING_EQUAL(a.queue_order, "uncached_first");
    a.block_tokens = 32;
    snprintf(a.policy_options, sizeof(a.policy_options), "seed=3");
    a.kvcache_balancing_threshold = 1.1;
    snprintf(a.policy, sizeof(a.policy), "random");
    FILE *f = open_memstream(&text, &len);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(config_dump(&a, f), 0);
    fclose(f);
    memset(&b, 0, sizeof(b));
    CU_ASSERT_EQUAL(config_parse(&b, text, len, err), 0);
    CU_ASSERT_EQUAL(memcmp(&a, &b, sizeof(a)), 0);
    free(text);
}

/* Words, numbers and texts of engines come back as they were. */
static void test_engines_round_trip(void)
{
    static const char given[] =
        "{\"engines\": [{\"name\": \"a\", \"url\": \"http://h:1/x\", "
        "\"model\": \"m\", \"kind\": \"vllm\", \"dns\": true, "
        "\"index\": \"events\", \"kv_events\": \"tcp://h:2\", "
        "\"kv_blocks\": 7}, {\"name\": \"b\", \"url\": \"http://h\", "
        "\"model\": \"m\"}]}";
    char err[CONFIG_ERROR_MAX], *text = NULL;
    struct config a, b;
    size_t len = 0;

    CU_ASSERT_EQUAL_FATAL(parse(&a, given, err), 0);
    CU_ASSERT_EQUAL(a.engines.n, 2);
    CU_ASSERT_STRING_EQUAL(a.worker_listen, "");
    FILE *f = open_memstream(&text, &len);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(config_dump(&a, f), 0);
    fclose(f);
    CU_ASSERT_EQUAL_FATAL(config_parse(&b, text, len, err), 0);
    for (size_t i = 0; i < 2; i++)
        CU_ASSERT(engine_config_equal(&a.engines.at[i], &b.engines.at[i]));
    CU_ASSERT(!engine_config_equal(&a.engines.at[0], &a.engines.at[1]));
    b.engines.at[0].dns = false;
    CU_ASSERT(!engine_config_equal(&a.engines.at[0], &b.engines.at[0]));
    config_fini(&a);
    config_fini(&b);
    free(text);
}

static void test_mistakes(void)
{
    static const struct {
        const char *text;
        const char *names; /* what the message must hold */
    } cases[] = {
        {"", "is empty: must be an object"},
        {"[]", "configuration: []: must be an object"},
        {"\xef\xbb\xbf\r\n", "is empty: must be an object"},
        {"\xef\xbb\xbf\xef\xbb\xbf{}", "line 1, column 1: "},
        {"{\"seed\": NaN}",
         "line 1, column 12: expected a number: JSON has no NaN and no Inf"},
        {"{\"seed\": [-Infinity]}", "column 11: expected a number: JSON has"},
        {"{\"seed\": nul}", "column 12: invalid token near 'nul'"},
        {"{\"bolck_tokens\": 16}", "bolck_tokens: no such option"},
        {"{\"index_max_blocks\": 4194304}",
         "index_max_blocks: no such option (index_mib replaces it"},
        {"{\"block_tokens\": 15}",
         "block_tokens: 15: must be a whole number from 16 to 512, a "
         "multiple of 16"},
        {"{\"block_tokens\": 17}",
         "block_tokens: 17: must be a whole number from 16 to 512, a "
         "multiple of 16"},
        {"{\"model\": \"\"}", "model: \"\": must be 1 to 63 bytes long"},
        {"{\"block_tokens\": 1e9}",
         "block_tokens: 1e9: must be a whole number"},
        {"{\"block_tokens\": \"16\"}",
         "block_tokens: \"16\": must be a whole number"},
        {"{\"block_tokens\": true}", "block_tokens: true: must be a whole"},
        {"{\"block_tokens\": [1, {}]}", "block_tokens: [1,{}]: must be a"},
        {"{\"policy\": \"planx\"}",
         "policy: \"planx\": is not one of random round_robin"},
        {"{\"queue_order\": \"lifo\"}", "queue_order: \"lifo\": is not one of "
                                        "fifo fifo_strict uncached_first"},
        {"{\"log_level\": \"loud\"}",
         "log_level: \"loud\": is not one of error warn info debug"},
        {"{\"block_tokens\": 16, \"block_tokens\": 17}", "duplicate"},
        {"{\"listen\": \"8080\"}", "listen: \"8080\": must be HOST:PORT"},
        {"{\"listen\": \"a:99999\"}",
         "must be HOST:PORT with a port from 0 to 65535"},
        {"{\"listen\": \"::1:80\"}", "must be HOST:PORT"},
        {"{\"listen\": 8080}", "listen: 8080: must be a string"},
        {"{\"kvcache_balancing_threshold\": 0.5}",
         "0.5: must be a number from 1 to 1000000"},
        {"{\"slo_ttft_ms\": -1}",
         "slo_ttft_ms: -1: must be a whole number from 0"},
        {"{\"cache_salt_header\": \"content-length\"}",
         "cache_salt_header: \"content-length\": must be the name of"},
        {"{\"cache_salt_header\": \"authorization\"}",
         "cache_salt_header: \"authorization\""},
        {"{\"priority_header\": \"te\"}", "priority_header: \"te\""},
        {"{\"priority_header\": \"x-request-id\"}",
         "priority_header: \"x-request-id\""},
        {"{\"listen\": null}", "listen: null: must be a string"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct config c, before;
        char err[CONFIG_ERROR_MAX];

        config_defaults(&c);
        c.block_tokens = 77;
        before = c;
        CU_ASSERT_TRUE(parse(&c, cases[i].text, err) < 0);
        CU_ASSERT_PTR_NOT_NULL(strstr(err, cases[i].names));
        if (!strstr(err, cases[i].names))
            printf("\n%s: \"%s\" lacks \"%s\"", cases[i].text, err,
                   cases[i].names);
        CU_ASSERT_EQUAL(memcmp(&c, &before, sizeof(c)), 0);
    }
}

static void test_long_string(void)
{
    struct config c;
    char err[CONFIG_ERROR_MAX], value[CONFIG_STRING_MAX + 1];

    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    config_defaults(&c);
    CU_ASSERT_EQUAL(config_set(&c, "cost_model", value, err), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, "must be 0 to 255 bytes long"));
    value[CONFIG_STRING_MAX - 1] = '\0';
    CU_ASSERT_EQUAL(config_set(&c, "cost_model", value, err), 0);
    CU_ASSERT_EQUAL(config_set(&c, "model", value, err), -EINVAL);
    value[63] = '\0'; /* what HELLO can say */
    CU_ASSERT_EQUAL(config_set(&c, "model", value, err), 0);
}

static void test_set(void)
{
    struct config c;
    char err[CONFIG_ERROR_MAX];

    config_defaults(&c);
    CU_ASSERT_EQUAL(config_set(&c, "slo_ttft_ms", "250", err), 0);
    CU_ASSERT_EQUAL(c.slo_ttft_ms, 250);
    CU_ASSERT_EQUAL(config_set(&c, "slo_ttft_ms", "1e3", err), 0);
    CU_ASSERT_EQUAL(c.slo_ttft_ms, 1000);
    CU_ASSERT_EQUAL(config_set(&c, "slo_ttft_ms", "250", err), 0);
    CU_ASSERT_EQUAL(config_set(&c, "slo_ttft_ms", "2.5", err), -EINVAL);
    CU_ASSERT_EQUAL(config_set(&c, "slo_ttft_ms", "nan", err), -EINVAL);
    CU_ASSERT_EQUAL(config_set(&c, "slo_ttft_ms", "", err), -EINVAL);
    CU_ASSERT_EQUAL(config_set(&c, "nothing", "1", err), -ENOENT);
    CU_ASSERT_EQUAL(c.slo_ttft_ms, 250);
}

static void test_policy_options(void)
{
    static const struct {
        const char *text;
        const char *names;
    } wrong[] = {
        {"{\"policy_options\": {\"seed\": 1}}",
         "policy_options: seed=1: no such option; policy plan has wait_price"},
        {"{\"policy_options\": {\"wait_price\": -2}}",
         "wait_price=-2 of policy plan: must be a number from 0 to 1000000"},
        {"{\"policy\": \"random\", \"policy_options\": {\"seed\": 1.5}}",
         "seed=1.5 of policy random: must be a whole number from 0 to 9e+15"},
        {"{\"policy\": \"least_loaded\", \"policy_options\": {\"a\": 1}}",
         "a=1: no such option; policy least_loaded has none"},
    };
    struct config c;
    char err[CONFIG_ERROR_MAX];
    double values[POLICY_OPTIONS_MAX];
    const struct schedule_policy *plan = schedule_policy_by_name("plan");
    struct policy_settings settings = {.n = 0};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CU_ASSERT_EQUAL_FATAL(parse(&c, wrong[i].text, err), 0);
        CU_ASSERT_TRUE(config_check(&c, err) < 0);
        CU_ASSERT_PTR_NOT_NULL(strstr(err, wrong[i].names));
        if (!strstr(err, wrong[i].names))
            printf("\n%s: \"%s\"", wrong[i].text, err);
    }
    CU_ASSERT_TRUE(parse(&c, "{\"policy_options\": {\"seed\": \"1\"}}", err) <
                   0);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(err, "policy_options.seed: \"1\": must be a number"));

    /* The old names count where policy_options is silent. */
    config_defaults(&c);
    CU_ASSERT_EQUAL(config_set(&c, "policy", "random", err), 0);
    CU_ASSERT_EQUAL(config_set(&c, "seed", "5", err), 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(config_policy(&c, values));
    CU_ASSERT_EQUAL(values[0], 5);
    CU_ASSERT_EQUAL(config_policy_option(&c, "seed=6", err), 0);
    CU_ASSERT_EQUAL(config_policy_option(&c, "seed=7", err), 0);
    CU_ASSERT_TRUE(config_policy_option(&c, "seed", err) < 0);
    CU_ASSERT_EQUAL(config_check(&c, err), 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(config_policy(&c, values));
    CU_ASSERT_EQUAL(values[0], 7);

    /* A number that is too long is refused, not cut. */
    char longest[300];

    snprintf(longest, sizeof(longest), "seed=%0290d", 8);
    config_defaults(&c);
    CU_ASSERT_TRUE(config_policy_option(&c, longest, err) < 0);
    CU_ASSERT_STRING_EQUAL(c.policy_options, "");
    /* Whole names, as many as there is room for. */
    CU_ASSERT_EQUAL(policy_settings_add(&settings, "a=1", err, sizeof(err)), 0);
    for (size_t size = 40; size < sizeof(err); size += 200) {
        CU_ASSERT_EQUAL(policy_settings_check(&settings, &plan, 1, err, size),
                        -EINVAL);
        CU_ASSERT_TRUE(strlen(err) < size);
    }
    CU_ASSERT_EQUAL(policy_settings_check(&settings, &plan, 1, err, 60),
                    -EINVAL);
    CU_ASSERT_STRING_EQUAL(
        err, "a=1: no such option; policy plan has wait_price, ...");
}

static void test_options_together(void)
{
    struct config c;
    char err[CONFIG_ERROR_MAX];

    config_defaults(&c);
    CU_ASSERT_EQUAL(config_check(&c, err), 0);
    c.heartbeat_ms = 200;
    c.worker_timeout_ms = 400;
    CU_ASSERT_EQUAL(config_check(&c, err), 0);
    c.worker_timeout_ms = 399;
    CU_ASSERT_EQUAL(config_check(&c, err), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, "worker_timeout_ms: 399"));
    CU_ASSERT_PTR_NOT_NULL(strstr(err, "heartbeat_ms of 200"));
    config_defaults(&c);
    c.max_body_bytes = 2000000;
    c.max_body_total_bytes = 2000000;
    CU_ASSERT_EQUAL(config_check(&c, err), 0);
    c.max_body_total_bytes = 1999999;
    CU_ASSERT_EQUAL(config_check(&c, err), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, "max_body_total_bytes: 1999999"));
    config_defaults(&c);
    CU_ASSERT_EQUAL(config_set(&c, "cache_salt_header", "t", err), 0);
    CU_ASSERT_EQUAL(config_set(&c, "priority_header", "te-x", err), 0);
    CU_ASSERT_EQUAL(config_check(&c, err), 0);
    CU_ASSERT_EQUAL(config_set(&c, "priority_header", "t", err), 0);
    CU_ASSERT_EQUAL(config_check(&c, err), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, "priority_header: \"t\": must"));
    config_defaults(&c);
    CU_ASSERT_EQUAL(config_set(&c, "queue_order", "shortest_now_yield", err),
                    0);
    CU_ASSERT_EQUAL(config_check(&c, err), 0);
    c.pool = CONFIG_POOL_AGGREGATED;
    CU_ASSERT_EQUAL(config_check(&c, err), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(err, "queue_order: \"shortest_now_yield\": interrupts "
                    "prefills, which the aggregated pool does not"));
    c.pool = CONFIG_POOL_SPLIT;
    c.step_tokens = 0;
    CU_ASSERT_EQUAL(config_check(&c, err), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(err, "interrupts prefills between steps, and with step_tokens "
                    "0 a prompt is one step"));
}

/* Editors put it in front of a file. */
static void test_byte_order_mark(void)
{
    static const char text[] =
        "\xef\xbb\xbf{\"model\": \"marked\", \"policy\": "
        "\"random\"}";
    struct config c;
    char err[CONFIG_ERROR_MAX];

    CU_ASSERT_EQUAL_FATAL(config_parse(&c, text, sizeof(text) - 1, err), 0);
    CU_ASSERT_STRING_EQUAL(c.model, "marked");
    config_fini(&c);
}

static void test_file_is_named(void)
{
    struct config c;
    char err[CONFIG_ERROR_MAX];

    CU_ASSERT_TRUE(config_load(&c, "/no/such/file.json", err) < 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, "/no/such/file.json"));
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite s = CU_add_suite("config", NULL, NULL);
    CU_add_test(s, "engines round trip", test_engines_round_trip);
    CU_add_test(s, "a dump loads back", test_defaults_round_trip);
    CU_add_test(s, "mistakes are named and change nothing", test_mistakes);
    CU_add_test(s, "strings are bounded", test_long_string);
    CU_add_test(s, "one option from text", test_set);
    CU_add_test(s, "policy options", test_policy_options);
    CU_add_test(s, "options fit each other", test_options_together);
    CU_add_test(s, "a byte order mark is passed over", test_byte_order_mark);
    CU_add_test(s, "a missing file is named", test_file_is_named);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures ? 1 : 0;
}
