/* The rate of a source, as measured by looking now and then. */
#include <stdio.h>

#include "tests/unit/suite.h"
#include "workers/load/rate.h"

#define PIECE (1u << 20)
#define TRUE_RATE 3e9
#define PIECE_US (PIECE / TRUE_RATE * 1e6)

static const struct load_rate_config config = {.memory_us = 1000000,
                                               .least_us = 5000,
                                               .least_bytes = 16u << 20,
                                               .most_slower = 4};

/* A source that sends `n` pieces, `ahead` of them asked for at a time, while
 * the test looks every look_us. Returns the time at its end. */
static int64_t feed(struct load_rate *r, int64_t now_us, uint32_t n,
                    uint32_t ahead, int64_t look_us)
{
    double link_us = (double)now_us; /* it is free then */
    uint32_t asked = 0, came = 0;
    double due_us[1024];

    while (came < n) {
        for (; asked < n && asked - came < ahead; asked++) {
            load_rate_begin(r, now_us);
            if (link_us < (double)now_us)
                link_us = (double)now_us;
            due_us[asked % 1024] = link_us += PIECE_US;
        }
        now_us += look_us;
        for (; came < asked && due_us[came % 1024] <= (double)now_us; came++)
            load_rate_end(r, now_us, PIECE);
    }
    return now_us;
}

static void test_unknown(void)
{
    struct load_rate r = {.config = &config};

    CU_ASSERT_EQUAL(load_rate_bytes_per_s(&r), 0);
    load_rate_begin(&r, 100);
    load_rate_end(&r, 101, PIECE);
    CU_ASSERT_EQUAL(load_rate_bytes_per_s(&r), 0); /* 1 us is no sample */
    CU_ASSERT_DOUBLE_EQUAL(load_rate_us_per_byte(&r), 1.0 / PIECE, 1e-12);
    load_rate_begin(&r, 200);
    load_rate_end(&r, 300, 0); /* did not come: no time either */
    CU_ASSERT_DOUBLE_EQUAL(load_rate_us_per_byte(&r), 1.0 / PIECE, 1e-12);
}

/* However often he looks, and however much he asks for: between the rate of
 * the source and what keeps it busy for part of the time. */
static void test_steady(void)
{
    for (uint32_t ahead = 2; ahead <= 32; ahead *= 4) {
        for (int64_t look_us = 10; look_us <= 3000; look_us *= 3) {
            struct load_rate r = {.config = &config};
            int64_t now_us = 1000;

            for (int i = 0; i < 50; i++) {
                now_us = feed(&r, now_us, 100, ahead, look_us) + 100000;
                double rate = load_rate_bytes_per_s(&r);
                double window_us = (double)look_us + ahead * PIECE_US;
                CU_ASSERT(rate <= 1.001 * TRUE_RATE);
                CU_ASSERT(rate >=
                          0.45 * TRUE_RATE * ahead * PIECE_US / window_us);
            }
        }
    }
}

/* One look in the middle that comes 300 ms late. */
static void test_late(void)
{
    struct load_rate r = {.config = &config};
    int64_t now_us = feed(&r, 1000, 1000, 16, 100);
    double before = load_rate_bytes_per_s(&r);

    for (int i = 0; i < 16; i++)
        load_rate_begin(&r, now_us);
    for (int i = 0; i < 16; i++)
        load_rate_end(&r, now_us + 300000, PIECE);
    now_us = feed(&r, now_us + 300000, 100, 16, 100);
    double after = load_rate_bytes_per_s(&r);
    printf("[%.2e, then %.2e] ", before, after);
    CU_ASSERT(after > 0.85 * before && after <= before * 1.001);
}

/* It has become ten times slower: that is known within some of its time. */
static void test_slower(void)
{
    struct load_rate r = {.config = &config};
    int64_t now_us = feed(&r, 1000, 3000, 16, 100);

    for (int i = 0; i < 2000; i++) {
        load_rate_begin(&r, now_us);
        now_us += (int64_t)(10 * PIECE_US);
        load_rate_end(&r, now_us, PIECE);
    }
    double rate = load_rate_bytes_per_s(&r);
    printf("[%.2e] ", rate);
    CU_ASSERT(rate > 0.9e-1 * TRUE_RATE && rate < 1.3e-1 * TRUE_RATE);
}

static const struct suite_test tests[] = {
    {"unknown", test_unknown},
    {"steady", test_steady},
    {"a late look", test_late},
    {"slower", test_slower},
};
SUITE("load_rate", tests)
