/* Whose answers engines keep: who finds which, and what is forgotten for whom.
 */
#include <stdio.h>
#include <string.h>

#include "conductor/core/pool/pool.h"
#include "conductor/service/engine_request/told.h"
#include "conductor/service/kept.h"
#include "tests/unit/suite.h"

enum { A = 7, B = 8 };

static uint32_t find(const struct kept *k, uint64_t owner, const char *id)
{
    return kept_find(k, owner, id, strlen(id));
}

static void note(struct kept *k, uint64_t owner, const char *id, uint32_t e)
{
    kept_note(k, owner, id, strlen(id), e);
}

static void test_owners(void)
{
    struct kept k = {0};

    CU_ASSERT_EQUAL(find(&k, A, "resp_1"), POOL_NO_INSTANCE);
    note(&k, A, "", 3);
    CU_ASSERT_EQUAL(k.n, 0);
    note(&k, A, "resp_1", 3);
    note(&k, B, "resp_2", 4);
    note(&k, 0, "resp_3", 5);
    CU_ASSERT_EQUAL(find(&k, A, "resp_1"), 3);
    CU_ASSERT_EQUAL(find(&k, B, "resp_2"), 4);
    CU_ASSERT_EQUAL(find(&k, 0, "resp_3"), 5);
    for (uint64_t owner = 0; owner < 10; owner++)
        for (int i = 1; i <= 3; i++) {
            const char id[] = {'r', 'e', 's', 'p', '_', (char)('0' + i), '\0'};
            bool own = (owner == A && i == 1) || (owner == B && i == 2) ||
                       (owner == 0 && i == 3);

            CU_ASSERT_EQUAL(find(&k, owner, id) != POOL_NO_INSTANCE, own);
        }
    CU_ASSERT_EQUAL(find(&k, A, "resp_"), POOL_NO_INSTANCE);
    CU_ASSERT_EQUAL(find(&k, A, "resp_1 "), POOL_NO_INSTANCE);
    /* It stays its owner's, whoever makes one of that id. */
    note(&k, B, "resp_1", 9);
    CU_ASSERT_EQUAL(find(&k, B, "resp_1"), POOL_NO_INSTANCE);
    CU_ASSERT_EQUAL(find(&k, A, "resp_1"), 3);
    note(&k, A, "resp_1", 6);
    CU_ASSERT_EQUAL(find(&k, A, "resp_1"), 6);
    kept_fini(&k);
    CU_ASSERT_EQUAL(find(&k, A, "resp_1"), POOL_NO_INSTANCE);
}

/* One owner's many ids push out none of another's, and its own last ones stay.
 */
static void test_fair(void)
{
    struct kept k = {0};
    char id[32];
    int n_found = 0;

    note(&k, A, "resp_1", 3);
    for (unsigned i = 0; i < 4 * KEPT_IDS; i++) {
        snprintf(id, sizeof(id), "b%u", i);
        note(&k, B, id, 4);
    }
    CU_ASSERT_EQUAL(find(&k, A, "resp_1"), 3);
    CU_ASSERT_EQUAL(find(&k, B, id), 4);
    for (unsigned i = 0; i < 4 * KEPT_IDS; i++) {
        snprintf(id, sizeof(id), "b%u", i);
        n_found += find(&k, B, id) != POOL_NO_INSTANCE;
    }
    CU_ASSERT(n_found > (int)KEPT_IDS / 2 && n_found <= (int)KEPT_IDS);
    kept_fini(&k);
}

/* Of too many owners the one that noted nothing for longest goes. */
static void test_bound(void)
{
    struct kept k = {0};
    char id[32];

    for (uint64_t owner = 1; owner <= KEPT_OWNERS; owner++) {
        snprintf(id, sizeof(id), "of %llu", (unsigned long long)owner);
        note(&k, owner, id, 5);
    }
    note(&k, 1, "more of 1", 5);
    note(&k, KEPT_OWNERS + 1, "new", 5);
    CU_ASSERT_EQUAL(k.n, KEPT_OWNERS);
    CU_ASSERT_EQUAL(find(&k, KEPT_OWNERS + 1, "new"), 5);
    CU_ASSERT_EQUAL(find(&k, 1, "of 1"), 5);
    CU_ASSERT_EQUAL(find(&k, 2, "of 2"), POOL_NO_INSTANCE);
    CU_ASSERT_EQUAL(find(&k, KEPT_OWNERS + 1, "of 2"), POOL_NO_INSTANCE);
    for (uint64_t owner = 3; owner <= KEPT_OWNERS; owner++) {
        snprintf(id, sizeof(id), "of %llu", (unsigned long long)owner);
        CU_ASSERT_EQUAL(find(&k, owner, id), 5);
    }
    kept_fini(&k);
}

static void read_in(const char *answer, size_t piece, const char *want)
{
    struct answer_id a = {0};
    const char *found = "";
    char id[ANSWER_ID_MAX + 1];

    for (size_t at = 0, n = strlen(answer); at < n; at += piece)
        if (answer_id_read(&a, answer + at, n - at < piece ? n - at : piece)) {
            snprintf(id, sizeof(id), "%.*s", (int)a.json.n, a.json.value);
            CU_ASSERT_STRING_EQUAL(found, ""); /* it comes once */
            found = id;
        }
    if (strcmp(found, want) != 0)
        printf("pieces of %zu: %s: \"%s\"\n", piece, answer, found);
    CU_ASSERT_STRING_EQUAL(found, want);
}

static void test_id_of_an_answer(void)
{
    static const char *const all[][2] = {
        {"{\"id\":\"resp_1\",\"output\":[]}", "resp_1"},
        {" { \"a\" : [ {\"id\":\"no\"} , 1.5e3 ] ,\r\n \"id\" : \"yes\" }",
         "yes"},
        {"{\"metadata\":{\"id\":\"no\",\"response\":{\"id\":\"no\"}},"
         "\"user\":\"\\\"id\\\":\\\"no\\\\\",\"output\":[[{\"id\":\"no\"}]],"
         "\"note\":\"id\",\"x\":\"response\",\"y\":{\"id\":\"no\"},"
         "\"id\":\"yes\",\"id\":\"no\"}",
         "yes"},
        /* Events. */
        {"event: response.created\ndata: {\"type\":\"response.created\","
         "\"response\":{\"output\":[{\"id\":\"no\"}],\"id\":\"yes\"}}\n\n",
         "yes"},
        {": [}\n\ndata: {\"response\":{\"tools\":[]},\"id\":\"yes\"}\n\n",
         "yes"},
        {"data: {\"response\":[{\"id\":\"no\"}],\"b\":{\"id\":\"no\"}}\n\n"
         "data: {\"id\":\"no\"}\n\n",
         ""},
        /* None. */
        {"", ""},
        {"{\"id\":7,\"a\":\"no\"}", ""},
        {"{\"id\":\"\"}", ""},
        {"{\"id\":{\"id\":\"no\"}}", ""},
        {"}]{\"id\":\"broken", ""},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        for (size_t piece = 1; piece <= 80; piece++)
            read_in(all[i][0], piece, all[i][1]);
}

/* Far behind, and the longest. */
static void test_id_behind_much(void)
{
    static char answer[3000];

    for (int n = ANSWER_ID_MAX; n <= ANSWER_ID_MAX + 1; n++) {
        char id[ANSWER_ID_MAX + 2];

        memset(id, 'i', (size_t)n);
        id[n] = '\0';
        snprintf(answer, sizeof(answer), "{\"a\":\"%02000d\",\"id\":\"%s\"}", 7,
                 id);
        for (size_t piece = 1; piece <= sizeof(answer); piece = piece * 3 + 1)
            read_in(answer, piece, n == ANSWER_ID_MAX ? id : "");
    }
}

static const struct suite_test tests[] = {
    {"owners", test_owners},
    {"fair", test_fair},
    {"bound", test_bound},
    {"id of an answer", test_id_of_an_answer},
    {"id behind much", test_id_behind_much},
};
SUITE("kept", tests)
