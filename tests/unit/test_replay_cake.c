/* conductor-replay cake: its parsers, and the model by hand. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "tools/replay/paper/cake/result.h"

#define HEADER                                                      \
    "hardware,util_pct,bandwidth_gbps,model,seq_len,chunk,kv_bits," \
    "speedup_io,speedup_compute\n"

static struct cake_table table;
static char error[CAKE_ERROR_BYTES];

static int read_table(const char *text)
{
    cake_table_fini(&table);
    error[0] = '\0';
    return cake_table_read(text, strlen(text), "t.csv", &table, error);
}

static void test_table(void)
{
    CU_ASSERT_EQUAL_FATAL(
        read_table("# remark\n\n" HEADER
                   "A100,87.5,32,LongAlpaca-13B,16384,512,8,1.90,2.1\r\n"
                   "H100,100,7,m,1,1,4,1e-1,20"),
        0);
    CU_ASSERT_EQUAL_FATAL(table.count, 2);
    const struct cake_row *row = &table.rows[0];
    CU_ASSERT_STRING_EQUAL(row->setup.hardware, "A100");
    CU_ASSERT_STRING_EQUAL(row->setup.model, "LongAlpaca-13B");
    CU_ASSERT_EQUAL(row->setup.utilisation, 0.875);
    CU_ASSERT_EQUAL(row->setup.bandwidth_gbps, 32);
    CU_ASSERT_EQUAL(row->setup.n_tokens, 16384);
    CU_ASSERT_EQUAL(row->setup.chunk_tokens, 512);
    CU_ASSERT_EQUAL(row->setup.kv_bits, 8);
    CU_ASSERT_EQUAL(row->speedup_io, 1.9);
    CU_ASSERT_EQUAL(row->speedup_compute, 2.1);
    CU_ASSERT_EQUAL(row->line, 4);
    CU_ASSERT_EQUAL(table.rows[1].setup.kv_bits, 4);
    CU_ASSERT_EQUAL(table.rows[1].line, 5);
}

/* The columns may stand in any sequence. */
static void test_table_order(void)
{
    CU_ASSERT_EQUAL_FATAL(
        read_table("kv_bits,model,hardware,seq_len,chunk,bandwidth_gbps,"
                   "speedup_compute,util_pct,speedup_io\n"
                   "16,m,h,5,6,7,8,9,10\n"),
        0);
    const struct cake_row *row = &table.rows[0];
    CU_ASSERT_EQUAL(row->setup.kv_bits, 16);
    CU_ASSERT_STRING_EQUAL(row->setup.hardware, "h");
    CU_ASSERT_EQUAL(row->setup.n_tokens, 5);
    CU_ASSERT_EQUAL(row->setup.chunk_tokens, 6);
    CU_ASSERT_EQUAL(row->setup.bandwidth_gbps, 7);
    CU_ASSERT_EQUAL(row->speedup_compute, 8);
    CU_ASSERT_EQUAL(row->setup.utilisation, 0.09);
    CU_ASSERT_EQUAL(row->speedup_io, 10);
}

/* What `cake --csv` writes is a table too; 3 bits are published ones. */
static void test_other_columns(void)
{
    CU_ASSERT_EQUAL_FATAL(
        read_table("x,hardware,util_pct,bandwidth_gbps,model,seq_len,chunk,"
                   "kv_bits,speedup_io,y,speedup_compute,fastest\n"
                   "?,A,50,7,m,10,5,3,2,\"?,3,both\n"),
        0);
    CU_ASSERT_EQUAL(table.rows[0].setup.kv_bits, 3);
    CU_ASSERT_EQUAL(table.rows[0].speedup_io, 2);
    CU_ASSERT_EQUAL(table.rows[0].speedup_compute, 3);
    cake_table_fini(&table);
}

#define TEN "x,x,x,x,x,x,x,x,x,x,"
#define COLUMNS_66 TEN TEN TEN TEN TEN TEN "x,x,x,x,x,x\n"

static void test_table_errors(void)
{
    static const struct {
        const char *text;
        const char *message; /* begins so */
    } cases[] = {
        {"", "t.csv:1: the file ends before the header"},
        {HEADER, "t.csv:2: the file ends before the first row"},
        {"hardware,model\n", "t.csv:1: the header has no column util_pct"},
        {"a,b,c,d,e,f,g,h,i\n", "t.csv:1: the header has no column hardware"},
        {COLUMNS_66, "t.csv:1: more than 64 columns"},
        {"model,model,c,d,e,f,g,h,i\n",
         "t.csv:1: column 2: model is there twice"},
        {HEADER "A,1,1,m,1,1,16,1\n", "t.csv:2: 8 columns: must be 9"},
        {HEADER "A,1,1,m,1,1,16,1,1,\n", "t.csv:2: 10 columns: must be 9"},
        {HEADER ",1,1,m,1,1,16,1,1\n",
         "t.csv:2: hardware: \"\": must be a name"},
        {HEADER "A b,1,1,m,1,1,16,1,1\n",
         "t.csv:2: hardware: \"A b\": must be a name"},
        {HEADER "A,0,1,m,1,1,16,1,1\n",
         "t.csv:2: util_pct: \"0\": must be a number of 0.01 to 100"},
        {HEADER "A,101,1,m,1,1,16,1,1\n", "t.csv:2: util_pct: "},
        {HEADER "A, 1,1,m,1,1,16,1,1\n", "t.csv:2: util_pct: "},
        {HEADER "A,nan,1,m,1,1,16,1,1\n", "t.csv:2: util_pct: "},
        {HEADER "A,0x1,1,m,1,1,16,1,1\n", "t.csv:2: util_pct: "},
        {HEADER "A,1,-1,m,1,1,16,1,1\n", "t.csv:2: bandwidth_gbps: "},
        {HEADER "A,1,1e999,m,1,1,16,1,1\n", "t.csv:2: bandwidth_gbps: "},
        {HEADER "A,1,1,m,1.5,1,16,1,1\n",
         "t.csv:2: seq_len: \"1.5\": must be an integer of 1 to 1e+07"},
        {HEADER "A,1,1,m,0,1,16,1,1\n", "t.csv:2: seq_len: "},
        {HEADER "A,1,1,m,99999999999999999999,1,16,1,1\n",
         "t.csv:2: seq_len: "},
        {HEADER "A,1,1,m,1,,16,1,1\n", "t.csv:2: chunk: "},
        {HEADER "A,1,1,m,1,1,17,1,1\n",
         "t.csv:2: kv_bits: \"17\": must be an integer of 1 to 16"},
        {HEADER "A,1,1,m,1,1,0,1,1\n", "t.csv:2: kv_bits: "},
        {HEADER "A,1,1,m,1,1,16,0,1\n", "t.csv:2: speedup_io: "},
        {HEADER "A,1,1,m,1,1,16,1,x\n", "t.csv:2: speedup_compute: "},
        {HEADER "A,1,1,m,1,1,16,1,1\nA\n", "t.csv:3: 1 columns: must be 9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CU_ASSERT_EQUAL(read_table(cases[i].text), -EINVAL);
        CU_ASSERT_NSTRING_EQUAL(error, cases[i].message,
                                strlen(cases[i].message));
        CU_ASSERT_PTR_NULL(table.rows);
    }
    char text[1024] = HEADER;
    memset(text + strlen(text), 'x', 600);
    CU_ASSERT_EQUAL(read_table(text), -EINVAL);
    CU_ASSERT_STRING_EQUAL(error, "t.csv:2: longer than 512 bytes");
    CU_ASSERT_EQUAL(cake_table_read("a\0b", 3, "t.csv", &table, error),
                    -EINVAL);
    CU_ASSERT_STRING_EQUAL(error, "t.csv:1: a NUL byte");
    CU_ASSERT_EQUAL(cake_table_read(NULL, 0, "/nowhere/t.csv", &table, error),
                    -ENOENT);
    CU_ASSERT_STRING_EQUAL(error, "/nowhere/t.csv: No such file or directory");
}

/* A tenth of a second for every chunk, a tenth more for each one behind; a
 * piece of 10 tokens takes 0.02 s at 4 kbit/s and 0.03 s beside. */
static const char toy[] =
    "{\"source\": \"by hand\", \"io_fixed_s\": 0.25, \"io_piece_s\": 0.03,"
    " \"io_piece_tokens\": 10, \"final_step_s\": 0.5, \"chunk_tokens\": 100,"
    " \"step_tokens\": \"chunk_tokens * utilisation\","
    " \"kv_bytes_per_token\": {\"m\": 1000, \"n\": 2000},"
    " \"chunk_cost_s\": [{\"hardware\": \"h\", \"model\": \"m\", \"alpha\":"
    " 0.1, \"beta\": 0.1, \"assumed_rising_share\": 0.2}]}";

static void test_calibration(void)
{
    struct cake_calibration c;

    CU_ASSERT_EQUAL_FATAL(
        cake_calibration_read_buffer(toy, strlen(toy), "c.json", &c, error), 0);
    CU_ASSERT_EQUAL(c.io_fixed_s, 0.25);
    CU_ASSERT_EQUAL(c.io_piece_s, 0.03);
    CU_ASSERT_EQUAL(c.io_piece_tokens, 10);
    CU_ASSERT_EQUAL(c.final_step_s, 0.5);
    CU_ASSERT_EQUAL(c.chunk_tokens, 100);
    CU_ASSERT_EQUAL(c.n_models, 2);
    CU_ASSERT_EQUAL(c.n_costs, 1);
    CU_ASSERT_EQUAL(cake_calibration_size(&c, "n")->kv_bytes_per_token, 2000);
    CU_ASSERT_EQUAL(cake_calibration_cost(&c, "h", "m")->beta_s, 0.1);
    CU_ASSERT_PTR_NULL(cake_calibration_cost(&c, "h", "n"));
    CU_ASSERT_PTR_NULL(cake_calibration_cost(&c, "g", "m"));
    CU_ASSERT_PTR_NULL(cake_calibration_size(&c, "o"));
}

/* `toy` with the first `from` replaced by `to` is refused with a message that
 * begins so. */
static void refuse_toy(const char *from, const char *to, const char *message)
{
    struct cake_calibration c;
    char text[2048];
    const char *at = strstr(toy, from);

    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - toy), toy, to,
             at + strlen(from));
    CU_ASSERT_EQUAL(
        cake_calibration_read_buffer(text, strlen(text), "c.json", &c, error),
        -EINVAL);
    CU_ASSERT_NSTRING_EQUAL(error, message, strlen(message));
}

static void test_calibration_errors(void)
{
    refuse_toy("0.25", "-1",
               "c.json: io_fixed_s: -1: must be a number of 0 to 10000");
    refuse_toy("\"io_piece_s\"", "\"io_pieces\"",
               "c.json: io_pieces: no such field");
    refuse_toy("10,", "10.5,",
               "c.json: io_piece_tokens: 10.5: must be an integer");
    refuse_toy("\"final_step_s\": 0.5,", "",
               "c.json: final_step_s: missing: must be a number");
    refuse_toy("* utilisation", "/ 2", "c.json: step_tokens: \"chunk");
    refuse_toy("1000", "\"x\"",
               "c.json: kv_bytes_per_token.m: \"x\": must be an integer of 16");
    refuse_toy("\"m\": 1000", "\"\\n\": 1000",
               "c.json: kv_bytes_per_token: \"?\": must be a name of 1 to 63");
    refuse_toy("[{", "[{}, {", "c.json: chunk_cost_s[0].hardware: missing");
    refuse_toy("[{", "[7, {", "c.json: chunk_cost_s[0]: 7: must be an object");
    refuse_toy("\"beta\": 0.1", "\"beta\": 0.2",
               "c.json: chunk_cost_s[0].alpha: 0.1 is less than beta, 0.2");
    refuse_toy("}]}",
               "}, {\"hardware\": \"h\", \"model\": \"m\", \"alpha\": 1, "
               "\"beta\": 0}]}",
               "c.json: chunk_cost_s[1]: m on h is there twice");
    refuse_toy("{\"source\"", "{,", "c.json: line 1, column 2: ");
    refuse_toy(toy, "[]", "c.json: []: must be an object");
}

static struct cake_prediction predict(const struct cake_setup *setup)
{
    struct cake_calibration c;
    struct cake_engine engine;
    struct cake_prediction p = {0};

    CU_ASSERT_EQUAL_FATAL(
        cake_calibration_read_buffer(toy, strlen(toy), "c.json", &c, error), 0);
    CU_ASSERT_EQUAL_FATAL(cake_engine_init(&engine, &c, setup, error), 0);
    CU_ASSERT_EQUAL_FATAL(cake_engine_predict(&engine, &p), 0);
    return p;
}

/* Steps of 50 tokens take 0.1, 0.15, 0.2, 0.25 ... s, 50 tokens to load 0.25
 * s. Of 400 tokens, 200 are computed by 0.7 s, and 140 are loaded; 250 by 1 s,
 * when 150 are to be loaded and 0.75 s would do. */
static void test_model(void)
{
    const struct cake_setup setup = {.hardware = "h",
                                     .model = "m",
                                     .utilisation = 0.5,
                                     .bandwidth_gbps = 4e-3,
                                     .n_tokens = 400,
                                     .chunk_tokens = 100,
                                     .kv_bits = 16};
    struct cake_prediction p = predict(&setup);

    CU_ASSERT_DOUBLE_EQUAL(p.cake_s, 1.5, 1e-9);
    CU_ASSERT_EQUAL(p.split_tokens, 250);
    CU_ASSERT_DOUBLE_EQUAL(p.compute_s, 2.2, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(p.load_s, 40 * 0.05 + 0.25, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(p.speedup_io, 1.5, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(p.speedup_compute, 2.2 / 1.5, 1e-9);
    CU_ASSERT_EQUAL(p.best, LOAD_MODE_BOTH);
    /* Half the bits: 0.01 s less a piece; 200 tokens by 0.7 s, 20 pieces in
     * 0.8 s still don't do; so 250 again. A quarter: 20 pieces in 0.7 s do. */
    struct cake_setup less = setup;
    less.kv_bits = 8;
    CU_ASSERT_EQUAL(predict(&less).split_tokens, 250);
    less.kv_bits = 4;
    CU_ASSERT_EQUAL(predict(&less).split_tokens, 200);
    /* 101 tokens: the last piece counts as a whole, and the last step does
     * what is left of it. */
    less.n_tokens = 101;
    CU_ASSERT_DOUBLE_EQUAL(predict(&less).load_s, 11 * 0.035 + 0.25, 1e-9);
}

/* The last step makes a short prompt slower than one resource alone. */
static void test_model_best(void)
{
    struct cake_setup setup = {.hardware = "h",
                               .model = "m",
                               .utilisation = 1,
                               .bandwidth_gbps = 1,
                               .n_tokens = 20,
                               .chunk_tokens = 100,
                               .kv_bits = 16};

    CU_ASSERT_EQUAL(predict(&setup).best, LOAD_MODE_COMPUTE);
    setup.n_tokens = 1000;
    setup.bandwidth_gbps = 1000;
    CU_ASSERT_EQUAL(predict(&setup).best, LOAD_MODE_BOTH);
    setup.utilisation = 0.1;
    setup.n_tokens = 90;
    CU_ASSERT_EQUAL(predict(&setup).best, LOAD_MODE_LOAD);
}

static void test_model_errors(void)
{
    struct cake_engine engine;
    struct cake_setup setup = {.hardware = "A100",
                               .model = "LongAlpaca-13B",
                               .utilisation = 0.001,
                               .bandwidth_gbps = 1,
                               .n_tokens = 400,
                               .chunk_tokens = 100,
                               .kv_bits = 16};
    struct cake_calibration own;
    const struct cake_calibration *c = &own;

    CU_ASSERT_EQUAL_FATAL(cake_calibration_read_file(NULL, &own, error), 0);
    CU_ASSERT_EQUAL(cake_engine_init(&engine, c, &setup, error), -EINVAL);
    CU_ASSERT_NSTRING_EQUAL(error, "util_pct: ", 10);
    setup.utilisation = 1;
    setup.chunk_tokens = 1000000;
    CU_ASSERT_EQUAL(cake_engine_init(&engine, c, &setup, error), -EINVAL);
    CU_ASSERT_NSTRING_EQUAL(error, "chunk: ", 7);
    setup.chunk_tokens = 512;
    strcpy(setup.hardware, "A101");
    CU_ASSERT_EQUAL(cake_engine_init(&engine, c, &setup, error), -ENOENT);
    CU_ASSERT_NSTRING_EQUAL(error, "hardware: ", 10);
    strcpy(setup.model, "x");
    CU_ASSERT_EQUAL(cake_engine_init(&engine, c, &setup, error), -ENOENT);
    CU_ASSERT_NSTRING_EQUAL(error, "model: ", 7);
}

#define KNOWN "A100,50,25,LongAlpaca-13B,16384,512,16,1.68,2.55\n"

static void test_result(void)
{
    struct cake_result r;
    struct cake_calibration own;
    const struct cake_calibration *c = &own;

    CU_ASSERT_EQUAL_FATAL(cake_calibration_read_file(NULL, &own, error), 0);
    CU_ASSERT_EQUAL_FATAL(
        read_table(HEADER KNOWN "A102,50,25,m,1,1,16,1,1\n" KNOWN), 0);
    CU_ASSERT_EQUAL(cake_result_make(&table, "t.csv", c, false, &r, error),
                    -ENOENT);
    CU_ASSERT_NSTRING_EQUAL(error, "t.csv:3: model: ", 16);
    CU_ASSERT_EQUAL_FATAL(cake_result_make(&table, "t.csv", c, true, &r, error),
                          0);
    CU_ASSERT_EQUAL(r.n_lines, 2);
    CU_ASSERT_EQUAL(r.n_skipped, 1);
    CU_ASSERT_EQUAL(r.io.median,
                    fabs(r.lines[1].predicted.speedup_io / 1.68 - 1));
    CU_ASSERT_EQUAL(r.compute.largest,
                    fabs(r.lines[0].predicted.speedup_compute / 2.55 - 1));
    cake_result_fini(&r);
    CU_ASSERT_EQUAL_FATAL(read_table(HEADER "A102,5,25,m,1,1,16,1,1\n"), 0);
    CU_ASSERT_EQUAL(cake_result_make(&table, "t.csv", c, true, &r, error),
                    -ENOENT);
    CU_ASSERT_EQUAL_FATAL(
        read_table(HEADER "A100,.1,25,LongAlpaca-13B,10000000,512,16,1,1\n"),
        -EINVAL); /* a digit comes first */
    CU_ASSERT_EQUAL_FATAL(
        read_table(HEADER "A100,0.2,25,LongAlpaca-13B,10000000,512,16,1,1\n"),
        0);
    CU_ASSERT_EQUAL(cake_result_make(&table, "t.csv", c, true, &r, error),
                    -EINVAL);
    CU_ASSERT_STRING_EQUAL(
        error, "t.csv:2: seq_len: 10000000 tokens take too long to compute");
    cake_table_fini(&table);
}

static const struct suite_test tests[] = {
    {"table", test_table},
    {"table order", test_table_order},
    {"other columns", test_other_columns},
    {"table errors", test_table_errors},
    {"calibration", test_calibration},
    {"calibration errors", test_calibration_errors},
    {"model", test_model},
    {"model best", test_model_best},
    {"model errors", test_model_errors},
    {"result", test_result},
};
SUITE("replay_cake", tests)
