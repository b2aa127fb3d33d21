/* The profile reader: what it takes, what it refuses and in which words. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "predictor/profile_csv.h"
#include "tests/unit/suite.h"

#define META "# engine: cpu\n# model: tiny\n# machine: m\n# date: 2025-01-31\n"
#define HEADER "kind,uncached_tokens,cached_tokens,batch,kv_tokens,us\n"

static int read_text(struct profile *p, const char *text, char err[256])
{
    return profile_add(p, text, strlen(text), "p.csv", err, 256);
}

static void test_profile(void)
{
    struct profile p = {0};
    char err[256] = "";

    CU_ASSERT_EQUAL(read_text(&p,
                              "# made by hand\n" META
                              "# block_tokens: 256\n# seed: 7\n\n" HEADER
                              "prefill,512,1024,,,8123.5\r\n"
                              "# between\n"
                              "decode,,,8,4096,9.12e2\n"
                              "prefill,1,0,,,1",
                              err),
                    0);
    CU_ASSERT_STRING_EQUAL(p.engine, "cpu");
    CU_ASSERT_STRING_EQUAL(p.date, "2025-01-31");
    CU_ASSERT_EQUAL(p.block_tokens, 256);
    CU_ASSERT_EQUAL(p.seed, 7);
    CU_ASSERT_EQUAL_FATAL(p.prefill.count, 2);
    CU_ASSERT_EQUAL_FATAL(p.decode.count, 1);
    CU_ASSERT_EQUAL(p.prefill.row[0].a, 512);
    CU_ASSERT_EQUAL(p.prefill.row[0].b, 1024);
    CU_ASSERT_DOUBLE_EQUAL(p.prefill.row[0].us, 8123.5, 0.0);
    CU_ASSERT_EQUAL(p.decode.row[0].a, 8);
    CU_ASSERT_EQUAL(p.decode.row[0].b, 4096);
    CU_ASSERT_DOUBLE_EQUAL(p.decode.row[0].us, 912.0, 0.0);
    CU_ASSERT_EQUAL(read_text(&p,
                              "# engine: cpu\n# model: tiny\n# machine: m\n"
                              "# date: 2025-02-01\n" HEADER "prefill,1,0,,,1\n",
                              err),
                    0);
    CU_ASSERT_EQUAL(p.prefill.count, 3);
    CU_ASSERT_STRING_EQUAL(p.date, "2025-02-01");
    CU_ASSERT_EQUAL(p.block_tokens, 256);
    CU_ASSERT_EQUAL(read_text(&p, META "# block_tokens: 256\n" HEADER, err), 0);
    CU_ASSERT_EQUAL(read_text(&p, META "# block_tokens: 32\n" HEADER, err),
                    -EINVAL);
    CU_ASSERT_STRING_EQUAL(
        err, "p.csv:6: block_tokens: got 32, but another file is of 256");
    CU_ASSERT_EQUAL(read_text(&p,
                              "# engine: cpu\n# model: 7b\n# machine: m\n"
                              "# date: 2025-02-01\n" HEADER,
                              err),
                    -EINVAL);
    CU_ASSERT_STRING_EQUAL(
        err, "p.csv:5: model: got \"7b\", but another file is of \"tiny\"");
    profile_fini(&p);
    CU_ASSERT_PTR_NULL(p.prefill.row);
    profile_fini(&p);
}

static const struct {
    const char *text;
    const char *message;
} broken_profiles[] = {
    {"", "p.csv:1: the file ends before the header kind,"},
    {META, "p.csv:5: the file ends before the header kind,"},
    {HEADER, "p.csv:1: no line \"# engine: ...\" before the header"},
    {"# engine: cpu\n# model: t\n# machine: m\n" HEADER,
     "p.csv:4: no line \"# date: ...\" before the header"},
    {META "prefill,1,0,,,1\n",
     "p.csv:5: \"prefill,1,0,,,1\": must be the header "
     "kind,uncached_tokens,cached_tokens,batch,kv_tokens,us"},
    {"# engine:\n", "p.csv:1: engine: \"\": must be a text of 1 to 255 bytes"},
    {"# engine: a\tb\n",
     "p.csv:1: engine: \"a?b\": must be a text of 1 to 255 bytes"},
    {"# seed: x\n", "p.csv:1: seed: \"x\": must be an integer"},
    {"# seed: 99999999999999999999\n",
     "p.csv:1: seed: \"99999999999999999999\": must be an integer"},
    {META HEADER "prefill,1,0,,1\n", "p.csv:6: 5 columns: must be 6"},
    {META HEADER "prefill,1,0,,,1,\n",
     "p.csv:6: more than 6 columns: must be 6"},
    {META HEADER "prefil,1,0,,,1\n",
     "p.csv:6: kind: \"prefil\": must be prefill or decode"},
    {META HEADER "prefill,0,0,,,1\n",
     "p.csv:6: uncached_tokens: \"0\": must be an integer of 1 to 1000000000"},
    {META HEADER "prefill,1,-1,,,1\n",
     "p.csv:6: cached_tokens: \"-1\": must be an integer of 0 to 1000000000"},
    {META HEADER "prefill,1,,,,1\n",
     "p.csv:6: cached_tokens: \"\": must be an"},
    {META HEADER "prefill,1,1000000001,,,1\n",
     "p.csv:6: cached_tokens: \"1000000001\": must be an"},
    {META HEADER "prefill,1,99999999999999999999,,,1\n",
     "p.csv:6: cached_tokens: \"99999999999999999999\": must be an"},
    {META HEADER "prefill,1,0,3,,1\n",
     "p.csv:6: batch: \"3\": must be empty in a prefill row"},
    {META HEADER "prefill,1,0,,4,1\n",
     "p.csv:6: kv_tokens: \"4\": must be empty"},
    {META HEADER "decode,1,,1,1,1\n",
     "p.csv:6: uncached_tokens: \"1\": must be empty in a decode row"},
    {META HEADER "decode,,,1.5,1,1\n",
     "p.csv:6: batch: \"1.5\": must be an integer"},
    {META HEADER "decode,,,1,1,1\ndecode,,,1,1,0\n",
     "p.csv:7: us: \"0\": must be a time above 0"},
    {META HEADER "decode,,,1,1,nan\n", "p.csv:6: us: \"nan\": must be a time"},
    {META HEADER "decode,,,1,1,inf\n", "p.csv:6: us: \"inf\": must be a time"},
    {META HEADER "decode,,,1,1,0x10\n",
     "p.csv:6: us: \"0x10\": must be a time"},
    {META HEADER "decode,,,1,1, 1\n", "p.csv:6: us: \" 1\": must be a time"},
    {META HEADER "decode,,,1,1,+1\n", "p.csv:6: us: \"+1\": must be a time"},
    {META HEADER "decode,,,1,1,-1\n", "p.csv:6: us: \"-1\": must be a time"},
    {META HEADER "decode,,,1,1,1e13\n",
     "p.csv:6: us: \"1e13\": must be a time"},
    {META HEADER "decode,,,1,1,1e999\n",
     "p.csv:6: us: \"1e999\": must be a time"},
    {META HEADER "decode,,,1,1,1.2.3\n",
     "p.csv:6: us: \"1.2.3\": must be a time"},
    {META HEADER "decode,,,1,1,\n", "p.csv:6: us: \"\": must be a time"},
};

static void test_broken_profiles(void)
{
    const size_t count = sizeof(broken_profiles) / sizeof(*broken_profiles);

    for (size_t i = 0; i < count; i++) {
        struct profile p = {0};
        char err[256] = "";
        const char *message = broken_profiles[i].message;
        int rc = read_text(&p, broken_profiles[i].text, err);
        bool said = strncmp(err, message, strlen(message)) == 0;

        if (rc != -EINVAL || !said)
            printf("\n  %s: %d, %s\n", broken_profiles[i].text, rc, err);
        CU_ASSERT_EQUAL(rc, -EINVAL);
        CU_ASSERT(said);
        profile_fini(&p);
    }
}

static void test_profile_bounds(void)
{
    static const char row[] = "prefill,1,0,,,1\n";
    const size_t start = strlen(META HEADER), row_bytes = strlen(row);
    const size_t size = start + (PROFILE_MAX_ROWS + 1) * row_bytes;
    char path[] = "/tmp/test_fit_XXXXXX";
    char err[256], line[600];
    struct profile p = {0};
    char *text = malloc(size);

    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    memcpy(text, META HEADER, start);
    for (size_t i = 0; i <= PROFILE_MAX_ROWS; i++)
        memcpy(text + start + i * row_bytes, row, row_bytes);
    CU_ASSERT_EQUAL(profile_add(&p, text, size, "p.csv", err, 256), -EFBIG);
    CU_ASSERT_STRING_EQUAL(err,
                           "p.csv:1000006: more than 1000000 rows of one kind");
    CU_ASSERT_EQUAL(p.prefill.count, PROFILE_MAX_ROWS);
    profile_fini(&p);
    free(text);
    memset(line, '#', sizeof(line));
    CU_ASSERT_EQUAL(profile_add(&p, line, 600, "p.csv", err, 256), -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "p.csv:1: longer than 512 bytes");
    CU_ASSERT_EQUAL(profile_add(&p, "#\0", 2, "p.csv", err, 256), -EINVAL);
    CU_ASSERT_STRING_EQUAL(err, "p.csv:1: a NUL byte");
    int fd = mkstemp(path);
    CU_ASSERT_FATAL(fd >= 0);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, PROFILE_MAX_FILE_BYTES + 1), 0);
    (void)close(fd);
    CU_ASSERT_EQUAL(profile_add(&p, NULL, 0, path, err, 256), -EFBIG);
    (void)unlink(path);
    CU_ASSERT_EQUAL(profile_add(&p, NULL, 0, path, err, 256), -ENOENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(err, ": No such file or directory"));
    profile_fini(&p);
}

static const struct suite_test tests[] = {
    {"profile", test_profile},
    {"broken profiles", test_broken_profiles},
    {"profile bounds", test_profile_bounds},
};
SUITE("profile_csv", tests)
