/* Feeds bytes to what reads the shared store. What is taken must
 * come out again as it went in.
 *
 *   input: a byte for the number of layers, then a head or a member of
 *   the index. A head whose sum is wrong is tried again with the right one. */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "workers/shared/value.h"

#define CHECK(x)     \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void head(const struct shared_shape *shape, const uint8_t *data,
                 size_t size)
{
    uint64_t sums[SHARED_LAYERS_MAX];
    struct shared_head h = {.sums = sums};
    uint8_t out[SHARED_HEAD_MAX];

    if (shared_head_decode(shape, data, size, &h) < 0)
        return;
    CHECK(h.key != 0 && size == shared_head_bytes(shape));
    shared_head_encode(shape, &h, out);
    CHECK(memcmp(out, data, size) == 0);
}

static void sealed_head(const struct shared_shape *shape, const uint8_t *data,
                        size_t size)
{
    uint8_t copy[SHARED_HEAD_MAX];

    if (size < 8 || size > sizeof(copy))
        return;
    memcpy(copy, data, size);
    uint64_t sum = XXH3_64bits(copy, size - 8);
    for (int i = 0; i < 8; i++)
        copy[size - 8 + (size_t)i] = (uint8_t)(sum >> 8 * i);
    head(shape, copy, size);
}

static void member(const uint8_t *data, size_t size)
{
    char out[SHARED_MEMBER_BYTES + 1];
    uint64_t key;
    uint64_t parent;

    if (shared_member_decode((const char *)data, size, &key, &parent) < 0)
        return;
    shared_member_encode(key, parent, out);
    CHECK(size == SHARED_MEMBER_BYTES && memcmp(out, data, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct shared_shape shape = {.fingerprint = 7,
                                 .block_bytes = 64 * 12,
                                 .block_tokens = 16,
                                 .layers = 1 + data[0] % 12};

    head(&shape, data + 1, size - 1);
    sealed_head(&shape, data + 1, size - 1);
    member(data + 1, size - 1);
    return 0;
}
