/* Which conductor conductorctl asks: the order of what names it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/suite.h"
#include "tools/ctl/where.h"

#define CONFIG "ctl_where.json" /* in the folder that the test runs in */

struct found {
    int rc;
    char at[REPLAY_SERVER_NAME_BYTES];
    bool https;
    char from[CTL_FROM_BYTES], why[600];
};

static struct found find(const char *given, const char *variable,
                         const char *text)
{
    struct replay_server server = {0};
    struct found f = {0};

    unlink(CONFIG);
    if (text) {
        FILE *file = fopen(CONFIG, "w");

        CU_ASSERT_PTR_NOT_NULL_FATAL(file);
        CU_ASSERT(fputs(text, file) >= 0 && fclose(file) == 0);
    }
    f.rc = ctl_where(given, variable, CONFIG, &server, f.from, f.why,
                     sizeof f.why);
    if (f.rc == 0)
        replay_server_name(&server, f.at);
    f.https = server.https;
    unlink(CONFIG);
    return f;
}

static void check(const char *given, const char *variable, const char *text,
                  const char *at, bool https)
{
    struct found f = find(given, variable, text);

    CU_ASSERT_EQUAL(f.rc, 0);
    CU_ASSERT_STRING_EQUAL(f.at, at);
    CU_ASSERT_EQUAL(f.https, https);
    CU_ASSERT_STRING_EQUAL(f.why, "");
}

#define BOTH "{\"listen\": \"*:8443\", \"admin_listen\": \"127.0.0.1:8082\""

static void test_order(void)
{
    check("a:1", "b:2", BOTH "}", "a:1", false);
    check(NULL, "b:2", BOTH "}", "b:2", false);
    check(NULL, "https://b:2", BOTH "}", "b:2", true);
    check(NULL, "", BOTH "}", "127.0.0.1:8082", false);
    check(NULL, NULL, BOTH "}", "127.0.0.1:8082", false);
    check(NULL, NULL, "{\"listen\": \"10.0.0.1:8090\"}", "10.0.0.1:8090",
          false);
    check(NULL, NULL, "{\"admin_listen\": \"\", \"listen\": \"[::]:1\"}",
          "[::1]:1", false);
    check(NULL, NULL, "{\"listen\": \"0.0.0.0:7\"}", "127.0.0.1:7", false);
    check(NULL, NULL, "{\"engines\": []}", "127.0.0.1:8080", false);
    check(NULL, NULL, NULL, "127.0.0.1:8080", false);
}

static void test_from(void)
{
    static const struct {
        const char *given, *variable, *text, *from;
    } all[] = {
        {"a:1", "b:2", BOTH "}", "--address"},
        {NULL, "b:2", BOTH "}", "CONDUCTOR_ADDRESS"},
        {NULL, "", BOTH "}", "admin_listen in " CONFIG},
        {NULL, NULL, "{\"listen\": \"*:1\"}", "listen in " CONFIG},
        {NULL, NULL, "{}", "the default, as " CONFIG " has no listen"},
        {NULL, NULL, "{", "the default, as " CONFIG " cannot be used"},
        {NULL, NULL, NULL, "the default, as " CONFIG " is not there"},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        CU_ASSERT_STRING_EQUAL(
            find(all[i].given, all[i].variable, all[i].text).from, all[i].from);
}

static void test_tls(void)
{
#define TLS ", \"tls_certificate\": \"tls.pem\""
    check(NULL, NULL, BOTH TLS "}", "127.0.0.1:8082", false);
    check(NULL, NULL, BOTH TLS ", \"admin_tls\": \"on\"}", "127.0.0.1:8082",
          true);
    check(NULL, NULL, BOTH TLS ", \"admin_tls\": true}", "127.0.0.1:8082",
          true);
    check(NULL, NULL, "{\"listen\": \"*:8443\"" TLS "}", "127.0.0.1:8443",
          true);
}

static void test_wrong_addresses(void)
{
    struct found f = find("x", "b:2", NULL);

    CU_ASSERT_EQUAL(f.rc, -EINVAL);
    CU_ASSERT_STRING_EQUAL(f.why, "--address: \"x\": must be HOST:PORT, or "
                                  "https://HOST:PORT");
    f = find(NULL, "h:0", BOTH "}");
    CU_ASSERT_EQUAL(f.rc, -EINVAL);
    CU_ASSERT_STRING_EQUAL(f.why, "CONDUCTOR_ADDRESS: \"h:0\": must be "
                                  "HOST:PORT, or https://HOST:PORT");
}

/* It is said, and nothing else stands in the way. */
static void test_a_file_that_cannot_be_used(void)
{
    static const char *const texts[] = {"{", "[]", "{\"listen\": \"h:0\"}"};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct found f = find(NULL, NULL, texts[i]);

        CU_ASSERT_EQUAL(f.rc, 0);
        CU_ASSERT_STRING_EQUAL(f.at, "127.0.0.1:8080");
        CU_ASSERT_PTR_NOT_NULL(strstr(f.why, CONFIG));
        CU_ASSERT_PTR_NOT_NULL(strstr(f.why, "asking 127.0.0.1:8080"));
        check("a:1", NULL, texts[i], "a:1", false);
        check(NULL, "b:2", texts[i], "b:2", false);
    }
    struct replay_server server = {0};
    char from[CTL_FROM_BYTES], why[600];
    CU_ASSERT_EQUAL(ctl_where(NULL, NULL, ".", &server, from, why, sizeof why),
                    0);
    CU_ASSERT_STRING_EQUAL(from, "the default, as . cannot be used");
    CU_ASSERT_PTR_NOT_NULL(strstr(why, "asking 127.0.0.1:8080"));
}

static const struct suite_test tests[] = {
    {"what comes first", test_order},
    {"what named it", test_from},
    {"https", test_tls},
    {"wrong addresses", test_wrong_addresses},
    {"a file that cannot be used", test_a_file_that_cannot_be_used},
};
SUITE("ctl_where", tests)
