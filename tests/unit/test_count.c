/* What counts as a prompt's tokens and as its cached ones, in front of an
 * engine: told, half told, untold, and whatever a liar tells. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/service/engine_request/count.h"
#include "conductor/service/engine_request/told.h"
#include "tests/unit/suite.h"

#define FAR 100000

static void test_cases(void)
{
    static const struct {
        struct count_facts facts; /* known, cached, exact, most, told */
        int64_t prompt, cached, predicted;
        bool comparable;
    } cases[] = {
        /* Both are told: 288 tokens where four bytes were taken for one. */
        {{72, 64, false, FAR, 288, 256}, 288, 256, 256, true},
        {{72, 0, false, FAR, 288, 256}, 288, 256, 0, true},
        /* The prompt alone: as large a part of it as the index had. */
        {{72, 64, false, FAR, 288, -1}, 288, 256, 256, false},
        {{100, 50, false, FAR, 3, -1}, 3, 2, 2, false},
        /* The cached ones alone: a prompt has at least these. */
        {{72, 64, false, FAR, -1, 256}, 256, 256, 64, false},
        {{72, 64, false, FAR, -1, 10}, 72, 10, 64, false},
        {{72, 64, false, FAR, 0, 10}, 72, 10, 64, false},
        {{288, 256, true, FAR, -1, 100}, 288, 100, 256, true},
        /* None. */
        {{72, 64, false, FAR, -1, -1}, 72, 64, 64, false},
        {{288, 256, true, FAR, -1, -1}, 288, 256, 256, false},
        /* Exact ones are not scaled: a picture has tokens of its own. */
        {{288, 256, true, FAR, 900, 256}, 900, 256, 256, true},
        {{288, 256, true, FAR, 900, -1}, 900, 256, 256, false},
        {{288, 256, true, FAR, 200, -1}, 200, 200, 200, false},
        /* Lies. */
        {{72, 64, false, FAR, 10, 256}, 10, 10, 9, true},
        {{72, 64, false, 1000, INT32_MAX, INT32_MAX}, 1000, 1000, 889, true},
        {{72, 64, false, 1000, -1, INT32_MAX}, 1000, 1000, 64, false},
        {{288, 256, true, FAR, -1, 900}, 288, 288, 256, true},
        {{0, 64, false, FAR, -1, -1}, 1, 1, 1, false},
        {{72, 900, false, FAR, -1, -1}, 72, 72, 72, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct count c = count_prompt(&cases[i].facts);

        CU_ASSERT_EQUAL(c.prompt, cases[i].prompt);
        CU_ASSERT_EQUAL(c.cached, cases[i].cached);
        CU_ASSERT_EQUAL(c.predicted, cases[i].predicted);
        CU_ASSERT_EQUAL(c.comparable, cases[i].comparable);
    }
}

static int64_t draw(unsigned *seed)
{
    static const int64_t odd[] = {-1, 0, 1, INT32_MAX, 9999999999};
    int which = rand_r(seed) % 10;

    return which < 5 ? odd[which] : rand_r(seed) % (which < 8 ? 300 : 100000);
}

/* The ratio is one, whatever is told and known. */
static void test_any_lie(void)
{
    unsigned seed = 4711;

    for (int i = 0; i < 100000; i++) {
        int64_t known = draw(&seed) % FAR;
        struct count_facts facts = {known,
                                    draw(&seed),
                                    rand_r(&seed) % 2,
                                    1 + rand_r(&seed) % FAR,
                                    draw(&seed),
                                    draw(&seed)};
        struct count c = count_prompt(&facts);
        int64_t bound = facts.most > known ? facts.most : known;

        CU_ASSERT_FATAL(c.prompt >= 1 && c.prompt <= (bound > 1 ? bound : 1));
        CU_ASSERT_FATAL(c.cached >= 0 && c.cached <= c.prompt);
        CU_ASSERT_FATAL(c.predicted >= 0 && c.predicted <= c.prompt);
        CU_ASSERT_FATAL(!c.comparable || c.cached_told);
        CU_ASSERT_FATAL(c.cached_told || c.cached == c.predicted);
    }
}

#define META(prompt, cached)                                             \
    "\"meta_info\":{\"id\":\"{\\\"}\",\"finish_reason\":{\"length\":9}," \
    "\"prompt_tokens\":" prompt ",\"cached_tokens\":" cached "}"
#define EVENT(index, prompt, cached)                   \
    "data: {\"text\":\"a[\"," META(prompt, cached) "," \
                                                   "\"index\":" index "}\n\n"

/* SGLang's answers, in pieces of every size. */
static void test_several_prompts(void)
{
    static const struct {
        const char *answer;
        uint32_t n;
        int64_t prompt, cached;
        bool told;
    } cases[] = {
        {"[{\"text\":\"a\"," META("288", "256") "}, {" META(
             "300", "0") ","
                         "\"prompt_tokens\":7}]",
         2, 588, 256, true},
        /* Each event of a prompt tells the same. */
        {EVENT("0", "288", "256") EVENT("1", "300", "32") EVENT(
             "1", "300", "32") EVENT("0", "288", "256") "data: [DONE]\n\n",
         2, 588, 288, true},
        {EVENT("1023", "5", "4") EVENT("1024", "5", "4"), 1, 5, 4, true},
        {EVENT("1", "5", "null"), 1, 5, 0, false},
        /* One prompt, whose last event tells; no prompt; no such numbers. */
        {"{\"text\":\"a\"," META("288", "256") "}", 0, 0, 0, false},
        {"data: [DONE]\n\n", 0, 0, 0, false},
        {"[{" META("-1", "2") "},{" META("99999999999", "2") "},{}]", 0, 0, 0,
         false},
        {"[[{" META("5", "2") "}]]", 0, 0, 0, false},
        {"", 0, 0, 0, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (size_t piece = 1; piece <= 60; piece++) {
            struct meta_info m = {0};
            const char *answer = cases[i].answer;

            for (size_t at = 0, n = strlen(answer); at < n; at += piece)
                meta_info_read(&m, answer + at,
                               n - at < piece ? n - at : piece);
            if (m.n != cases[i].n)
                printf("case %zu, pieces of %zu: %u\n", i, piece, m.n);
            CU_ASSERT_EQUAL(m.n, cases[i].n);
            CU_ASSERT_EQUAL(m.prompt, cases[i].prompt);
            CU_ASSERT_EQUAL(m.cached, cases[i].cached);
            CU_ASSERT_EQUAL(m.cached_told, cases[i].told);
        }
}

static const struct suite_test tests[] = {
    {"cases", test_cases},
    {"any lie", test_any_lie},
    {"several prompts", test_several_prompts},
};
SUITE("count", tests)
