/*
 * The reader on files of literal text: plain, gzip, broken, and the rules that
 * hold between lines. Then the writer, the infinite cache and the tokens.
 */
#include <CUnit/CUnit.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "tests/unit/suite.h"
#include "traces/id_map.h"
#include "traces/lines.h"
#include "traces/reader.h"
#include "traces/stats.h"
#include "traces/tokens.h"
#include "traces/writer.h"

#define LINE(ms, n, ids)                             \
    "{\"timestamp\": " #ms ", \"input_length\": " #n \
    ", \"output_length\": 1, \"hash_ids\": " ids "}\n"

static char path[64];

static void write_file(const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Reads the whole file: how many requests, and the result that ended it. */
static int read_file(const struct trace_reader_options *options, int *count,
                     struct trace_error *error)
{
    struct trace_reader *r = NULL;
    struct trace_request q = {0};

    *count = 0;
    int rc = trace_reader_open(path, options, &r, error);
    while (rc >= 0) {
        rc = trace_reader_next(r, &q, error);
        if (rc <= 0)
            break;
        (*count)++;
    }
    trace_request_fini(&q);
    trace_reader_free(r);
    return rc;
}

static void expect(const char *text, const struct trace_reader_options *options,
                   int rc, int count, const char *message)
{
    struct trace_error e;
    char got[256] = "";
    int n = 0;

    write_file(text, strlen(text));
    int result = read_file(options, &n, &e);
    if (result < 0)
        trace_error_format(&e, "F", got, sizeof got);
    if (result != rc || n != count || strcmp(got, message) != 0) {
        printf("\n    got %d, %d requests, '%s'", result, n, got);
        CU_FAIL("not as expected");
    }
}

static void test_lines(void)
{
    expect("", NULL, 0, 0, "");
    expect("\n \r\n", NULL, 0, 0, "");
    expect(LINE(0, 512, "[0]") "\n" LINE(0, 513, "[0, 1]"), NULL, 0, 2, "");
    /* The last line needs no newline; a line number counts empty ones. */
    expect("\n\n{}", NULL, -EINVAL, 0,
           "F:3: }: expected a field name in quotes");
}

static void test_rules(void)
{
    static const struct trace_reader_options small = {.block_tokens = 16};

    expect(LINE(5, 1, "[0]") LINE(4, 1, "[0]"), NULL, -EINVAL, 1,
           "F:2: timestamp 4: goes backward, the line before has 5");
    expect(LINE(0, 513, "[0]"), NULL, -EINVAL, 0,
           "F:1: hash_ids [1 ids]: 513 tokens in blocks of 512 need 2 ids");
    expect(LINE(0, 33, "[0, 1, 2]"), &small, 0, 1, "");
    const char *chain = LINE(0, 1000, "[0, 1]") LINE(0, 1500, "[0, 2, 1]");
    expect(chain, NULL, -EINVAL, 1,
           "F:2: hash_ids 1: at index 2 follows another id than before, so it "
           "cannot stand for one prefix");
    expect(LINE(0, 1000, "[7, 7]"), NULL, -EINVAL, 0,
           "F:1: hash_ids 7: at index 1 follows another id than before, so it "
           "cannot stand for one prefix");
}

static void test_files(void)
{
    struct trace_error e;
    int n = 0;
    gzFile gz = gzopen(path, "wb");

    CU_ASSERT_PTR_NOT_NULL_FATAL(gz);
    for (int i = 0; i < 5000; i++)
        gzprintf(gz, LINE(% d, 1000, "[0, %d]"), i, i + 1);
    gzclose(gz);
    CU_ASSERT_EQUAL(read_file(NULL, &n, &e), 0);
    CU_ASSERT_EQUAL(n, 5000);

    /* A gzip file that was cut short is an error, not a short trace. */
    CU_ASSERT_EQUAL(truncate(path, 6000), 0);
    CU_ASSERT_EQUAL(read_file(NULL, &n, &e), -EIO);
    CU_ASSERT(n < 5000);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.reason, "unexpected end of file"));

    /* A line longer than the bound stops before it fills the memory. */
    size_t bytes = TRACE_LINE_BYTES_MAX * 3;
    char *spaces = malloc(bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(spaces);
    memset(spaces, ' ', bytes);
    write_file(spaces, bytes);
    free(spaces);
    CU_ASSERT_EQUAL(read_file(NULL, &n, &e), -EINVAL);
    CU_ASSERT_EQUAL(e.line, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.reason, "exceeds"));

    unlink(path);
    CU_ASSERT_EQUAL(read_file(NULL, &n, &e), -ENOENT);
    CU_ASSERT_STRING_EQUAL(e.reason, "No such file or directory");
}

/* Behind a bad line the reader goes on, and has learnt nothing from it. */
static void test_go_on(void)
{
    static const char text[] =
        LINE(5, 1000, "[0, 1]") "nonsense\n" LINE(4, 1, "[0]")
            LINE(9, 2000, "[0, 2, 1, 3]") LINE(9, 1, "[0, 5]")
                LINE(6, 1500, "[0, 1, 2]");
    struct trace_reader *r = NULL;
    struct trace_request q = {0};
    struct trace_error e;
    uint64_t bad[8] = {0};
    int n_bad = 0, n_good = 0, rc;

    write_file(text, sizeof text - 1);
    CU_ASSERT_EQUAL_FATAL(trace_reader_open(path, NULL, &r, &e), 0);
    while ((rc = trace_reader_next(r, &q, &e)) != 0 && n_bad < 8)
        if (rc == 1)
            n_good++;
        else
            bad[n_bad++] = e.line;
    CU_ASSERT_EQUAL(n_good, 2);
    CU_ASSERT_EQUAL(n_bad, 4);
    for (int i = 0; i < 4; i++)
        CU_ASSERT_EQUAL(bad[i], (uint64_t)i + 2);
    trace_reader_free(r);

    /* Behind a line that is too long, too. */
    size_t bytes = TRACE_LINE_BYTES_MAX * 3;
    char *spaces = malloc(bytes + 200);
    CU_ASSERT_PTR_NOT_NULL_FATAL(spaces);
    memset(spaces, 'x', bytes);
    strcpy(spaces + bytes, "\n" LINE(5, 1000, "[0, 1]"));
    write_file(spaces, strlen(spaces));
    free(spaces);
    CU_ASSERT_EQUAL_FATAL(trace_reader_open(path, NULL, &r, &e), 0);
    CU_ASSERT_EQUAL(trace_reader_next(r, &q, &e), -EINVAL);
    CU_ASSERT_EQUAL(e.line, 1);
    CU_ASSERT_EQUAL(trace_reader_next(r, &q, &e), 1);
    CU_ASSERT_EQUAL(q.input_tokens, 1000);
    CU_ASSERT_EQUAL(trace_reader_next(r, &q, &e), 0);
    trace_request_fini(&q);
    trace_reader_free(r);
}

static void test_writer(void)
{
    uint64_t ids[] = {0, 9};
    struct trace_request q = {.arrival_us = 3000999,
                              .input_tokens = 600,
                              .output_tokens = 5,
                              .block_count = 2,
                              .hash_ids = ids};
    char text[200] = "";
    FILE *f = fmemopen(text, sizeof text, "w");

    CU_ASSERT_EQUAL(trace_write(f, &q), 0);
    fclose(f);
    CU_ASSERT_STRING_EQUAL(text, "{\"timestamp\": 3000, \"input_length\": 600, "
                                 "\"output_length\": 5, \"hash_ids\": [0, "
                                 "9]}\n");
    f = fopen("/dev/full", "w");
    setvbuf(f, NULL, _IONBF, 0);
    CU_ASSERT_EQUAL(trace_write(f, &q), -EIO);
    fclose(f);
}

static void test_stats(void)
{
    uint64_t a[] = {0, 1, 2};
    uint64_t b[] = {0, 1, 3};
    struct trace_request first = {.input_tokens = 1100,
                                  .block_count = 3,
                                  .hash_ids = a,
                                  .arrival_us = 10};
    struct trace_request again = first;
    struct trace_request other = {.input_tokens = 1100,
                                  .block_count = 3,
                                  .hash_ids = b,
                                  .arrival_us = 30};
    struct trace_stats *full = trace_stats_new(512, false);
    struct trace_stats *partial = trace_stats_new(512, true);
    const struct trace_request *all[] = {&first, &again, &other};

    for (size_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(trace_stats_add(full, all[i]), 0);
        CU_ASSERT_EQUAL(trace_stats_add(partial, all[i]), 0);
    }
    const struct trace_totals *t = trace_stats_totals(full);
    CU_ASSERT_EQUAL(t->reused_tokens, 2 * 1024);
    CU_ASSERT_EQUAL(t->input_tokens, 3300);
    CU_ASSERT_EQUAL(t->first_arrival_us, 10);
    CU_ASSERT_EQUAL(t->last_arrival_us, 30);
    CU_ASSERT_DOUBLE_EQUAL(trace_totals_hit_ratio(t), 2048.0 / 3300, 1e-12);
    t = trace_stats_totals(partial);
    CU_ASSERT_EQUAL(t->reused_tokens, 1100 + 1024);
    CU_ASSERT_EQUAL(t->reused_blocks, 5);
    CU_ASSERT_EQUAL(t->blocks, 9);
    trace_stats_free(full);
    trace_stats_free(partial);
    CU_ASSERT_EQUAL(trace_totals_hit_ratio(&(struct trace_totals){0}), 0.0);
}

static void test_scale(void)
{
    struct trace_request q = {.input_tokens = 513, .output_tokens = 0};

    trace_request_scale(&q, 16);
    CU_ASSERT_EQUAL(q.input_tokens, 33); /* still 2 blocks, of 32 now */
    CU_ASSERT_EQUAL(q.output_tokens, 1);
    trace_request_scale(&q, 1);
    CU_ASSERT_EQUAL(q.input_tokens, 33);
}

static void test_tokens(void)
{
    struct trace_token_options o = {.block_tokens = 32, .vocab_tokens = 512};
    uint64_t a[] = {0, 1, 2};
    uint64_t b[] = {0, 1, 3};
    struct trace_request first = {
        .input_tokens = 90, .block_count = 3, .hash_ids = a};
    struct trace_request other = {
        .input_tokens = 96, .block_count = 3, .hash_ids = b};
    uint32_t x[96];
    uint32_t y[96];
    uint32_t z[96];

    trace_tokens(&first, &o, x);
    trace_tokens(&other, &o, y);
    CU_ASSERT_EQUAL(memcmp(x, y, 64 * sizeof x[0]), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(x + 64, y + 64, 26 * sizeof x[0]), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(x, x + 32, 32 * sizeof x[0]), 0);
    o.seed = 1;
    trace_tokens(&other, &o, z);
    CU_ASSERT_NOT_EQUAL(memcmp(y, z, 32 * sizeof x[0]), 0);
    uint32_t most = 0;
    for (size_t i = 0; i < 96; i++)
        most = y[i] > most ? y[i] : most;
    CU_ASSERT(most < 512 && most > 400);
}

static void test_id_map(void)
{
    struct id_map *map = id_map_new(20000);

    CU_ASSERT_PTR_NULL(id_map_get(map, 0));
    CU_ASSERT_PTR_NULL(id_map_get(map, ID_MAP_NONE));
    for (uint64_t i = 0; i < 20000; i++)
        CU_ASSERT_EQUAL(id_map_put(map, i << 20, i), 0);
    CU_ASSERT_EQUAL(id_map_put(map, 1, 1), -ENOSPC);
    CU_ASSERT_EQUAL(id_map_put(map, 5 << 20, 7), 0);
    CU_ASSERT_PTR_NULL(id_map_get(map, 1));
    int wrong = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        const uint64_t *value = id_map_get(map, i << 20);

        wrong += !value || *value != (i == 5 ? 7 : i);
    }
    CU_ASSERT_EQUAL(wrong, 0);
    id_map_free(map);
    id_map_free(NULL);
}

static const struct suite_test tests[] = {
    {"lines", test_lines},   {"rules between lines", test_rules},
    {"files", test_files},   {"go on behind a bad line", test_go_on},
    {"writer", test_writer}, {"infinite cache", test_stats},
    {"scale", test_scale},   {"tokens", test_tokens},
    {"id map", test_id_map},
};

int main(void)
{
    snprintf(path, sizeof path, "/tmp/test_trace_reader.%d", (int)getpid());
    int failed = SUITE_RUN("trace_reader", tests);
    unlink(path);
    return failed;
}
