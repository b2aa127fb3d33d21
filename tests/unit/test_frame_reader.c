/* Frames out of bytes that come in any portions: none is lost. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/frame_reader.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"

#define LIMIT (3u << 20)

static uint32_t random_below(uint32_t n)
{
    return n ? (uint32_t)rand() % n : 0;
}

static uint8_t byte_of(uint64_t id, uint32_t i)
{
    return (uint8_t)(id * 131 + i * 7 + (i >> 8));
}

/* Frame number id. */
static struct frame_header header_of(uint64_t id)
{
    uint32_t kinds = (uint32_t)(id * 2654435761u >> 16);
    struct frame_header h = {.request_id = id, .type = kinds % 3 ? 41 : 50};
    static const uint32_t most[] = {1, 40, 3000, 100000, LIMIT};

    h.length = (kinds >> 4) % most[(kinds >> 2) % 5];
    return h;
}

static void put_frame(struct wire_buf *b, uint64_t id)
{
    struct frame_header h = header_of(id);
    size_t at = frame_begin(b, h.type, id);

    uint8_t *payload = wire_buf_extend(b, h.length);
    for (uint32_t i = 0; payload && i < h.length; i++)
        payload[i] = byte_of(id, i);
    frame_end(b, at);
}

/* Whether these are the n bytes of frame id. */
static bool same(const uint8_t *p, uint64_t id, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (p[i] != byte_of(id, i))
            return false;
    return true;
}

/* Takes all that is there. */
static void take_all(struct frame_reader *r, uint64_t *next)
{
    struct frame_header h;
    const uint8_t *p;
    int rc;

    while ((rc = frame_reader_next(r, LIMIT, &h, &p)) != FRAME_READ_MORE) {
        CU_ASSERT_FATAL(rc > 0);
        struct frame_header want = header_of(*next);
        CU_ASSERT_EQUAL_FATAL(h.request_id, *next);
        CU_ASSERT_EQUAL(h.type, want.type);
        CU_ASSERT_EQUAL_FATAL(h.length, want.length);
        CU_ASSERT(same(p, *next, h.length));
        ++*next;
    }
}

/* Gives the reader n bytes, copied, or as many of them as it has room for.
 * Returns how many. */
static size_t come(struct frame_reader *r, const uint8_t *bytes, size_t n)
{
    size_t room;

    if (random_below(2)) {
        CU_ASSERT_EQUAL(frame_reader_put(r, bytes, n), 0);
        return n;
    }
    char *to = frame_reader_room(r, &room);
    CU_ASSERT_PTR_NOT_NULL_FATAL(to);
    n = n < room ? n : room;
    memcpy(to, bytes, n);
    frame_reader_came(r, n);
    return n;
}

static void run(uint64_t n_frames)
{
    struct frame_reader r;
    struct wire_buf b;
    uint64_t next = 0;
    size_t at = 0;

    frame_reader_init(&r);
    wire_buf_init(&b, SIZE_MAX / 2);
    for (uint64_t id = 0; id < n_frames; id++)
        put_frame(&b, id);
    while (at < b.len) {
        uint32_t most = random_below(3) ? 60000 : 20;
        size_t n = b.len - at < most ? b.len - at : 1 + random_below(most);

        at += come(&r, b.data + at, n);
        take_all(&r, &next);
    }
    CU_ASSERT_EQUAL(next, n_frames);
    CU_ASSERT(r.cap <= 2 * LIMIT);
    wire_buf_fini(&b);
    frame_reader_fini(&r);
}

static void test_any_portions(void)
{
    unsigned seed = (unsigned)getpid();

    printf("[seed %u] ", seed);
    srand(seed);
    for (uint32_t i = 0; i < cases_of(20); i++)
        run(1 + random_below(60));
}

static void test_bad_headers(void)
{
    static const uint8_t reserved[16] = {0, 0, 0, 0, 1, 0, 1};
    static const uint8_t too_long[16] = {1, 0, 0x30, 0, 41};
    struct frame_reader r;
    struct frame_header h;
    const uint8_t *p;

    frame_reader_init(&r);
    CU_ASSERT_EQUAL(frame_reader_put(&r, reserved, 16), 0);
    CU_ASSERT_EQUAL(frame_reader_next(&r, LIMIT, &h, &p), -EPROTO);
    frame_reader_fini(&r);
    frame_reader_init(&r);
    CU_ASSERT_EQUAL(frame_reader_put(&r, too_long, 16), 0);
    CU_ASSERT_EQUAL(frame_reader_next(&r, LIMIT, &h, &p), -EMSGSIZE);
    CU_ASSERT_EQUAL(h.length, LIMIT + 1);
    frame_reader_fini(&r);
}

static const struct suite_test tests[] = {
    {"bytes in any portions", test_any_portions},
    {"bad headers", test_bad_headers},
};

SUITE("frame_reader", tests)
