/* Keys and their names: who is which tenant, what a file may say, and that a
 * file that is read again keeps what was counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/tenant/tenants.h"
#include "tests/unit/suite.h"

/* printf %s KEY | sha256sum, of alpha, beta and gamma */
#define ALPHA "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8"
#define BETA "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753"
#define GAMMA "be9d587defa1f0c09ef49eb17e206983a5f8f8289e4281860bd0ee5a19592c67"

static char path[80];

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fputs(text, f);
    CU_ASSERT_EQUAL(fclose(f), 0);
}

static struct tenants *load(const char *text)
{
    char err[CONFIG_ERROR_MAX] = "";
    struct tenants *t;

    write_file(text);
    CU_ASSERT_EQUAL(tenants_new(path, &t, err), 0);
    CU_ASSERT_STRING_EQUAL(err, "");
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

static struct dispatch_request find(const struct tenants *t, const char *key,
                                    int32_t priority)
{
    struct dispatch_request r = {.tenant = 99};

    tenants_find(t, key, strlen(key), priority, &r);
    return r;
}

static const char two[] =
    "{\"tenants\": [{\"name\": \"a\", \"weight\": 2, \"sha256\": [\"" ALPHA
    "\", \"" BETA "\"]}, {\"name\": \"b\", \"sha256\": [\"" GAMMA "\"]}]}";

static void test_no_file(void)
{
    char err[CONFIG_ERROR_MAX];
    struct tenants *t;
    struct dispatch_request a, b;

    CU_ASSERT_EQUAL_FATAL(tenants_new("", &t, err), 0);
    a = find(t, "alpha", -3);
    b = find(t, "beta", 0);
    CU_ASSERT(a.tenant && b.tenant && a.tenant != b.tenant);
    CU_ASSERT_EQUAL(find(t, "alpha", 0).tenant, a.tenant);
    CU_ASSERT_EQUAL(a.priority, -3);
    CU_ASSERT_EQUAL(find(t, "", 7).tenant, 0);
    CU_ASSERT_EQUAL(find(t, "", 7).priority, 7);
    CU_ASSERT_STRING_EQUAL(tenants_name(t, a.tenant), "other");
    tenants_free(t);
}

static void test_file(void)
{
    struct tenants *t = load(two);
    struct dispatch_request a = find(t, "alpha", 5);

    CU_ASSERT_EQUAL(tenants_size(t), 2);
    CU_ASSERT_STRING_EQUAL(tenants_name(t, a.tenant), "a");
    CU_ASSERT(a.weight > 1.99 && a.weight < 2.01);
    CU_ASSERT_EQUAL(a.priority, 5);
    /* Another key of the same name. */
    CU_ASSERT_EQUAL(find(t, "beta", 0).tenant, a.tenant);
    /* Who is not in the file is one of many: no priority. */
    CU_ASSERT_EQUAL(find(t, "made up", -9).tenant, 0);
    CU_ASSERT_EQUAL(find(t, "made up", -9).priority, 0);
    CU_ASSERT_EQUAL(find(t, "", -9).priority, 0);
    CU_ASSERT_STRING_EQUAL(tenants_name(t, 0), "other");
    tenants_free(t);
}

static bool tells(struct tenants *t, const char *line)
{
    struct text_buf out;
    bool found;

    text_buf_init(&out, SIZE_MAX);
    CU_ASSERT_EQUAL(tenants_write(t, &out), 0);
    text_buf_add(&out, "", 1);
    found = strstr(out.data, line);
    text_buf_fini(&out);
    return found;
}

static void test_reload(void)
{
    char err[CONFIG_ERROR_MAX];
    struct tenants *t = load(two), *next;
    uint64_t a = find(t, "alpha", 0).tenant;

    tenants_count(t, a, METRICS_COMPLETED);
    tenants_sent(t, a, 100);
    tenants_count(t, 0, METRICS_REJECTED);
    write_file("{\"tenants\": [{}]}");
    CU_ASSERT_NOT_EQUAL(tenants_new(path, &next, err), 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, "tenants[0].name: missing"));
    CU_ASSERT_EQUAL(find(t, "alpha", 0).tenant, a);
    write_file("{\"tenants\": [{\"name\": \"c\", \"sha256\": [\"" BETA
               "\"]}, {\"name\": \"a\", \"weight\": 3, \"sha256\": [\"" ALPHA
               "\"]}]}");
    CU_ASSERT_EQUAL_FATAL(tenants_new(path, &next, err), 0);
    tenants_take(t, next);
    CU_ASSERT_EQUAL(find(t, "alpha", 0).tenant, a);
    CU_ASSERT(find(t, "alpha", 0).weight > 2.99);
    CU_ASSERT_STRING_EQUAL(tenants_name(t, find(t, "beta", 0).tenant), "c");
    CU_ASSERT(tells(t, "conductor_tenant_requests_total{tenant=\"a\","
                       "outcome=\"completed\"} 1\n"));
    CU_ASSERT(tells(t, "conductor_tenant_requests_total{tenant=\"other\","
                       "outcome=\"rejected\"} 1\n"));
    CU_ASSERT(tells(t, "conductor_tenant_computed_tokens_total{tenant=\"a\"} "
                       "100\n"));
    tenants_free(t);
}

static void take(struct tenants *t, const char *text)
{
    char err[CONFIG_ERROR_MAX];
    struct tenants *next;

    write_file(text);
    CU_ASSERT_EQUAL_FATAL(tenants_new(path, &next, err), 0);
    tenants_take(t, next);
}

static uint32_t room_of(struct tenants *t, const char *key)
{
    struct tenant_terms terms = {0};
    int64_t retry_us;

    CU_ASSERT_EQUAL(
        tenants_enter(t, key, strlen(key), TENANT_LOOKS, 0, &terms, &retry_us),
        TENANT_ENTERS);
    return terms.room;
}

/* A tenant whose requests are in work leaves the file and comes again, or comes
 * first when they are: they count once, as long as they last. */
static void test_in_work_through_reloads(void)
{
    static const char alone[] =
        "{\"tenants\": [{\"name\": \"a\", \"max_in_flight\": 5, "
        "\"sha256\": [\"" ALPHA "\"]}]}";
    static const char others[] =
        "{\"tenants\": [{\"name\": \"b\", \"max_in_flight\": 5, "
        "\"sha256\": [\"" BETA "\"]}]}";
    struct tenants *t = load(alone);
    uint64_t a = find(t, "alpha", 0).tenant;

    for (int i = 0; i < 3; i++)
        tenants_began(t, a);
    CU_ASSERT_EQUAL(room_of(t, "alpha"), 2);
    take(t, others);
    tenants_count(t, a, METRICS_COMPLETED);
    CU_ASSERT_EQUAL(room_of(t, "beta"), 5);
    take(t, others);
    take(t, alone);
    CU_ASSERT_EQUAL(room_of(t, "alpha"), 3);
    take(t, alone);
    tenants_began(t, a);
    CU_ASSERT_EQUAL(room_of(t, "alpha"), 2);
    for (int i = 0; i < 3; i++)
        tenants_count(t, a, METRICS_COMPLETED);
    CU_ASSERT_EQUAL(room_of(t, "alpha"), 5);
    tenants_free(t);
}

static void test_gauges(void)
{
    struct tenants *t = load(two);
    struct dispatch d;
    struct dispatch_request a = find(t, "alpha", 0), b = find(t, "gamma", 0);
    uint32_t at_a, at_b;

    dispatch_init(&d);
    at_a = share_arrived(&d.share, a.tenant, a.weight, 0, 1000000);
    at_b = share_arrived(&d.share, b.tenant, b.weight, 0, 1000000);
    d.share.tenants[at_b].waiting = 7;
    share_use(&d.share, at_a, SHARE_PREFILL, 1000.0, 1000000);
    tenants_weigh(t, &d, 1000000);
    CU_ASSERT(tells(t, "conductor_tenant_standing_ratio{tenant=\"a\"} 1.5\n"));
    /* What was told is over. */
    CU_ASSERT(!tells(t, "standing_ratio{"));
    tenants_weigh(t, &d, 1000000);
    CU_ASSERT(tells(t, "conductor_tenant_waiting{tenant=\"b\"} 7\n"));
    tenants_free(t);
}

static void refused(const char *text, const char *why)
{
    char err[CONFIG_ERROR_MAX] = "";
    struct tenants *t;

    write_file(text);
    CU_ASSERT_NOT_EQUAL(tenants_new(path, &t, err), 0);
    CU_ASSERT_PTR_NULL(t);
    if (!strstr(err, why))
        printf("\n    %s\n", err);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, why));
}

static void test_bad_files(void)
{
    refused("[]", "must be an object");
    refused("{}", "tenants: missing");
    refused("{\"tenants\": 1}", "must be an array");
    refused("{\"tenants\": [1]}", "must be an object");
    refused("{\"tenants\": [{\"name\": \"a\"}]}", "tenants[0].sha256: missing");
    refused("{\"tenants\": [{\"name\": \"a\", \"sha256\": []}]}",
            "sha256: []: must be an array of at least one");
    refused("{\"tenants\": [{\"name\": \"a\", \"sha256\": [\"secret key\"]}]}",
            "number 1: \"secr...\" of 10 bytes: must be 64 hexadecimal digits");
    refused("{\"tenants\": [{\"name\": \"a b\", \"sha256\": [\"" ALPHA "\"]}]}",
            "must be letters");
    refused("{\"tenants\": [{\"name\": \"other\", \"sha256\": [\"" ALPHA
            "\"]}]}",
            "is reserved for the tenants that are not listed");
    refused("{\"tenants\": [{\"name\": \"a\", \"sha256\": [\"" ALPHA
            "\", \"" ALPHA "\"]}]}",
            "number 2: comes twice");
    refused("{\"tenants\": [{\"name\": \"a\", \"weight\": 0, \"sha256\": "
            "[\"" ALPHA "\"]}]}",
            "weight");
    refused("{\"tenants\": [{\"name\": \"a\", \"keys\": []}]}", "keys");
    unlink(path);
    char err[CONFIG_ERROR_MAX];
    struct tenants *t;
    CU_ASSERT_NOT_EQUAL(tenants_new(path, &t, err), 0);
}

static const struct suite_test tests[] = {
    {"every key is a tenant", test_no_file},
    {"names and weights", test_file},
    {"a file that is read again", test_reload},
    {"in work through reloads", test_in_work_through_reloads},
    {"gauges", test_gauges},
    {"files that cannot be used", test_bad_files},
};

int main(void)
{
    const char *folder = getenv("TMPDIR");

    snprintf(path, sizeof(path), "%.40s/tenants-%d", folder ? folder : "/tmp",
             (int)getpid());
    return SUITE_RUN("tenants", tests);
}
