/* Where a Redis is, as text: what is taken, and that no message tells the
 * password. */
#include <errno.h>
#include <string.h>

#include "base/redis/url.h"
#include "tests/unit/suite.h"

static char err[256];

static struct redis_url taken(const char *text)
{
    struct redis_url url;

    memset(&url, 0xff, sizeof(url));
    CU_ASSERT_EQUAL_FATAL(redis_url_parse(text, &url, err, sizeof(err)), 0);
    return url;
}

static void refused(const char *text, const char *with)
{
    struct redis_url url, before;

    memset(&url, 0x5a, sizeof(url));
    before = url;
    CU_ASSERT_EQUAL(redis_url_parse(text, &url, err, sizeof(err)), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, with));
    CU_ASSERT_PTR_NULL(strstr(err, "geheim"));
    CU_ASSERT_EQUAL(memcmp(&url, &before, sizeof(url)), 0);
}

static void test_taken(void)
{
    struct redis_url u = taken("redis://a.example");

    CU_ASSERT_EQUAL(u.n, 1);
    CU_ASSERT_STRING_EQUAL(u.at[0].host, "a.example");
    CU_ASSERT_EQUAL(u.at[0].port, 6379);
    CU_ASSERT_EQUAL(u.database, 0);
    CU_ASSERT_STRING_EQUAL(u.password, "");

    u = taken("redis://me:ge%40h%2F@[::1]:7000,b:1,[::2],c/12");
    CU_ASSERT_EQUAL(u.n, 4);
    CU_ASSERT_STRING_EQUAL(u.user, "me");
    CU_ASSERT_STRING_EQUAL(u.password, "ge@h/");
    CU_ASSERT_STRING_EQUAL(u.at[0].host, "::1");
    CU_ASSERT_EQUAL(u.at[0].port, 7000);
    CU_ASSERT_EQUAL(u.at[1].port, 1);
    CU_ASSERT_STRING_EQUAL(u.at[2].host, "::2");
    CU_ASSERT_EQUAL(u.at[2].port, 6379);
    CU_ASSERT_STRING_EQUAL(u.at[3].host, "c");
    CU_ASSERT_EQUAL(u.database, 12);

    u = taken("redis+sentinel://:p@a,b:26380/mymaster/3");
    CU_ASSERT_STRING_EQUAL(u.primary, "mymaster");
    CU_ASSERT_STRING_EQUAL(u.user, "");
    CU_ASSERT_STRING_EQUAL(u.password, "p");
    CU_ASSERT_EQUAL(u.at[0].port, 26379);
    CU_ASSERT_EQUAL(u.at[1].port, 26380);
    CU_ASSERT_EQUAL(u.database, 3);
    CU_ASSERT_STRING_EQUAL(taken("redis+sentinel://a/m").primary, "m");
}

static void test_refused(void)
{
    refused("memory", "redis://");
    refused("http://a", "redis://");
    refused("rediss", "redis");
    refused("rediss+sentinel:/a", "redis");
    refused("redisss://a", "redis");
    refused("redis://", "address 1");
    refused("redis://a,", "address 2");
    refused("redis://a:b", "address 1");
    refused("redis://a:70000", "address 1");
    refused("redis://:geheim", "address 1");
    refused("redis://geheim@a", "PASSWORD");
    refused("redis://:geheim%0g@a", "%XX");
    refused("redis://:geheim%00@a", "%XX");
    refused("redis://:geheim@a/x", "number");
    refused("redis://:geheim@a/65536", "number");
    refused("redis://a,b,c,d,e,f,g,h,i", "at most 8");
    refused("redis+sentinel://a", "/NAME");
    refused("redis+sentinel://a//1", "/NAME");
    refused("redis+sentinel://a/m/x", "number");
}

/* Where this was built with hiredis 1.0 or later. */
static void test_tls(void)
{
#ifdef CONDUCTOR_REDIS_TLS
    struct redis_url u = taken("rediss://:geheim@a/3");

    CU_ASSERT_TRUE(u.tls);
    CU_ASSERT_EQUAL(u.at[0].port, 6379);
    CU_ASSERT_EQUAL(u.database, 3);
    u = taken("rediss+sentinel://a/m");
    CU_ASSERT_TRUE(u.tls);
    CU_ASSERT_STRING_EQUAL(u.primary, "m");
    refused("rediss+sentinel://:geheim@a", "/NAME");
#else
    refused("rediss://:geheim@a", "stunnel");
    refused("rediss+sentinel://:geheim@a/m", "stunnel");
#endif
    CU_ASSERT_FALSE(taken("redis://a").tls);
}

/* Who asks no Sentinels is not told of them. */
static void test_servers(void)
{
    struct redis_url url;

    CU_ASSERT_EQUAL(
        redis_url_parse_servers("redis://a,b", &url, err, sizeof(err)), 0);
    CU_ASSERT_EQUAL(url.n, 2);
    CU_ASSERT_EQUAL(
        redis_url_parse_servers("redis+sentinel://a/m", &url, err, sizeof(err)),
        -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, "not Sentinels"));
    CU_ASSERT_EQUAL(redis_url_parse_servers("a:1", &url, err, sizeof(err)),
                    -EINVAL);
    CU_ASSERT_PTR_NULL(strstr(err, "entinel"));
}

static void test_shown(void)
{
    char out[64];

    redis_url_shown("redis://me:geheim@a:1/2", out, sizeof(out));
    CU_ASSERT_STRING_EQUAL(out, "redis://***@a:1/2");
    redis_url_shown("redis://a:1/2", out, sizeof(out));
    CU_ASSERT_STRING_EQUAL(out, "redis://a:1/2");
    redis_url_shown("memory", out, sizeof(out));
    CU_ASSERT_STRING_EQUAL(out, "memory");
}

static const struct suite_test tests[] = {
    {"servers alone", test_servers},
    {"taken", test_taken},
    {"refused", test_refused},
    {"TLS", test_tls},
    {"shown without the password", test_shown},
};
SUITE("redis_url", tests)
