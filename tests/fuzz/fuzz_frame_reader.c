/* Feeds a stream of bytes, in portions, to the frame reader. What it hands out
 * must be what was sent, in order, and nothing that is whole may be kept back.
 *
 *   input: u8 size of the portions, then the stream */
#include <stdlib.h>
#include <string.h>

#include "base/frame_reader.h"

#define LIMIT (1u << 16)
#define CHECK(x)     \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
    struct frame_reader reader;
    const uint8_t *sent; /* the stream from the frame that comes next on */
    size_t n_sent;       /* of it, sent by now */
};

static void check_frame(struct run *r, const struct frame_header *h,
                        const uint8_t *payload)
{
    CHECK(r->n_sent >= FRAME_HEADER_BYTES + h->length);
    CHECK(memcmp(&h->length, r->sent, 4) == 0);
    CHECK(memcmp(&h->type, r->sent + 4, 2) == 0);
    CHECK(memcmp(&h->request_id, r->sent + 8, 8) == 0);
    CHECK(memcmp(payload, r->sent + FRAME_HEADER_BYTES, h->length) == 0);
    r->sent += FRAME_HEADER_BYTES + h->length;
    r->n_sent -= FRAME_HEADER_BYTES + h->length;
}

/* Takes all that is there. Returns whether the stream may go on. */
static bool take_all(struct run *r)
{
    struct frame_header h;
    const uint8_t *payload;
    uint32_t length;
    int rc;

    while ((rc = frame_reader_next(&r->reader, LIMIT, &h, &payload)) > 0)
        check_frame(r, &h, payload);
    if (rc < 0 || r->n_sent < FRAME_HEADER_BYTES)
        return rc == FRAME_READ_MORE;
    memcpy(&length, r->sent, sizeof(length));
    CHECK(length <= LIMIT && r->n_sent < FRAME_HEADER_BYTES + length);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run r;

    if (size == 0)
        return 0;
    size_t portion = 1 + 16 * (size_t)data[0];
    frame_reader_init(&r.reader);
    r.sent = ++data;
    r.n_sent = 0;
    for (size--; size > 0;) {
        size_t n = portion < size ? portion : size;

        CHECK(frame_reader_put(&r.reader, data, n) == 0);
        data += n;
        size -= n;
        r.n_sent += n;
        if (!take_all(&r))
            break;
    }
    frame_reader_fini(&r.reader);
    return 0;
}
