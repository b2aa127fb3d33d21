/* The option table: every kind, every form, every mistake. */
#include <errno.h>
#include <string.h>

#include "base/address.h"
#include "base/options.h"
#include "tests/unit/suite.h"

#define WORDS_MAX 8

struct values {
    bool flag;
    const char *text, *output, *engine;
    struct option_list list;
    char name[8];
    struct address address;
    uint8_t role;
    uint64_t seed;
    uint32_t tokens;
    double rate;
};

static const char *role_name(size_t i)
{
    static const char *const names[] = {"prefill", "decode", NULL};

    return names[i];
}

static const char *no_x(const char *text)
{
    return strchr(text, 'x') ? "without x" : NULL;
}

/* Parses the words, which end with NULL, into *v. */
static int parse(struct values *v, char error[256], const char *const *words)
{
    const struct option_spec specs[] = {
        {"flag", OPTION_FLAG, &v->flag, NULL, 0, 0, "a flag", .letter = 'f'},
        {"text", OPTION_TEXT, &v->text, "T", 0, 0, "a text", .letter = 't'},
        {"engine", OPTION_TEXT, &v->engine, "E", 0, 0, "", .choice = role_name},
        {"out", OPTION_OUTPUT, &v->output, "FILE", 0, 0, "a file"},
        {"list", OPTION_LIST, &v->list, "L", 0, 0, "many"},
        {"name", OPTION_STRING, v->name, "N", 1, 0, "copied",
         .size = sizeof(v->name), .check = no_x},
        {"address", OPTION_ADDRESS, &v->address, "HOST:PORT", 1, 0, "where"},
        {"role", OPTION_CHOICE, &v->role, "R", 1, 0, "", .choice = role_name},
        {"seed", OPTION_COUNT, &v->seed, "S", 0, (double)UINT64_MAX, "a seed"},
        {"tokens", OPTION_U32, &v->tokens, "N", 16, 64, "some", .step = 16},
        {"rate", OPTION_NUMBER, &v->rate, "X", 0.5, 4, "a rate"},
    };
    static const char *items[WORDS_MAX];
    const struct option_table table = {specs, sizeof(specs) / sizeof(*specs)};
    char *argv[WORDS_MAX + 2] = {(char *)(uintptr_t) "p"};
    int argc = 1;

    v->list.items = items;
    for (; words[argc - 1]; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    error[0] = '\0';
    return options_parse(&table, argc, argv, error, 256);
}

#define PARSE(v, error, ...) \
    parse(v, error, (const char *const[]){__VA_ARGS__, NULL})

static void test_kinds(void)
{
    struct values v = {0};
    char error[256];

    CU_ASSERT_EQUAL(PARSE(&v, error, "--flag", "--text", "--help", "--out=-",
                          "--list", "a", "--list=b", "--name=abcdefg"),
                    0);
    CU_ASSERT_TRUE(v.flag);
    CU_ASSERT_STRING_EQUAL(v.text, "--help");
    CU_ASSERT_STRING_EQUAL(v.output, "-");
    CU_ASSERT_EQUAL_FATAL(v.list.count, 2);
    CU_ASSERT_STRING_EQUAL(v.list.items[1], "b");
    CU_ASSERT_STRING_EQUAL(v.name, "abcdefg");
    CU_ASSERT_EQUAL(PARSE(&v, error, "--address", "[::1]:80", "--role=decode",
                          "--seed=18446744073709551615", "--tokens=48",
                          "--rate=.5", "--engine=prefill"),
                    0);
    CU_ASSERT_STRING_EQUAL(v.address.host, "::1");
    CU_ASSERT_EQUAL(v.address.port, 80);
    CU_ASSERT_EQUAL(v.role, 2);
    CU_ASSERT_EQUAL(v.seed, UINT64_MAX);
    CU_ASSERT_EQUAL(v.tokens, 48);
    CU_ASSERT_EQUAL(v.rate, 0.5);
    CU_ASSERT_STRING_EQUAL(v.engine, "prefill");
}

static void test_letters(void)
{
    struct values v = {0};
    char error[256];

    CU_ASSERT_EQUAL(PARSE(&v, error, "-f", "-t", "one"), 0);
    CU_ASSERT_TRUE(v.flag);
    CU_ASSERT_STRING_EQUAL(v.text, "one");
    CU_ASSERT_EQUAL(PARSE(&v, error, "-ttwo"), 0);
    CU_ASSERT_STRING_EQUAL(v.text, "two");
    CU_ASSERT_EQUAL(PARSE(&v, error, "-h"), 1);
    CU_ASSERT_EQUAL(PARSE(&v, error, "--flag", "--help", "--bogus"), 1);
    CU_ASSERT_EQUAL(PARSE(&v, error, "-V"), 2);
}

static void test_mistakes(void)
{
    static const struct {
        const char *words[3];
        const char *error;
    } cases[] = {
        {{"--bogus"}, "unknown option '--bogus'"},
        {{"--tex", "a"}, "unknown option '--tex'"},
        {{"-x"}, "unknown option '-x'"},
        {{"word"}, "unexpected argument 'word'"},
        {{"--flag=1"}, "--flag takes no value"},
        {{"--text"}, "--text needs a value"},
        {{"--text="}, "--text \"\": must not be empty"},
        {{"--engine=x"}, "--engine x: is not one of prefill decode"},
        {{"--role", "cook"}, "--role cook: is not one of prefill decode"},
        {{"--role", "decod"},
         "--role decod: is not one of prefill decode: did you mean decode?"},
        {{"--role", "prefill decode"},
         "--role \"prefill decode\": takes one word, and this is not one of "
         "prefill decode: did you mean prefill?"},
        {{"--role", "prefil,decode"},
         "--role prefil,decode: takes one word, and this is not one of "
         "prefill decode: did you mean prefill?"},
        {{"--name="}, "--name \"\": must be 1 to 7 bytes long"},
        {{"--name=abcdefgh"}, "--name abcdefgh: must be 1 to 7 bytes long"},
        {{"--name=xy"}, "--name xy: must be without x"},
        {{"--address=a:0"},
         "--address a:0: must be HOST:PORT with a port from 1 to 65535"},
        {{"--seed=1x"},
         "--seed 1x: must be a whole number from 0 to 18446744073709551615"},
        {{"--seed=18446744073709551616"}, "--seed 18446744073709551616: must"},
        {{"--seed=1.5"}, "--seed 1.5: must be a whole number"},
        {{"--seed=-1"}, "--seed -1: must be a whole number"},
        {{"--seed=nan"}, "--seed nan: must be a whole number"},
        {{"--tokens=17"},
         "--tokens 17: must be a whole number from 16 to 64, "
         "a multiple of 16"},
        {{"--rate", "5"}, "--rate 5: must be a number from 0.5 to 4"},
        {{"--rate=nan"}, "--rate nan: must be a number"},
        {{"--rate="}, "--rate \"\": must be a number"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct values v = {0};
        char error[256];

        CU_ASSERT_EQUAL(parse(&v, error, cases[i].words), -EINVAL);
        if (strncmp(error, cases[i].error, strlen(cases[i].error)) != 0) {
            printf("\n    got \"%s\"", error);
            CU_FAIL("another message");
        }
        CU_ASSERT_EQUAL(v.seed, 0);
        CU_ASSERT_EQUAL(v.name[0], 0);
        CU_ASSERT_PTR_NULL(v.text);
    }
}

/* An empty name is not that of the arguments without a name. */
static void test_empty_name(void)
{
    const char *items[4];
    struct option_list list = {.items = items};
    const struct option_spec spec = {"", OPTION_LIST, &list, "FILE", 0, 0, ""};
    const struct option_table table = {&spec, 1};
    char *argv[] = {(char *)(uintptr_t) "p", (char *)(uintptr_t) "a",
                    (char *)(uintptr_t) "--=b"};
    char error[256];

    CU_ASSERT_EQUAL(options_parse(&table, 2, argv, error, 256), 0);
    CU_ASSERT_EQUAL(list.count, 1);
    CU_ASSERT_EQUAL(options_parse(&table, 3, argv, error, 256), -EINVAL);
    CU_ASSERT_STRING_EQUAL(error, "unknown option '--=b'");
}

static void test_addresses(void)
{
    struct address a;

    CU_ASSERT_EQUAL(address_parse("[::1]:80", &a), 0);
    CU_ASSERT_STRING_EQUAL(a.host, "::1");
    CU_ASSERT_EQUAL(a.port, 80);
    CU_ASSERT_EQUAL(address_parse("h:0", &a), 0);
    CU_ASSERT_EQUAL(address_parse(":80", &a), -EINVAL);
    CU_ASSERT_EQUAL(address_parse("[]:80", &a), -EINVAL);
    CU_ASSERT_EQUAL(address_parse("h", &a), -EINVAL);
    CU_ASSERT_EQUAL(address_parse("h:", &a), -EINVAL);
    CU_ASSERT_EQUAL(address_parse("h:-1", &a), -EINVAL);
    CU_ASSERT_EQUAL(address_parse("h:1x", &a), -EINVAL);
    CU_ASSERT_EQUAL(address_parse("h:65536", &a), -EINVAL);
    CU_ASSERT_EQUAL(address_parse("::1:80", &a), -EINVAL);
    CU_ASSERT_STRING_EQUAL(a.host, "h");
}

/* Whether a with a_more ports behind it and b meet, either way round. */
static bool meet(const char *a, unsigned a_more, const char *b)
{
    struct address x, y;

    CU_ASSERT_EQUAL(address_parse(a, &x), 0);
    CU_ASSERT_EQUAL(address_parse(b, &y), 0);
    CU_ASSERT_EQUAL(address_meet(&x, a_more, &y, 0),
                    address_meet(&y, 0, &x, a_more));
    return address_meet(&x, a_more, &y, 0);
}

static void test_addresses_meet(void)
{
    CU_ASSERT_TRUE(meet("h:80", 0, "H:80"));
    CU_ASSERT_TRUE(meet("0.0.0.0:80", 0, "h:80"));
    CU_ASSERT_TRUE(meet("[::]:80", 0, "*:80"));
    CU_ASSERT_TRUE(meet("localhost:80", 0, "127.0.0.1:80"));
    CU_ASSERT_TRUE(meet("127.0.0.1:78", 2, "127.0.0.1:80"));
    CU_ASSERT_FALSE(meet("127.0.0.1:78", 1, "127.0.0.1:80"));
    CU_ASSERT_FALSE(meet("127.0.0.1:81", 9, "127.0.0.1:80"));
    CU_ASSERT_FALSE(meet("127.0.0.1:80", 0, "[::1]:80"));
    CU_ASSERT_FALSE(meet("127.0.0.1:80", 0, "127.0.0.2:80"));
    CU_ASSERT_FALSE(meet("0.0.0.0:0", 0, "0.0.0.0:0"));
}

static void test_nearest(void)
{
    static const struct option_spec specs[] = {
        {.name = "engine"}, {.name = "engines_file"}, {.name = ""}};
    static const struct option_table table = {specs, 3};
    static const char *const words[][2] = {
        {"engin", "engine"},
        {"enigne", "engine"},
        {"engine-file", "engines_file"},
        {"model", NULL},
        {"", NULL},
        {"e", NULL},
        {"engine_engine_engine_engine_engine_engine_engine", NULL}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const char *got =
            option_nearest(&table, words[i][0], strlen(words[i][0]));

        CU_ASSERT_EQUAL(!got, !words[i][1]);
        if (got && words[i][1])
            CU_ASSERT_STRING_EQUAL(got, words[i][1]);
    }
}

static const struct suite_test tests[] = {
    {"the nearest name", test_nearest},
    {"every kind", test_kinds},
    {"letters, help and version", test_letters},
    {"mistakes name option and value", test_mistakes},
    {"an empty name", test_empty_name},
    {"addresses", test_addresses},
    {"addresses that meet", test_addresses_meet},
};
SUITE("options", tests)
