/* The configuration: every option round-trips, every mistake is named. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"
#include "conductor/config/config.h"
#include "conductor/config/policy_text.h"
#include "tests/unit/suite.h"

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
    CU_ASSERT_TRUE(b.worker_listen_given); /* a dump says all */
    b.worker_listen_given = false;
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

static long n_left; /* allocations of jansson before one fails */

static void *scarce(size_t bytes)
{
    return n_left-- == 0 ? NULL : malloc(bytes);
}

/* Whichever allocation fails, a dump is whole, or says that it is not. */
static void test_dump_without_memory(void)
{
    static const char given[] =
        "{\"worker_listen\": \"127.0.0.1:1\", \"cost_model\": \"c\", "
        "\"engines\": [{\"name\": \"a\", \"url\": \"http://h:1\", "
        "\"model\": \"m\", \"kind\": \"vllm\", \"aliases\": [\"n\", \"o\"], "
        "\"adapters\": [\"p\", \"q\"], \"kv_blocks\": 7}], "
        "\"stores\": [{\"name\": \"s\", \"model\": \"m\", "
        "\"kv_events\": \"tcp://h:2\", \"tokens_per_s\": 3}], "
        "\"worker_costs\": [{\"workers\": \"w*\", \"cost_model\": \"d\"}, "
        "{\"workers\": \"x\", \"cost_model\": \"e\"}]}";
    char err[CONFIG_ERROR_MAX], *whole = NULL;
    struct config c;

    CU_ASSERT_EQUAL_FATAL(parse(&c, given, err), 0);
    for (long failing = -1; failing < 0 || n_left < 0; failing++) {
        char *text = NULL;
        size_t len = 0;
        FILE *f = open_memstream(&text, &len);

        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        n_left = failing;
        json_set_alloc_funcs(scarce, free);
        int rc = config_dump(&c, f);
        json_set_alloc_funcs(malloc, free);
        fclose(f);
        if (failing < 0) {
            CU_ASSERT_EQUAL_FATAL(rc, 0);
            whole = text;
            continue;
        }
        if (rc == 0)
            CU_ASSERT_STRING_EQUAL(text, whole);
        free(text);
    }
    free(whole);
    config_fini(&c);
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
        {"{\"seed\": nano}", "invalid token near 'nano'"},
        {"{\"seed\": \"inf", "premature end of input"},
        {"{\"seed\": [-Infinity]}", "column 11: expected a number: JSON has"},
        {"{\"seed\": nul}", "column 12: invalid token near 'nul'"},
        {"{\"bolck_tokens\": 16}", "bolck_tokens: no such option"},
        {"{\"lend\": 0}",
         "lend: no such option (it is an option of the policy: set "
         "it in policy_options, or by --policy-option)"},
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
        {"{\"slo_ttft_ms\": \"2s\"}",
         "slo_ttft_ms: \"2s\": must be a whole number from 0 to 86400000"},
        {"{\"drain_limit_ms\": true}",
         "drain_limit_ms: true: must be a whole number from "},
        {"{\"policy_options\": 3}", "policy_options: 3: must be an object"},
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
         "policy_options: seed=1: no such option; policy plan has order, "
         "preempt, "
         "bypass, hold_first, shares, warm_on_reject, replicate, switch_roles, "
         "lend, price"},
        {"{\"policy_options\": {\"bypass\": 1001}}",
         "bypass=1001 of policy plan: must be a number from 0 to 1000"},
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
        CU_ASSERT_EQUAL(policy_settings_check(&settings, &plan, 1,
                                              POLICY_SET_BY_OPERATOR, err,
                                              size),
                        -EINVAL);
        CU_ASSERT_TRUE(strlen(err) < size);
    }
    CU_ASSERT_EQUAL(policy_settings_check(&settings, &plan, 1,
                                          POLICY_SET_BY_OPERATOR, err, 60),
                    -EINVAL);
    CU_ASSERT_STRING_EQUAL(
        err, "a=1: no such option; policy plan has order, preempt, ...");
}

/* What plan has others do after a configuration file's policy_options. */
static struct schedule_rules rules_of(const char *text)
{
    struct config c;
    char err[CONFIG_ERROR_MAX];
    double values[POLICY_OPTIONS_MAX];
    const struct schedule_policy *policy;

    CU_ASSERT_EQUAL_FATAL(parse(&c, text, err), 0);
    CU_ASSERT_EQUAL_FATAL(config_check(&c, err), 0);
    config_drop_rules(&c);
    policy = config_policy(&c, values);
    CU_ASSERT_PTR_NOT_NULL_FATAL(policy);
    return policy_rules(policy, values);
}

#define ONE(option, value) \
    rules_of("{\"policy_options\": {\"" option "\": " value "}}")

/* Each option of plan arrives where it counts. */
static void test_options_of_plan(void)
{
    const struct schedule_policy *plan = schedule_policy_by_name("plan");
    const struct schedule_rules usual = rules_of("{}");
    struct schedule_rules r;
    size_t n = 0;

    for (size_t i = 0; i < plan->n_options; i++)
        n += !plan->options[i].rule_of;
    CU_ASSERT_EQUAL(n, 10);
    CU_ASSERT_STRING_EQUAL(usual.queue_order[0], "shortest_first");
    CU_ASSERT_STRING_EQUAL(usual.queue_order[1], "shortest_first_yield");
    r = ONE("order", "0");
    CU_ASSERT_PTR_NULL(r.queue_order[0]);
    CU_ASSERT_STRING_EQUAL(policy_queue_order(&r, "fifo", true), "fifo");
    CU_ASSERT_STRING_EQUAL(policy_queue_order(&usual, "fifo", false),
                           "shortest_first");
    CU_ASSERT_STRING_EQUAL(ONE("preempt", "0").queue_order[1],
                           "shortest_first");
    CU_ASSERT_EQUAL(ONE("bypass", "7").bypass, 7);
    CU_ASSERT_EQUAL(ONE("bypass", "1000").bypass, 1000);
    CU_ASSERT_TRUE(usual.holds_first && !ONE("hold_first", "0").holds_first);
    CU_ASSERT_TRUE(usual.shares && !ONE("shares", "0").shares);
    CU_ASSERT_TRUE(usual.price.on && !ONE("price", "0").price.on);
    CU_ASSERT_TRUE(ONE("warm_on_reject", "1").warms);
    CU_ASSERT_FALSE(ONE("warm_on_reject", "0").warms);
    CU_ASSERT_EQUAL(ONE("replicate", "0.25").replicates, 0.25);
    CU_ASSERT_EQUAL(ONE("switch_roles", "60").switch_us, 60000000);
    CU_ASSERT_EQUAL(ONE("lend", "3").lend.most, 3);
}

/* What simulations turn off: values in the order of the policy's table. */
static void test_rules_of_plan(void)
{
    const struct schedule_policy *plan = schedule_policy_by_name("plan");
    static const char *const orders[] = {"shortest_first",
                                         "shortest_first_yield"};
    double values[POLICY_OPTIONS_MAX];
    struct schedule_rules r;

    for (int preempt = 0; preempt < 2; preempt++) {
        policy_options_init(plan, values);
        CU_ASSERT_EQUAL(policy_options_set(plan, values, "preempt", preempt),
                        0);
        r = policy_rules(plan, values);
        CU_ASSERT_STRING_EQUAL(r.queue_order[0], orders[0]);
        CU_ASSERT_STRING_EQUAL(r.queue_order[1], orders[preempt]);
    }
    policy_options_init(plan, values);
    CU_ASSERT_FALSE(policy_rules(plan, values).uncorrected);
    CU_ASSERT_EQUAL(policy_options_set(plan, values, "correction", 0), 0);
    CU_ASSERT_EQUAL(policy_options_set(plan, values, "rho", 0.1), 0);
    CU_ASSERT_EQUAL(policy_options_set(plan, values, "rho_eases", 0), 0);
    CU_ASSERT_EQUAL(policy_options_set(plan, values, "price_floor", 0.2), 0);
    CU_ASSERT_EQUAL(policy_options_set(plan, values, "lend_ms", 3), 0);
    r = policy_rules(plan, values);
    CU_ASSERT_TRUE(r.uncorrected && r.price.on && !r.price.eases);
    CU_ASSERT_EQUAL(r.price.rho, 0.1);
    CU_ASSERT_EQUAL(r.price.floor, 0.2);
    CU_ASSERT_EQUAL(r.lend.from_us, 3000);
    /* Under the others nothing is asked for but what their options say. */
    plan = schedule_policy_by_name("local_cache");
    r = policy_rules(plan, values);
    CU_ASSERT_TRUE(!r.uncorrected && !r.by_score && !r.price.on);
    CU_ASSERT_PTR_NULL(r.queue_order[1]);
    plan = schedule_policy_by_name("global_cache");
    policy_options_init(plan, values);
    CU_ASSERT_TRUE(policy_rules(plan, values).by_score);
    CU_ASSERT_EQUAL(policy_options_set(plan, values, "rescue", 1), 0);
    CU_ASSERT_EQUAL(policy_options_set(plan, values, "price", 1), 0);
    r = policy_rules(plan, values);
    CU_ASSERT_TRUE(!r.by_score && r.price.on && r.price.eases);
}

/* Whether operators may set that, of the policy or of the daemon. */
static bool is_option(const struct schedule_policy *policy, struct config *c,
                      const char *name)
{
    const struct policy_option *o = policy_option_by_name(policy, name);
    char err[CONFIG_ERROR_MAX];

    return o ? !o->rule_of : config_set(c, name, "1000", err) == 0;
}

/* A rule that a configuration still has is left out, and nothing else. */
static void test_rules_are_dropped(void)
{
    const struct schedule_policy *plan = schedule_policy_by_name("plan");
    double usual[POLICY_OPTIONS_MAX], values[POLICY_OPTIONS_MAX];
    struct config c;
    char text[256], err[CONFIG_ERROR_MAX];

    policy_options_init(plan, usual);
    for (size_t i = 0; i < plan->n_options; i++) {
        const struct policy_option *o = &plan->options[i];
        const char *of = o->rule_of;

        CU_ASSERT_EQUAL(!!of, policy_rule_say(plan, o->name, err, sizeof(err)));
        if (!of)
            continue;
        CU_ASSERT_TRUE(strstr(err, o->name) && strstr(err, of));
        config_defaults(&c);
        CU_ASSERT_TRUE(*of == '\0' || is_option(plan, &c, of));
        snprintf(text, sizeof(text), "lend=3,%s=%.17g,bypass=9", o->name,
                 o->max);
        CU_ASSERT_EQUAL(config_set(&c, "policy_options", text, err), 0);
        CU_ASSERT_EQUAL(config_check(&c, err), 0);
        config_drop_rules(&c);
        CU_ASSERT_STRING_EQUAL(c.policy_options, "lend=3,bypass=9");
        (void)config_policy(&c, values);
        CU_ASSERT_EQUAL(values[i], usual[i]);
    }
    /* Another policy's option of that name is one. */
    config_defaults(&c);
    CU_ASSERT_EQUAL(config_set(&c, "policy", "global_cache", err), 0);
    CU_ASSERT_EQUAL(config_set(&c, "policy_options", "rho=0.1", err), 0);
    config_drop_rules(&c);
    CU_ASSERT_STRING_EQUAL(c.policy_options, "rho=0.1");
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
    CU_ASSERT_PTR_NOT_NULL(strstr(err, "heartbeat_ms, 200"));
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
    CU_ASSERT_EQUAL(config_set(&c, "queue_order", "shortest_first_yield", err),
                    0);
    CU_ASSERT_EQUAL(config_check(&c, err), 0);
    c.pool = CONFIG_POOL_AGGREGATED;
    CU_ASSERT_EQUAL(config_check(&c, err), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(err, "queue_order: \"shortest_first_yield\": interrupts "
                    "prefills, which workers of an aggregated pool cannot"));
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

static void test_extras(void)
{
    static const char *const texts[][2] = {
        {"{\"a\": 1, // b\n}", "{\"a\": 1      \n}"},
        {"[1, /* , \n] */ 2,/**/]", "[1,      \n     2     ]"},
        {"[/*a*//*b*/{},]", "[          {} ]"},
        {"[\"/*,]\", \"\\\",]//\",]", "[\"/*,]\", \"\\\",]//\" ]"},
        /* These stay wrong. */
        {"[,]", "[,]"},
        {"[1,,]", "[1,,]"},
        {"{\"a\":,}", "{\"a\":,}"},
        {"[1,] /* \"a\",]", "[1 ] /* \"a\",]"},
        {"[1, / ,]", "[1, / ,]"},
        {"\"\\", "\"\\"},
        {"/", "/"},
        {"/*/", "/*/"},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char *text = strdup(texts[i][0]);
        size_t n = strlen(texts[i][0]);

        fields_blank_extras(text, n);
        CU_ASSERT_STRING_EQUAL(text, texts[i][1]);
        free(text);
    }
}

/* JSON stays as it is, and so do the line ends of whatever comes. */
static void test_extras_random(void)
{
    static const char of[] = "[]{},:/*\"\\ \n1a";
    unsigned seed = 7, valid = 0;

    for (int i = 0; i < 300000; i++) {
        size_t n = 1 + (size_t)rand_r(&seed) % 12;
        char was[12], text[12];

        for (size_t k = 0; k < n; k++)
            was[k] = of[(size_t)rand_r(&seed) % (sizeof(of) - 1)];
        memcpy(text, was, n);
        fields_blank_extras(text, n);
        json_t *json = json_loadb(was, n, 0, NULL);
        valid += json ? 1 : 0;
        CU_ASSERT_FATAL(!json || memcmp(was, text, n) == 0);
        json_decref(json);
        for (size_t k = 0; k < n; k++)
            CU_ASSERT_FATAL((text[k] == '\n') == (was[k] == '\n'));
    }
    CU_ASSERT(valid > 100);
}

static const struct suite_test tests[] = {
    {"what comes by chance", test_extras_random},
    {"what people write in JSON, and JSON has not", test_extras},
    {"engines round trip", test_engines_round_trip},
    {"a dump loads back", test_defaults_round_trip},
    {"a dump without memory", test_dump_without_memory},
    {"mistakes are named and change nothing", test_mistakes},
    {"strings are bounded", test_long_string},
    {"one option from text", test_set},
    {"policy options", test_policy_options},
    {"options of plan", test_options_of_plan},
    {"rules of plan", test_rules_of_plan},
    {"rules are dropped", test_rules_are_dropped},
    {"options fit each other", test_options_together},
    {"a byte order mark is passed over", test_byte_order_mark},
    {"a missing file is named", test_file_is_named},
};
SUITE("config", tests)
